"""Rejection sampling as a run: the files, that SFT and DPO read them, and that a kill leaves the same bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r1zero import prompts
from r1zero.config import DemonstrationDataConfig, PreferenceDataConfig, RejectionSamplingConfig, recipe
from r1zero.data.preferences import load_demonstrations, load_rankings
from r1zero.errors import UserError
from r1zero.models.policy import load_tokenizer
from r1zero.runs.folder import RunFolder, read_rollouts
from r1zero.training import rejection
from r1zero.training.rejection import train_rejection_sampling
from tests.tiny_models import save_model, tiny_llama

Build = Callable[..., RejectionSamplingConfig]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    model = save_model(tmp_path / "model", tiny_llama(layers=1, scale=0.3))
    rows = [{"problem": f"{i}+{i}=", "answer": str(2 * i), "id": f"p{i}"} for i in range(12)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(name: str, **settings: Any) -> RejectionSamplingConfig:
        base: dict[str, Any] = {
            "model": {"path": model, "dtype": "float32"},
            "data": {"source": str(tmp_path / "problems.jsonl")},
            "template": "plain",
            "samples": 8,
            "batch_problems": 4,
            "sampling": {"max_tokens": 64},
            "reward": {"workers": 1, "terms": [{"verifier": "tests.some_verifiers:short", "name": "short"}]},
            "select": {"require": None, "per_problem": 1},
            "pairs": {"per_problem": 1, "min_gap": 0.0, "max_length_ratio": 0.0, "balance_lengths": False},
            "held_out_share": 0.4,
            "run": {"name": name, "root": str(tmp_path), "threads": 1},
        }
        config = recipe.load("rejection-tiny-cpu", settings=recipe.merged(base, settings))
        assert isinstance(config, RejectionSamplingConfig)
        return config

    return make


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def product(config: RejectionSamplingConfig) -> dict[str, Any]:
    folder = RunFolder(config.run.root, config.run.name).path
    files = {name: (folder / name).read_bytes() for name in ("sft.jsonl", "pairs.jsonl", "result.json")}
    return files | {path.name: read_rollouts(path) for path in sorted(folder.glob("rollouts/*.zst"))}


def test_the_files_hold_what_the_samples_say_and_every_sample_is_accounted_for(build: Build) -> None:
    config = build("run")
    assert train_rejection_sampling(config) == Path(config.model.path)
    found = product(config)
    result = json.loads(found["result.json"])
    samples = {(r["problem_id"], r["sample"]): r for name in found if name.endswith(".zst") for r in found[name]}
    assert len(samples) == result["samples"] == 96
    demonstrations = rows_of(Path(config.run.root) / "run" / "sft.jsonl")
    assert result["kept"] == len(demonstrations) > 0
    assert result["kept"] + sum(result["dropped"].values()) == 96
    for row in demonstrations:
        source = samples[row["problem_id"], row["sample"]]
        assert (row["prompt"], row["response"]) == (source["question"], source["completion"])
        assert (row["reward"], row["verdicts"]) == (source["reward"], {"short": "correct"})
        assert source["finish_reason"] == "stop"
    for row in rows_of(Path(config.run.root) / "run" / "pairs.jsonl"):
        better, worse = row["chosen_judgement"], row["rejected_judgement"]
        assert row["gap"] == better["reward"] - worse["reward"] > 0
        assert samples[row["problem_id"], worse["sample"]]["completion"] == row["rejected"]


def test_sft_and_dpo_read_the_files_as_they_are_each_half_for_itself(build: Build) -> None:
    config = build("run")
    folder = Path(config.run.root) / "run"
    words, plain = load_tokenizer(train_rejection_sampling(config)), prompts.load("plain")
    for split in ("train", "test"):
        chosen = {"split": [split]}
        path = str(folder / "sft.jsonl")
        sft = load_demonstrations(DemonstrationDataConfig(source=path, filter=chosen), plain, words)
        assert len(sft.items) == sum(row["split"] == split for row in rows_of(folder / "sft.jsonl")) > 0
    pairs = load_rankings(PreferenceDataConfig(source=str(folder / "pairs.jsonl")), plain, words)
    assert len(pairs.items) == len(rows_of(folder / "pairs.jsonl")) > 0
    assert all(ranking.margin is None for ranking in pairs.items)


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = build("whole")
    train_rejection_sampling(whole)
    killed = build("killed")

    def dies(where: Any, name: str, calls: int, *, after: bool = False) -> None:
        """`where.name` is a kill at its `calls`-th call, before or after it has done its work."""
        real, count = getattr(where, name), 0

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == calls and not after:
                raise KeyboardInterrupt
            value = real(*args, **kwargs)
            if count == calls:
                raise KeyboardInterrupt
            return value

        with monkeypatch.context() as patch:
            patch.setattr(where, name, wrapped)
            with pytest.raises(KeyboardInterrupt):
                train_rejection_sampling(killed, resume=RunFolder(killed.run.root, "killed").exists)

    dies(RunFolder, "save_rollouts", 2)  # batch 2 sampled, not written
    dies(RunFolder, "save_rollouts", 1, after=True)  # batch 2 written, its metrics not
    dies(rejection, "write_atomically", 1)  # all sampled, no file
    dies(rejection, "write_atomically", 2, after=True)  # both files, not said to be done
    train_rejection_sampling(killed, resume=True)
    assert product(killed) == product(whole)
    assert [row["step"] for row in RunFolder(killed.run.root, "killed").metrics()] == [1, 2, 3]


def test_rows_of_another_set_are_added_as_they_are(build: Build, tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text('{"q": "hi", "a": "hello"}\n')
    extra = {"source": str(tmp_path / "chat.jsonl"), "prompt_field": "q", "response_field": "a"}
    train_rejection_sampling(build("run", extra=extra))
    assert rows_of(tmp_path / "run" / "sft.jsonl")[-1] == {"prompt": "hi", "response": "hello"}


def test_mistakes_are_named_before_anything_is_written(build: Build, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'shrt' is no reward term"):
        build("run", select={"require": ["shrt"]})
    with pytest.raises(UserError, match="samples that are all the same"):
        build("run", sampling={"temperature": 0.0})
    with pytest.raises(UserError, match="no reward model"):
        train_rejection_sampling(build("run", reward={"models": [{"path": str(tmp_path / "none")}]}))
    assert not (tmp_path / "run").exists()
    train_rejection_sampling(build("run"))
    with pytest.raises(UserError, match=r"begun with other settings: samples 8, now 7"):
        train_rejection_sampling(build("run", samples=7), resume=True)
