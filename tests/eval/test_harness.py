from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from r1zero.data.records import Completion, Problem
from r1zero.errors import UserError
from r1zero.eval.harness import evaluate
from r1zero.eval.result import summarise
from r1zero.eval.samples import EvalSample, read_samples, to_json
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.openai import FailedCompletion
from r1zero.verifiers import Outcome, VerifierPool, VerifierSpec

PROBLEMS = [Problem(id=f"p{i}", prompt=f"{i}+1", answer=str(i + 1), data={"level": i % 2}) for i in range(6)]
SAMPLING = Sampling(max_tokens=8)
ANSWER = VerifierSpec(name="answer")


class Letters:
    """Stands in for a template and a tokenizer: a character is a token."""

    stop = ("</answer>",)

    def render(self, question: str, tokenizer: Any) -> str:
        return f"Q: {question}\nA: <think>"

    def encode(self, question: str, tokenizer: Any) -> list[int]:
        return [ord(c) for c in self.render(question, tokenizer)]

    def turn_prefill(self, tokenizer: Any) -> str:
        return "<think>"

    def stop_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        return (0,)


class Adder:
    """Answers sums: right three times in four, by a stream of (seed, i, j); dies after `patience` completions."""

    name = "adder"

    def __init__(self, patience: int = 10**9, reports: bool = True) -> None:
        self.patience = patience
        self.reports = reports
        self.calls: list[tuple[int, Sampling]] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, on_completion: OnCompletion | None = None
    ) -> list[tuple[Completion, ...]]:
        self.calls.append((len(prompts), sampling))
        groups = []
        for i, ids in enumerate(prompts):
            question = "".join(map(chr, ids)).split("Q: ")[1].split("+")[0]
            group = []
            for j in range(n):
                if self.patience == 0:
                    raise KeyboardInterrupt
                self.patience -= 1
                draw = random.Random(f"{sampling.seed}-{i}-{j}").random()
                right = int(question) + 1 if draw < 0.75 else 99
                text = f"{draw}</think> <answer>{right}</answer>"
                group.append(Completion(token_ids=(1,) * 5, text=text, logprobs=(0.0,) * 5, finish_reason="stop"))
                if on_completion and self.reports:
                    on_completion(i, j, group[-1])
            groups.append(tuple(group))
        return groups

    def sync_weights(self, model: Any) -> None: ...
    def sleep(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=1) as pool:
        yield pool


def run(engine: Any, pool: VerifierPool, **changes: Any) -> Any:
    settings: dict[str, Any] = {"sampling": SAMPLING, "k": 4, "seed": 7, "verifier": ANSWER, "batch": 10, **changes}
    return evaluate(PROBLEMS, engine=engine, tokenizer=None, template=Letters(), pool=pool, **settings)


def untimed(samples: Sequence[EvalSample]) -> list[str]:
    from dataclasses import replace

    return [to_json(replace(s, seconds=0.0)) for s in samples]


def test_every_sample_is_graded_once_and_in_order(pool: VerifierPool) -> None:
    seen: list[tuple[int, int]] = []
    result = run(Adder(), pool, on_progress=lambda done, total: seen.append((done, total)))
    assert [s.key for s in result.samples] == [(f"p{i}", j) for i in range(6) for j in range(4)]
    assert seen == [(i, 24) for i in range(1, 25)]
    assert result.pass_at_1 == sum(s.correct for s in result.samples) / 24
    assert 0.5 < result.pass_at_1 < 1
    assert result.complete
    assert result.groups["level"].keys() == {"0", "1"}


def test_the_verifier_sees_the_prefill_and_the_engine_the_stops_of_the_template(pool: VerifierPool) -> None:
    engine = Adder()
    result = run(engine, pool)
    assert result.samples[0].completion.startswith("<think>0.")
    assert {(s.stop, s.stop_token_ids) for _, s in engine.calls} == {(("</answer>",), (0,))}
    assert len({s.seed for _, s in engine.calls}) == len(engine.calls) == 3  # 24 samples in batches of 10


def test_an_engine_that_reports_nothing_on_the_way_gives_the_same(pool: VerifierPool) -> None:
    assert untimed(run(Adder(reports=False), pool).samples) == untimed(run(Adder(), pool).samples)


def test_another_seed_gives_other_samples(pool: VerifierPool) -> None:
    assert untimed(run(Adder(), pool).samples) != untimed(run(Adder(), pool, seed=8).samples)


