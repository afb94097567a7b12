"""What GRPO and PPO share: a step from its rollout (`rollouts.py`) to its optimizer steps, and the state of a run.

`PolicyGradient` is the algorithm but for its advantages; `grpo.py` and `ppo.py` have those, and their algorithm boxes.
Everything random is a function of (run.seed, step), so a resumed run needs counters, weights and optimizers alone.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, Generic, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from r1zero.algorithms import losses
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import RLConfig
from r1zero.data.records import Completion, Problem
from r1zero.models.policy import MicroBatch, Policy, Row, freeze
from r1zero.models.reward_model import ScoreRows
from r1zero.prompts import Template
from r1zero.rollout.base import Engine
from r1zero.rollout.mismatch import MismatchGuard, combined, end_tokens, logits_alone
from r1zero.rollout.mismatch_causes import Cause, Scored
from r1zero.rollout.weights import named_weights
from r1zero.training.batch import StepBatch, sampled_batch
from r1zero.training.groups import GroupSampler, ScoredGroup
from r1zero.training.objective import objective
from r1zero.training.offload import Idle, Thing
from r1zero.training.parallel import empty_backward, everyone, no_gradient_exchange, step_figures, step_totals
from r1zero.training.rollouts import Rollouts, max_tokens_at, share_of
from r1zero.training.step_metrics import Share, advantage_metrics, rollout_metrics
from r1zero.training.updater import adamw, clipped_step, learning_rate

C = TypeVar("C", bound=RLConfig)


class PolicyGradient(ABC, Generic[C]):
    """The algorithm: holds the policy, the reference, the optimizer and the engine; knows no run folder.

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
        self.config = config
        self.accelerator = accelerator
        self.tokenizer = tokenizer
        self.template = template
        self.engine = engine
        self.scorers = scorers or {}
        """Reward models by their term's name."""
        self.rollouts = Rollouts(
            config,
            accelerator,
            problems,
            GroupSampler(
                engine=engine,
                tokenizer=tokenizer,
                template=template,
                reward=config.reward,
                rewarder=rewarder,
                scorers=self.scorers,
            ),
        )
        dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else torch.float32
        self.reference: nn.Module | None = (
            freeze(reference, dtype).to(accelerator.device) if reference is not None else None
        )
        """The model the KL term holds the policy near; None where there is no such term."""
        optimizer = adamw(policy, config.optimizer)
        self.policy, self.optimizer = accelerator.prepare(policy, optimizer)
        self.trained: list[nn.Module] = [self.policy]
        """What has gradients, as data parallelism wraps it."""
        self.optimizers: list[Thing] = [self.optimizer]
        self.idle = Idle.of(config.engine, engine.name, accelerator.device)
        self.idle.put(*self._reference_alone)
        self.guard = MismatchGuard(
            threshold=config.engine.mismatch_warn,
            end_token_ids=end_tokens(policy.model, tokenizer, template),
            tokenizer=tokenizer,
            low_precision=accelerator.mixed_precision == "bf16",
        )
        self.causes: list[Cause] = []
        """What the guard makes of the last step's mismatch; empty: all is well."""
        self.num_updates = 0
        """Optimizer steps so far."""
        self.reference_step = 0
        """The step whose policy is the reference; 0: the model the run began with."""
        self.seconds: dict[str, float] = {}
        """Where the current step's time went."""

    @property
    def model(self) -> Policy:
        """The policy without the wrappers of data parallelism."""
        model: Policy = self.accelerator.unwrap_model(self.policy)
        return model

    @property
    def _reference_alone(self) -> list[Thing]:
        """The reference, where it is a model of its own and not the policy's backbone without an adapter."""
        return [self.reference] if isinstance(self.reference, Policy) else []

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

    def ref_logprobs(self, rows: Sequence[Row], mask: Tensor) -> Tensor:
        """(B, T) logprobs of all rows under the reference."""
        assert self.reference is not None
        with self.idle.back(*self._reference_alone):
            return self._logprobs(self.reference, rows, mask)

    # -- update --------------------------------------------------------------------------------------------------

    def update(
        self, step: int, rows: Sequence[Row], batch: StepBatch, completions: Sequence[Completion]
    ) -> dict[str, float]:
        """The optimizer steps of one rollout. Denominators are those of the whole minibatch over all processes."""
        algorithm, settings = self.config.algorithm, self.config.optimizer
        lr = learning_rate(settings, step, self.config.run.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        figures: list[dict[str, float]] = []
        for epoch in range(algorithm.epochs):
            order = list(range(len(rows)))
            if algorithm.minibatches > 1:  # R1-Zero: a random split of the rollout
                random.Random(f"{self.config.run.seed}/{step}/{epoch}").shuffle(order)
            # Always as many as set, an empty one too: every process has to take part in each optimizer step.
            cuts = [round(len(rows) * k / algorithm.minibatches) for k in range(algorithm.minibatches + 1)]
            for start, end in pairwise(cuts):
                chosen = order[start:end]
                totals = step_totals(self.accelerator, batch.mask[chosen], max_tokens_at(self.config, step))
                learns = [i for i in chosen if self._learns_from(batch, i)]
                with self._timed("train"):
                    part, logprobs = self.backward(rows, learns, batch, totals)
                if not figures:  # the weights are still those that sampled
                    part |= self.check_mismatch(step, rows, completions, logprobs)
                with self._timed("optimizer"), self.idle.back(*self.optimizers):
                    self.idle.trim()
                    part |= self.optimizer_step(step)
                figures.append(part)
        metrics = {"optimizer/lr": lr}
        for name in sorted({name for part in figures for name in part}):
            values = [part[name] for part in figures if name in part]
            metrics[name] = max(values) if name.endswith("_max") else sum(values) / len(values)
        return metrics

    def _learns_from(self, batch: StepBatch, i: int) -> bool:
        """False for a row that adds nothing to the gradient: dropped, or of advantage 0 with no other term."""
        algorithm = self.config.algorithm
        if not bool(batch.mask[i].any()):
            return False
        other_terms = algorithm.entropy_bonus > 0 or (self.reference is not None and algorithm.kl_in == "loss")
        return other_terms or not algorithm.skip_zero_variance or bool(batch.advantages[i].any())

    def backward(
        self, rows: Sequence[Row], learns: list[int], batch: StepBatch, totals: losses.StepTotals
    ) -> tuple[dict[str, float], dict[int, Tensor]]:
        """Accumulate the minibatch's gradient from rows `learns`.

        Returns its metrics and the trainer's logprobs (T,) of each row it looked at.
        """
        parts: list[losses.Metrics] = []
        seen: dict[int, Tensor] = {}
        micros = self.model.micro_batches(
            [rows[i] for i in learns], self.config.optimizer.micro_batch_tokens, self.device
        )
        for k, micro in enumerate(micros):
            with no_gradient_exchange(self.accelerator, self.trained, k < len(micros) - 1):
                indices = [learns[i] for i in micro.indices]
                metrics, logprobs = self.backward_of(micro, batch.at(indices, micro), totals)
            parts.append(metrics)
            seen |= {i: row[: len(rows[i].completion_ids)] for i, row in zip(indices, logprobs.cpu(), strict=True)}
        if not micros:
            any_row = [Row(prompt_ids=(0,), completion_ids=(0,))]
            (micro,) = self.model.micro_batches(any_row, 2, self.device)
            empty_backward(self.accelerator, self.trained, micro)
        trained = sum(int(batch.mask[i].sum()) for i in learns)
        return step_figures(losses.add_metrics(parts), totals.num_tokens, trained), seen

    def backward_of(
        self, micro: MicroBatch, batch: StepBatch, totals: losses.StepTotals
    ) -> tuple[losses.Metrics, Tensor]:
        """One micro-batch's gradient; its metrics, and the (B, T) logprobs without their gradient."""
        algorithm = self.config.algorithm
        logprobs, entropy = self.policy(
            micro, temperature=self._temperature, entropy_gradient=algorithm.entropy_bonus > 0
        )
        loss, metrics = objective(algorithm, logprobs, entropy, batch, totals)
        # Data parallelism averages gradients over processes; the denominators are already over all.
        self.accelerator.backward(loss * self.accelerator.num_processes)
        return metrics, logprobs.detach()

    def check_mismatch(
        self, step: int, rows: Sequence[Row], completions: Sequence[Completion], logprobs: Mapping[int, Tensor]
    ) -> dict[str, float]:
        """Compare engine and trainer on the rows of all processes; the likely causes go to `causes`.

        Each process looks into its own rows for a cause, when all of them together are past the threshold.
        """
        if not any(gather_object([len(logprobs)])):  # every group was flat: look at some rows all the same
            few = [i for i in range(len(rows)) if rows[i].completion_ids][:8]
            mask = torch.ones(len(few), max((len(rows[i].completion_ids) for i in few), default=0), dtype=torch.bool)
            scored = self._logprobs(self.model, [rows[i] for i in few], mask)
            logprobs = {i: scored[k, : len(rows[i].completion_ids)] for k, i in enumerate(few)}
        compared = [
            Scored(
                prompt_ids=rows[i].prompt_ids,
                completion=completions[i],
                trainer_logprobs=row.tolist(),
                left_padding=0,
            )
            for i, row in sorted(logprobs.items())
        ]

        def rescore(prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Tensor:
            with self.accelerator.autocast():
                return logits_alone(self.model.model, prompt_ids, token_ids)

        found, causes = self.guard.check(
            compared,
            self.rollouts.sampling(step),
            rescore,
            num_updates=self.num_updates,
            everyone=lambda own: combined(gather_object([own])),
        )
        self.causes = list({cause.name: cause for cause in reversed(gather_object(causes))}.values())
        return found.metrics() if found.num_tokens else {}

    def optimizer_step(self, step: int) -> dict[str, float]:
        """Take the step that the gradients say, and forget them."""
        norm, skipped = clipped_step(
            self.accelerator, self.policy.parameters(), self.optimizer, self.config.optimizer.max_grad_norm
        )
        self.num_updates += not skipped
        return {"optimizer/grad_norm": norm, "optimizer/skipped": skipped}

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

    # -- plumbing ------------------------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        device: torch.device = self.accelerator.device
        return device

    @property
    def _temperature(self) -> float:
        return self.config.sampling.temperature

    @torch.no_grad()
    def _logprobs(self, policy: nn.Module, rows: Sequence[Row], mask: Tensor) -> Tensor:
        """(B, T) logprobs of all rows under `policy`, without gradient.

        `policy` is not the data-parallel wrapper, whose forward pass may wait for the other processes': they may have
        more rows or none.
        """
        result = torch.zeros(mask.shape)
        present = [i for i in range(len(rows)) if bool(mask[i].any())]
        budget = self.config.optimizer.micro_batch_tokens
        for micro in self.model.micro_batches([rows[i] for i in present], budget, self.device):
            with self.accelerator.autocast():
                logprobs, _ = policy(micro, temperature=self._temperature)
            index = torch.tensor([present[i] for i in micro.indices])
            result[index, : logprobs.shape[1]] = logprobs.float().cpu()
        return result

    def _everyone(self, flat: Tensor) -> Tensor:
        """(n,) values of this process -> those of all processes, in their order."""
        return everyone(self.accelerator, flat)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
