"""The rollout of a step: this process's share of the next prompts, sampled and judged, refilled where DAPO asks for it.

Which prompts, and the seed, are functions of (run.seed, step, refill, process) and of how many were taken before.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import torch
from accelerate import Accelerator

from r1zero.algorithms.rewards import check_verifiers
from r1zero.config import RLConfig
from r1zero.data.order import mix, take
from r1zero.data.records import Problem
from r1zero.rollout.base import Sampling
from r1zero.training.groups import GroupSampler, ScoredGroup, Timed, untimed
from r1zero.training.step_metrics import Share


class Rollouts:
    """Draws the groups of each step from the stream of prompts that all processes share."""

    def __init__(
        self, config: RLConfig, accelerator: Accelerator, problems: Sequence[Problem], sampler: GroupSampler
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.problems = problems
        check_verifiers(problems)
        self.sources = [[p for p in problems if p.source == source.key] for source in config.data.sources]
        """The problems of each of several sources; of one source empty."""
        self.sampler = sampler
        self.consumed = 0
        """Prompts taken from the stream so far, by all processes."""

    def draw(self, step: int, timed: Timed = untimed) -> tuple[list[ScoredGroup], int]:
        """This process's share of the step's groups, and how many were sampled to get them.

        With dynamic sampling (arXiv 2503.14476 section 3.2) groups in which all or none are right are replaced by
        fresh ones, at most `max_refills` times; it looks at the accuracy outcome, never at the shaped reward.
        """
        algorithm = self.config.algorithm
        wanted = algorithm.prompts_per_step // self.accelerator.num_processes
        groups: list[ScoredGroup] = []
        sampled = 0
        for refill in range(1 + (algorithm.max_refills if algorithm.dynamic_sampling else 0)):
            fresh = self.sampler.draw(
                self._next(wanted), self.sampling(step, refill), algorithm.group_size, timed=timed
            )
            sampled += len(fresh)
            if algorithm.drop_truncated:
                fresh = [_without_truncated(group) for group in fresh]
            groups += [g for g in fresh if _mixed(g)] if algorithm.dynamic_sampling else fresh
            # All processes stop refilling together: the stream of prompts is shared.
            enough = torch.tensor(float(len(groups) >= wanted), device=self.accelerator.device)
            if bool(self.accelerator.reduce(enough, "mean") >= 1.0):
                break
        return groups[:wanted], sampled

    def _next(self, count: int) -> list[Problem]:
        """This process's next `count` prompts; every process takes as many."""
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        start, seed = self.consumed, self.config.run.seed
        self.consumed += count * world
        if self.sources:
            weights = [source.weight for source in self.config.data.sources]
            places = mix([len(its) for its in self.sources], weights, start, count * world, seed)[rank::world]
            return [self.sources[source][i] for source, i in places]
        return [self.problems[i] for i in take(len(self.problems), start, count * world, seed)[rank::world]]

    def sampling(self, step: int, refill: int = 0) -> Sampling:
        """The step's sampling parameters, seed included."""
        seed = random.Random(f"{self.config.run.seed}/{step}/{refill}/{self.accelerator.process_index}").getrandbits(31)
        return replace(self.sampler.sampling(self.config.sampling, seed), max_tokens=max_tokens_at(self.config, step))


def max_tokens_at(config: RLConfig, step: int) -> int:
    """The completion limit at `step`, after the length switches up to it."""
    reached = [switch for switch in config.length_switches if switch.step <= step]
    return max(reached, key=lambda switch: switch.step).max_tokens if reached else config.sampling.max_tokens


def share_of(groups: Sequence[ScoredGroup], sampled: int) -> Share:
    """What the step's figures need to know of one process's groups."""
    return Share(
        rewards=[list(group.rewards) for group in groups],
        num_tokens=[[c.num_tokens for c in group.completions] for group in groups],
        truncated=[[c.truncated for c in group.completions] for group in groups],
        sampled=sampled,
        sources=[group.problem.source for group in groups],
    )


def _without_truncated(group: ScoredGroup) -> ScoredGroup:
    """DAPO's overlong filtering: a completion cut off takes no part, whatever its reward."""
    rewards = [
        replace(reward, keep=False, value=None) if completion.truncated else reward
        for completion, reward in zip(group.completions, group.rewards, strict=True)
    ]
    return replace(group, rewards=tuple(rewards))


def _mixed(group: ScoredGroup) -> bool:
    """Some right, some not: what dynamic sampling keeps."""
    known = [r.correct for r in group.rewards if r.keep and r.correct is not None]
    return any(known) and not all(known)