def test_a_run_killed_ten_times_gives_the_samples_of_one_that_was_not(pool: VerifierPool, tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.touch()
    kills = 0
    with path.open("a", encoding="utf-8") as file:
        for patience in [1, 1, 2, 2, 3, 3, 4, 5, 9, 12, 100]:
            try:
                result = run(
                    Adder(patience=patience),
                    pool,
                    done=read_samples(path),
                    on_sample=lambda s: (file.write(to_json(s) + "\n"), file.flush()),
                )
            except KeyboardInterrupt:
                kills += 1
                file.flush()
    assert kills == 10
    assert untimed(result.samples) == untimed(run(Adder(), pool).samples)
    assert len(read_samples(path)) == 24  # none written twice


def test_half_a_line_left_by_a_kill_is_not_read(pool: VerifierPool, tmp_path: Path) -> None:
    lines = [to_json(s) for s in run(Adder(), pool).samples]
    path = tmp_path / "samples.jsonl"
    path.write_text("\n".join(lines[:3]) + "\n" + lines[3][:40], encoding="utf-8")
    assert [s.key for s in read_samples(path)] == [("p0", 0), ("p0", 1), ("p0", 2)]
    path.write_text(lines[0][:40] + "\n" + lines[1] + "\n", encoding="utf-8")
    with pytest.raises(UserError, match="line 1"):
        read_samples(path)


def test_a_failed_completion_is_an_error_and_not_a_wrong_answer(pool: VerifierPool) -> None:
    class Flaky(Adder):
        def generate(self, *args: Any, **kwargs: Any) -> list[tuple[Completion, ...]]:
            groups = super().generate(args[0], args[1], args[2])
            gone = FailedCompletion(
                token_ids=(), text="", logprobs=(), finish_reason="length", error="500 after 5 tries"
            )
            return [(gone,), *groups[1:]]

    result = run(Flaky(), pool)
    assert result.error == 3 / 24  # the first of each of the three batches
    failed = [s for s in result.samples if s.failed]
    assert {s.outcome for s in failed} == {Outcome.ERROR}
    assert failed[0].reason == "500 after 5 tries"
    assert not any(s.truncated for s in failed)
    graded = {p.id: [s.correct for s in result.samples if s.problem_id == p.id and not s.failed] for p in PROBLEMS}
    assert result.pass_at_1 == pytest.approx(sum(sum(g) / len(g) for g in graded.values()) / 6)
    assert result.bounds[1] - result.bounds[0] == pytest.approx(3 / 24)
    assert not result.complete


def test_missing_doubled_and_foreign_samples_are_errors(pool: VerifierPool) -> None:
    samples = run(Adder(), pool).samples
    with pytest.raises(UserError, match=r"1 of 24 samples are missing \(first: sample 1 of 'p2'"):
        summarise(PROBLEMS, [s for s in samples if s.key != ("p2", 1)], 4)
    with pytest.raises(UserError, match="stands twice"):
        summarise(PROBLEMS, [*samples, samples[0]], 4)
    with pytest.raises(UserError, match="no problem of this benchmark"):
        summarise(PROBLEMS[:5], samples, 4)


def test_greedy_sampling_takes_one_sample(pool: VerifierPool) -> None:
    with pytest.raises(UserError, match="equal samples"):
        run(Adder(), pool, sampling=Sampling(max_tokens=8, temperature=0.0))
    assert len(run(Adder(), pool, sampling=Sampling(max_tokens=8, temperature=0.0), k=1).samples) == 6


def test_no_problems_is_an_error(pool: VerifierPool) -> None:
    with pytest.raises(UserError, match="no problems"):
        evaluate(
            [],
            engine=Adder(),
            tokenizer=None,
            template=Letters(),
            sampling=SAMPLING,
            k=1,
            pool=pool,
            verifier=ANSWER,
            seed=0,
        )


def test_a_verifier_that_fails_on_everything_stops_the_run(pool: VerifierPool) -> None:
    seen: list[int] = []
    with pytest.raises(UserError, match=r"failed on each of the first 20 samples.*verifiers check code"):
        run(Adder(), pool, verifier=VerifierSpec(name="code"), on_progress=lambda done, total: seen.append(done))
    assert 19 <= len(seen) <= 23  # these problems have no tests, which is an error and not a wrong answer
