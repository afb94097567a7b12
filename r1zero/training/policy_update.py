"""The optimizer steps of one rollout, for GRPO and PPO: minibatches, gradients, the guard over engine and trainer."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Generic, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from r1zero.algorithms import losses
from r1zero.config import RLConfig
from r1zero.data.records import Completion
from r1zero.models.policy import MicroBatch, Policy, Row, freeze
from r1zero.prompts import Template
from r1zero.rollout.base import Engine
from r1zero.rollout.mismatch import MismatchGuard, combined, end_tokens, logits_alone
from r1zero.rollout.mismatch_causes import Cause, Scored
from r1zero.training.batch import StepBatch
from r1zero.training.micro_budget import MicroBudget
from r1zero.training.objective import objective
from r1zero.training.offload import Idle, Thing
from r1zero.training.parallel import empty_backward, everyone, no_gradient_exchange, step_figures, step_totals
from r1zero.training.rollouts import Rollouts, max_tokens_at
from r1zero.training.updater import adamw, clipped_step, learning_rate

C = TypeVar("C", bound=RLConfig)


class PolicyUpdate(Generic[C]):
    """The policy, its reference and its optimizer: from a step's tensors to the optimizer steps, and who guards them.

    Rows are those of this process; every denominator is over all processes of `accelerator`.
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
        engine: Engine,
        rollouts: Rollouts,
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.tokenizer = tokenizer
        self.template = template
        self.engine = engine
        self.rollouts = rollouts
        dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else torch.float32
        self.reference: nn.Module | None = (
            freeze(reference, dtype).to(accelerator.device) if reference is not None else None
        )
        """The model the KL term holds the policy near; None where there is no such term."""
        optimizer = adamw(policy, config.optimizer)
        self.policy, self.optimizer = accelerator.prepare(policy, optimizer)
        self.budget = MicroBudget(config.optimizer.micro_batch_tokens, accelerator.num_processes)
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

    def ref_logprobs(self, rows: Sequence[Row], mask: Tensor) -> Tensor:
        """(B, T) logprobs of all rows under the reference."""
        assert self.reference is not None
        with self.idle.back(*self._reference_alone):
            return self._logprobs(self.reference, rows, mask)

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
                    again = partial(self.backward, rows, learns, batch, totals)
                    part, logprobs = self.budget.fitting(again, self.forget_gradients)
                if not figures:  # the weights are still those that sampled
                    part |= self.check_mismatch(step, rows, completions, logprobs)
                with self._timed("optimizer"), self.idle.back(*self.optimizers):
                    self.idle.trim()
                    part |= self.optimizer_step(step, finite=math.isfinite(part.get("policy/loss", 0.0)))
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
        micros = self.model.micro_batches([rows[i] for i in learns], self.budget.tokens, self.device)
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

    def forget_gradients(self) -> None:
        """Of every trained module."""
        for module in self.trained:
            module.zero_grad()

    def optimizer_step(self, step: int, *, finite: bool = True) -> dict[str, float]:
        """Take the step that the gradients say, and forget them. `finite`: the loss was; else the step is skipped."""
        limit = self.config.optimizer.max_grad_norm
        norm, skipped = clipped_step(self.accelerator, self.policy.parameters(), self.optimizer, limit, finite=finite)
        self.num_updates += not skipped
        return {"optimizer/grad_norm": norm, "optimizer/skipped": skipped}

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
        return self._of_all_rows(lambda micro: policy(micro, temperature=self._temperature)[0], rows, mask)

    def _of_all_rows(self, values: Callable[[MicroBatch], Tensor], rows: Sequence[Row], mask: Tensor) -> Tensor:
        """(B, T) of the (b, t) `values` of micro-batches, on the CPU; rows without a True in `mask` are 0."""
        present = [i for i in range(len(rows)) if bool(mask[i].any())]

        def found() -> Tensor:
            result = torch.zeros(mask.shape)
            for micro in self.model.micro_batches([rows[i] for i in present], self.budget.tokens, self.device):
                with self.accelerator.autocast():
                    part = values(micro)
                index = torch.tensor([present[i] for i in micro.indices])
                result[index, : part.shape[1]] = part.float().cpu()
            return result

        return self.budget.fitting(found, lambda: None)

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
