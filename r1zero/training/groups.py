"""Groups of completions, sampled and judged: what the policy-gradient stages learn from, rejection sampling keeps from,
and evaluations of SFT, DPO and pipelines measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from r1zero.algorithms.rewards import Pending, Reward, Rewarder, with_scores
from r1zero.config import EngineConfig, ModelConfig, RewardConfig, SamplingConfig
from r1zero.data.records import Completion, Problem
from r1zero.errors import UserError
from r1zero.models.policy import Row, compute_dtype
from r1zero.models.reward_model import Scorer, ScoreRows, find_reward_model
from r1zero.prompts import Template
from r1zero.rollout import engine_name, make_engine
from r1zero.rollout.base import Engine, Sampling
from r1zero.runs.folder import plain
from r1zero.verifiers import VerifierPool, VerifierSpec, resolve

SCORED_TOKENS = 16384
"""Tokens, padding included, that a reward model scores together."""


Timed = Callable[[str], AbstractContextManager[None]]
"""Adds the seconds of its block to those of a name: rollout, verify (what is left of it then) or reward_model."""


def untimed(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, kw_only=True)
class ScoredGroup:
    """One prompt's completions with their rewards."""

    problem: Problem
    prompt_ids: tuple[int, ...]
    completions: tuple[Completion, ...]
    rewards: tuple[Reward, ...]


@dataclass(frozen=True, kw_only=True)
class GroupSampler:
    """Samples from an engine and judges."""

    engine: Engine
    tokenizer: PreTrainedTokenizerBase
    template: Template
    reward: RewardConfig
    rewarder: Rewarder
    scorers: Mapping[str, ScoreRows]
    """Reward models by the name of their term."""

    def sampling(self, config: SamplingConfig, seed: int) -> Sampling:
        """The parameters of a call, with the template's ends."""
        return Sampling(
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            min_p=config.min_p,
            stop_token_ids=tuple(self.template.stop_token_ids(self.tokenizer)),
            stop=tuple(self.template.stop),
            seed=seed,
        )

    def draw(
        self, problems: Sequence[Problem], sampling: Sampling, n: int, *, timed: Timed = untimed
    ) -> list[ScoredGroup]:
        """`n` judged completions of each problem; judging by verifiers overlaps generation."""
        texts = [self.template.render(p.prompt, self.tokenizer) for p in problems]
        prompts = [tuple(self.template.encode(p.prompt, self.tokenizer)) for p in problems]
        prefill = self.template.turn_prefill(self.tokenizer)
        pending: dict[tuple[int, int], Pending] = {}

        def judge(i: int, j: int, completion: Completion) -> None:
            pending[i, j] = self.rewarder.submit(problems[i], texts[i], completion, prefill)

        with timed("rollout"):
            groups = self.engine.generate(prompts, sampling, n, judge)
        with timed("verify"):
            rewards = self.rewarder.collect([pending[i, j] for i in range(len(problems)) for j in range(n)])
        if self.scorers:
            flat = [(prompt, c) for prompt, group in zip(prompts, groups, strict=True) for c in group]
            rows = [Row(prompt_ids=prompt, completion_ids=c.token_ids) for prompt, c in flat]
            with timed("reward_model"):
                scores = {name: scorer(rows) for name, scorer in self.scorers.items()}
            rewards = with_scores(self.reward.models, rewards, scores, [c.truncated for _, c in flat])
        return [
            ScoredGroup(
                problem=problems[i],
                prompt_ids=prompts[i],
                completions=groups[i],
                rewards=tuple(rewards[i * n : (i + 1) * n]),
            )
            for i in range(len(problems))
        ]


def check_judges(reward: RewardConfig, engine: EngineConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises UserError for verifiers, reward models or an engine that are not there."""
    for term in reward.terms:
        resolve(VerifierSpec(name=term.verifier, options=term.options))
    for model in reward.models:
        find_reward_model(model.path, tokenizer)
    engine_name(engine)


def verifier_pool(reward: RewardConfig) -> VerifierPool:
    """The worker processes that judge; they end with its block."""
    return VerifierPool(reward.workers or None, reward.deadline_seconds, int(reward.memory_gib * 2**30))


@contextmanager
def group_sampler(
    *,
    path: Path,
    model: ModelConfig,
    tokenizer: PreTrainedTokenizerBase,
    template: Template,
    engine: EngineConfig,
    reward: RewardConfig,
    max_context: int,
    threads: int,
) -> Iterator[GroupSampler]:
    """A sampler of the model in `path`; engine, verifiers and reward models end with the block.

    Raises UserError for more than one process: engines spread over GPUs by engine.tensor_parallel.
    """
    transformers.utils.logging.disable_progress_bar()
    dtype = compute_dtype(model)
    accelerator = Accelerator(mixed_precision="bf16" if dtype == torch.bfloat16 else "no")
    if accelerator.num_processes > 1:
        raise UserError(f"sampling runs on one process, and {accelerator.num_processes} were started")
    with ExitStack() as stack:
        pool = stack.enter_context(verifier_pool(reward))
        live = make_engine(engine, str(path), compute_dtype=dtype, max_context=max_context, tokenizer=tokenizer)
        stack.callback(live.close)
        if accelerator.device.type == "cpu":  # after the engine, which may have set its own
            torch.set_num_threads(threads or os.cpu_count() or 1)
        scorers = {
            term.name: Scorer(
                find_reward_model(term.path, tokenizer), term, model, accelerator, max_tokens=SCORED_TOKENS
            )
            for term in reward.models
        }
        yield GroupSampler(
            engine=live,
            tokenizer=tokenizer,
            template=template,
            reward=reward,
            rewarder=Rewarder(reward, pool),
            scorers=scorers,
        )


def completion_rows(
    groups: Sequence[ScoredGroup], template: Template, tokenizer: PreTrainedTokenizerBase
) -> Iterator[dict[str, Any]]:
    """A row a completion, as it is kept on disk: what was asked, what was said, what was said of it."""
    prefill = template.turn_prefill(tokenizer)
    for group in groups:
        prompt = template.render(group.problem.prompt, tokenizer)
        for index, (completion, reward) in enumerate(zip(group.completions, group.rewards, strict=True)):
            yield {
                "problem_id": group.problem.id,
                "question": group.problem.prompt,
                "answer": group.problem.answer,
                "data": plain(group.problem.data),
                "prompt": prompt,
                "sample": index,
                "completion": prefill + completion.text,
                "finish_reason": completion.finish_reason,
                "num_tokens": completion.num_tokens,
                "verdicts": {
                    name: {
                        "outcome": str(verdict.outcome),
                        "score": verdict.score,
                        "reason": verdict.reason,
                        "extracted": verdict.extracted,
                    }
                    for name, verdict in reward.parts.items()
                },
                "scores": dict(reward.scores),
                "reward": reward.value,
            }
