"""Math and code in one run: what is drawn, and the figures of each source."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, cast

import pytest
from accelerate import Accelerator

from r1zero.algorithms.rewards import Reward
from r1zero.config import DataConfig, GRPOConfig, MixedSource, recipe
from r1zero.data.datasets import load_problems
from r1zero.errors import UserError
from r1zero.training.groups import GroupSampler
from r1zero.training.rollouts import Rollouts
from r1zero.training.step_metrics import Share, rollout_metrics


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
