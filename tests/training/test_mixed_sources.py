"""Math and code in one run: what is drawn, and the figures of each source."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from accelerate import Accelerator

from r1zero.algorithms.rewards import Reward
from r1zero.config import DataConfig, GRPOConfig, MixedSource, recipe
from r1zero.data.datasets import load_problems
from r1zero.errors import UserError
from r1zero.runs.folder import read_rollouts
from r1zero.training.groups import GroupSampler
from r1zero.training.grpo import train_grpo
from r1zero.training.on_policy import prepare
from r1zero.training.rollouts import Rollouts
from r1zero.training.step_metrics import Share, rollout_metrics
from tests.tiny_models import save_model, tiny_llama


def rollouts(**second: Any) -> Rollouts:
    config = recipe.load("tiny-cpu")
    assert isinstance(config, GRPOConfig)
    sources = [
        MixedSource(source="tiny:arithmetic", size=30, name="sums", weight=3),
        MixedSource(source="tiny:arithmetic", size=7, name="more", **second),
    ]
    config = dataclasses.replace(config, data=DataConfig(sources=sources))
    # Only what is drawn is looked at: nothing is sampled.
    return Rollouts(config, Accelerator(cpu=True), load_problems(config.data), cast(GroupSampler, None))


def test_a_step_has_each_source_in_its_share() -> None:
    drawn = rollouts()._next(32)
    assert Counter(problem.source for problem in drawn) == {"sums": 24, "more": 8}


def test_a_resumed_run_goes_on_with_the_order_of_one_that_was_not_killed() -> None:
    whole, resumed = rollouts(), rollouts()
    steps = [[p.id for p in whole._next(8)] for _ in range(6)]
    resumed.consumed = 8 * 3
    assert [[p.id for p in resumed._next(8)] for _ in range(3)] == steps[3:]


def test_an_unknown_verifier_of_a_source_is_refused_before_the_first_step() -> None:
    with pytest.raises(UserError, match="did you mean 'math'"):
        rollouts(verifier="maths")


def reward(value: float) -> Reward:
    return Reward(value=value, keep=True, parts={}, correct=value > 0.5)


def test_figures_come_by_source_where_there_is_more_than_one() -> None:
    def share(sources: list[str]) -> Share:
        return Share(
            rewards=[[reward(1.0), reward(0.2)], [reward(0.0), reward(0.0)], [reward(1.0), reward(1.0)]],
            num_tokens=[[2, 4], [6, 6], [1, 3]],
            truncated=[[False, False]] * 3,
            sampled=3,
            sources=sources,
        )

    figures = rollout_metrics([share(["math", "code", "math"])])
    assert figures["source/math/groups"] == 2
    assert figures["source/math/reward"] == pytest.approx(3.2 / 4)
    assert figures["source/math/accuracy"] == 0.75
    assert figures["source/math/tokens"] == 2.5
    assert (figures["source/code/reward"], figures["source/code/accuracy"], figures["source/code/tokens"]) == (0, 0, 6)
    assert not any(key.startswith("source/") for key in rollout_metrics([share(["math"] * 3)]))


ROWS = {
    "math": [{"problem": f"{i}+{i}=", "answer": str(2 * i)} for i in range(5)],
    "code": [{"problem": f"def f{i}", "tests": f"assert f{i}() == {i}"} for i in range(3)],
    "instructions": [
        {"problem": f"say {i}", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]} for i in range(3)
    ],
}


def run_mixed(folder: Path, name: str, steps: int, *, resume: bool = False) -> list[list[str]]:
    """Math, code and instructions at 2 : 1 : 1 on a random model; the problems of each step, in their order."""
    model = folder / "model"
    if not model.exists():
        model.mkdir()
        save_model(model, tiny_llama())
    sources = []
    for kind, rows in ROWS.items():
        file = folder / f"{kind}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        sources.append(MixedSource(source=str(file), name=kind, weight=2 if kind == "math" else 1, verifier=kind))
    config = recipe.load(
        "tiny-cpu",
        [
            *("--model.path", str(model), "--run.root", str(folder), "--run.name", name, "--run.steps", str(steps)),
            *("--engine.name", "transformers", "--sampling.max_tokens", "8", "--run.trackers", "[]"),
            *("--algorithm.prompts_per_step", "4", "--algorithm.group_size", "2", "--reward.workers", "1"),
            *("--run.checkpoint_every", "1", "--run.threads", "1", "--template", "plain"),
        ],
    )
    assert isinstance(config, GRPOConfig)
    config = dataclasses.replace(
        config,
        data=DataConfig(sources=sources),
        eval=dataclasses.replace(config.eval, data=DataConfig()),
    )
    train_grpo(config, resume=resume)
    files = sorted((folder / name / "rollouts").iterdir())
    return [[row["problem_id"] for row in read_rollouts(file)] for file in files]


def test_math_code_and_instructions_train_in_one_run_that_resumes_in_the_same_order(tmp_path: Path) -> None:
    whole = run_mixed(tmp_path, "whole", 4)
    assert len(whole) == 4
    for step in whole:
        assert Counter(name.split("/")[0] for name in step) == {"math": 4, "code": 2, "instructions": 2}
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert {f"source/{kind}/accuracy" for kind in ROWS} <= json.loads(lines[-1]).keys()
    assert run_mixed(tmp_path, "cut", 2) == whole[:2]
    assert run_mixed(tmp_path, "cut", 4, resume=True) == whole


def test_an_unknown_verifier_is_refused_before_a_model_is_looked_for(tmp_path: Path) -> None:
    config = recipe.load("tiny-cpu", ["--model.path", str(tmp_path / "none"), "--data.verifier", "maths"])
    assert isinstance(config, GRPOConfig)
    with pytest.raises(UserError, match="did you mean 'math'"):
        prepare(config)


def test_what_the_data_repeats_and_what_it_was_checked_against_is_said(tmp_path: Path) -> None:
    file, other = tmp_path / "sums.jsonl", tmp_path / "other.jsonl"
    sums = [{"problem": text, "answer": "2"} for text in ("1+1=", "1 + 1 =", "1+1=")]
    file.write_text("".join(json.dumps(row) + "\n" for row in sums), encoding="utf-8")
    other.write_text(json.dumps({"problem": "How many ways are there to cut a pie in two?", "answer": "1"}) + "\n")
    model = tmp_path / "model"
    model.mkdir()
    save_model(model, tiny_llama())
    config = recipe.load("tiny-cpu", ["--model.path", str(model), "--data.source", str(file), "--template", "plain"])
    assert isinstance(config, GRPOConfig)
    held_out = dataclasses.replace(config.eval, data=DataConfig(), decontaminate=[str(other)])
    notes = prepare(dataclasses.replace(config, eval=held_out)).notes
    assert notes[0].startswith("1 of 3 problems repeat an earlier question")
    assert notes[1].startswith("0 of 3 training problems share ten words in a row with")
