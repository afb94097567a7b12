"""What GRPO and PPO share: a step from its rollout (`rollouts.py`) to its optimizer steps, and the state of a run.

`PolicyGradient` is the algorithm but for its advantages; `grpo.py` and `ppo.py` have those, and their algorithm boxes.
Everything random is a function of (run.seed, step), so a resumed run needs counters, weights and optimizers alone.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from r1zero.algorithms.rewards import Rewarder
from r1zero.data.records import Problem
from r1zero.models.policy import Policy, Row
from r1zero.models.reward_model import ScoreRows
from r1zero.prompts import Template
from r1zero.rollout.base import Engine
from r1zero.rollout.weights import named_weights
from r1zero.training.batch import StepBatch, sampled_batch
from r1zero.training.groups import GroupSampler, ScoredGroup
from r1zero.training.policy_update import C, PolicyUpdate
from r1zero.training.rollouts import Rollouts, share_of
from r1zero.training.step_metrics import Share, advantage_metrics, rollout_metrics


class PolicyGradient(PolicyUpdate[C], ABC):
    """The algorithm: `PolicyUpdate` with the rollouts before it, the sync after it and the state; knows no run folder.

    Prompts, completions and rewards of a step are split over the processes of `accelerator`; every denominator and
    every batch statistic is over all of them.
    """

    def __init__(
        self,
        config: C,
        *,
        accelerator: Accelerator,
        policy: Policy,
        reference: Policy | None,
        tokenizer: PreTrainedTokenizerBase,
        template: Template,
        problems: Sequence[Problem],
        engine: Engine,
        rewarder: Rewarder,
        scorers: Mapping[str, ScoreRows] | None = None,
    ) -> None:
        self.scorers = scorers or {}
        """Reward models by their term's name."""
        sampler = GroupSampler(
            engine=engine,
            tokenizer=tokenizer,
            template=template,
            reward=config.reward,
            rewarder=rewarder,
            scorers=self.scorers,
        )
        super().__init__(
            config,
            accelerator=accelerator,
            policy=policy,
            reference=reference,
            tokenizer=tokenizer,
            template=template,
            engine=engine,
            rollouts=Rollouts(config, accelerator, problems, sampler),
        )
        self.reference_step = 0
        """The step whose policy is the reference; 0: the model the run began with."""

    def step(self, step: int) -> tuple[dict[str, float], list[ScoredGroup], list[list[float]]]:
        """One step of the algorithm box; `step` counts from 1.

        Returns its metrics, this process's groups, and the advantage of each of their completions (mean over tokens).
        """
        self.seconds = {}
        began = time.perf_counter()
        groups, sampled = self.rollouts.draw(step, self._timed)
        with self._timed("sync"):
            self.engine.sleep()
        shares: list[Share] = gather_object([share_of(groups, sampled)])
        metrics = rollout_metrics(shares)
        with self._timed("advantages"):
            rows = [
                Row(prompt_ids=group.prompt_ids, completion_ids=completion.token_ids)
                for group in groups
                for completion in group.completions
            ]
            batch = self.advantages(groups, rows)
        metrics |= batch.figures
        own = [float(a[m].mean()) if bool(m.any()) else 0.0 for a, m in zip(batch.advantages, batch.mask, strict=True)]
        kept = [a for a, m in zip(own, batch.mask, strict=True) if bool(m.any())]
        metrics |= advantage_metrics(gather_object(kept))
        completions = [completion for group in groups for completion in group.completions]
        self.idle.trim()
        metrics |= self.update(step, rows, batch, completions)
        self.after_update(step, metrics)
        self.sync()
        self.seconds["step"] = time.perf_counter() - began
        metrics |= {f"time/{name}": seconds for name, seconds in self.seconds.items()}
        tokens = sum(n for share in shares for group in share.num_tokens for n in group)
        metrics["time/tokens_per_second"] = tokens / self.seconds["step"]
        sizes = [len(group.completions) for group in groups]
        flat = iter(own)
        return metrics, groups, [[next(flat) for _ in range(size)] for size in sizes]

    def after_update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Every so many steps the policy's weights of now, LoRA merged, become the reference's."""
        every = self.config.algorithm.reference_every
        if not isinstance(self.reference, Policy) or not every or step % every:
            return
        own = dict(self.reference.model.named_parameters())
        with torch.no_grad():
            for name, tensor in named_weights(self.model.model):
                own[name].copy_(tensor)
        self.reference_step = step

    # -- advantages ----------------------------------------------------------------------------------------------

    @abstractmethod
    def advantages(self, groups: Sequence[ScoredGroup], rows: Sequence[Row]) -> StepBatch:
        """Everything the loss needs: `batch`, with the algorithm's advantages."""

    def batch(self, groups: Sequence[ScoredGroup], rows: Sequence[Row], *, with_old: bool) -> StepBatch:
        """All but the advantages, one entry a row, right-padded to the longest completion of the step.

        with_old: the old logprobs are asked for, even where the loss can do without.
        """
        algorithm = self.config.algorithm
        batch = sampled_batch(groups)
        # The policy is the one that sampled until the first optimizer step; only a later one needs its old logprobs.
        steps = algorithm.minibatches * algorithm.epochs
        corrected = algorithm.importance_correction != "none"
        old = None
        if with_old or (steps > 1 and corrected):
            old = self._logprobs(self.model, rows, batch.mask)
        elif steps > 1:
            old = batch.engine_logprobs
        reference = self.ref_logprobs(rows, batch.mask) if self.reference is not None else None
        return replace(batch, old_logprobs=old, ref_logprobs=reference)

    def held_out_figures(self, rows: Sequence[Row], truncated: Sequence[bool]) -> dict[str, float]:
        """What can be said of the policy's answers to held-out problems besides their verdicts."""
        figures = {}
        for term in self.config.reward.models if rows else ():
            scores = [
                term.truncated_score if cut and term.truncated == "penalty" else score
                for score, cut in zip(self.scorers[term.name](rows), truncated, strict=True)
            ]
            figures[f"eval/{term.name}/score"] = sum(scores) / len(scores)
        return figures

    def sync(self) -> None:
        """Hand the policy's weights to the engine."""
        with self._timed("sync"):
            self.idle.release()
            self.engine.wake()
            self.engine.sync_weights(self.model.model)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """`(tensors, counters)` that with the weights make the next step what it would have been."""
        tensors: dict[str, Any] = {"optimizer": self.optimizer.state_dict()}
        if self.config.model.lora_rank:
            # The checkpoint's weights are merged; the adapters apart cannot be had back from them.
            tensors["trained"] = {name: p.detach() for name, p in self.model.named_parameters() if p.requires_grad}
        if self.reference is not None and self.reference_step:
            tensors["reference"] = self.reference.state_dict()
        counters = {
            "consumed": self.rollouts.consumed,
            "reference_step": self.reference_step,
            "num_updates": self.num_updates,
            "first_mismatch": self.guard.first_mean_abs,
        }
        return tensors, counters

    def load_state(self, tensors: dict[str, Any], state: dict[str, Any]) -> None:
        """Take over what `state` gave; the policy's weights are loaded already, but for LoRA's adapters."""
        self.optimizer.load_state_dict(tensors["optimizer"])
        if "trained" in tensors:
            self.model.load_state_dict(tensors["trained"], strict=False)
        self.rollouts.consumed, self.reference_step = state["consumed"], state["reference_step"]
        self.num_updates, self.guard.first_mean_abs = state["num_updates"], state["first_mismatch"]
        if "reference" in tensors and self.reference is not None:
            self.reference.load_state_dict(tensors["reference"])
        self.idle.put(*self.optimizers)
