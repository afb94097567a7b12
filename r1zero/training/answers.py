"""Answers to held-out problems, scored by verifiers: what SFT and DPO show of a policy besides its loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.algorithms.rewards import Reward, Rewarder
from r1zero.config import DPOConfig, SamplingConfig, SFTConfig
from r1zero.data.records import Completion, Problem
from r1zero.eval.statistics import clustered_mean
from r1zero.models.policy import compute_dtype
from r1zero.prompts import Template
from r1zero.rollout import make_engine
from r1zero.rollout.base import Engine
from r1zero.training.groups import GroupSampler, verifier_pool
from r1zero.training.inputs import Base, longest_prompt


@dataclass(frozen=True, kw_only=True)
class Answers:
    """k answers to each problem, and what they earned."""

    completions: list[tuple[Completion, ...]]
    rewards: list[tuple[Reward, ...]]

    def values(self) -> list[list[float | None]]:
        """Reward of each answer of each problem; None where a verifier could not say."""
        return [[reward.value for reward in group] for group in self.rewards]


class Answerer:
    """Samples answers to a fixed set of problems. The seed is fixed too, so that two policies draw alike."""

    def __init__(
        self,
        config: SFTConfig | DPOConfig,
        problems: Sequence[Problem],
        *,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        template: Template,
        rewarder: Rewarder,
    ) -> None:
        self.config = config
        self.problems = problems
        self.engine = engine
        self.sampler = GroupSampler(
            engine=engine,
            tokenizer=tokenizer,
            template=template,
            reward=config.reward,
            rewarder=rewarder,
            scorers={},  # these stages refuse reward models as judges
        )

    def answer(self, model: nn.Module) -> Answers:
        """Sample from `model` and score; scoring overlaps generation."""
        settings = self.config.eval
        self.engine.sync_weights(model)
        wanted = SamplingConfig(
            max_tokens=settings.max_tokens or self.config.sampling.max_tokens,
            temperature=settings.temperature,
            top_p=settings.top_p,
        )
        groups = self.sampler.draw(self.problems, self.sampler.sampling(wanted, settings.seed), settings.samples)
        return Answers(completions=[group.completions for group in groups], rewards=[group.rewards for group in groups])

    def figures(self, answers: Answers) -> dict[str, float]:
        """`eval/pass@1` (the first term) with its 95% interval over problems, `eval/reward`, the share of `correct` of
        each term, length and truncation. A mean over nothing is left out."""
        flat = [reward for group in answers.rewards for reward in group]
        completions = [c for group in answers.completions for c in group]
        figures = {
            "eval/tokens": sum(c.num_tokens for c in completions) / len(completions),
            "eval/truncated": sum(c.truncated for c in completions) / len(completions),
        }
        values = [reward.value for reward in flat if reward.value is not None]
        if values:
            figures["eval/reward"] = sum(values) / len(values)
        for term in self.config.reward.terms:
            figures[f"eval/{term.key}/correct"] = sum(r.parts[term.key].correct for r in flat) / len(flat)
        known = [[float(r.correct) for r in group if r.correct is not None] for group in answers.rewards]
        means = [sum(group) / len(group) for group in known if group]
        if means:
            mean = clustered_mean(means, sum(map(len, known)) / len(means))
            figures |= {"eval/pass@1": mean.mean, "eval/ci95_low": mean.ci95[0], "eval/ci95_high": mean.ci95[1]}
        return figures


@contextmanager
def answering(
    config: SFTConfig | DPOConfig, base: Base, questions: Sequence[Problem], model: PreTrainedModel, weights: Path
) -> Iterator[Answerer | None]:
    """What answers the held-out problems, None where there are none; its engine and verifiers end with the block."""
    if not questions:
        yield None
        return
    with ExitStack() as stack:
        pool = stack.enter_context(verifier_pool(config.reward))
        engine = make_engine(
            config.engine,
            str(weights),
            compute_dtype=compute_dtype(config.model),
            max_context=longest_prompt(questions, base) + (config.eval.max_tokens or config.sampling.max_tokens),
            model=model,
            tokenizer=base.tokenizer,
        )
        stack.callback(engine.close)
        yield Answerer(
            config,
            questions,
            engine=engine,
            tokenizer=base.tokenizer,
            template=base.template,
            rewarder=Rewarder(config.reward, pool),
        )


def win_rate(ours: Sequence[Sequence[float | None]], theirs: Sequence[Sequence[float | None]]) -> dict[str, float]:
    """`eval/win_rate` of our answers' rewards against theirs, problem by problem, with its 95% interval over problems.

    Each of our answers meets each of theirs to the same problem; a tie is half a win. `eval/ties` is their share.
    """
    means, ties, meetings = [], 0, 0
    for mine, other in zip(ours, theirs, strict=True):
        pairs = [(a, b) for a in mine if a is not None for b in other if b is not None]
        if pairs:
            equal = sum(a == b for a, b in pairs)
            means.append((sum(a > b for a, b in pairs) + 0.5 * equal) / len(pairs))
            ties, meetings = ties + equal, meetings + len(pairs)
    if not means:
        return {}
    mean = clustered_mean(means, meetings / len(means))
    return {
        "eval/win_rate": mean.mean,
        "eval/win_rate_low": mean.ci95[0],
        "eval/win_rate_high": mean.ci95[1],
        "eval/ties": ties / meetings,
    }


def sample_rows(problems: Sequence[Problem], answers: Answers) -> list[dict[str, Any]]:
    """One row an answer, for the run's `eval/` folder."""
    return [
        {
            "problem_id": problem.id,
            "prompt": problem.prompt,
            "completion": completion.text,
            "num_tokens": completion.num_tokens,
            "finish_reason": completion.finish_reason,
            "reward": reward.value,
            "verdicts": {name: str(verdict.outcome) for name, verdict in reward.parts.items()},
        }
        for problem, group, rewards in zip(problems, answers.completions, answers.rewards, strict=True)
        for completion, reward in zip(group, rewards, strict=True)
    ]
