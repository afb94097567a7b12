"""The optimizer of every stage, and one step of it from the losses of its micro-batches (SFT, DPO, the reward model).

Denominators are those of the whole step and the losses carry them: what is left to do here is to add up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from r1zero.algorithms.losses import Metrics, add_metrics
from r1zero.config import OptimizerConfig
from r1zero.data.order import take
from r1zero.training.micro_budget import MicroBudget
from r1zero.training.parallel import added_up, no_gradient_exchange

Loss = Callable[[], tuple[Tensor, Metrics]]
"""One micro-batch's loss with its gradient, and its metrics; both are sums over the step's denominator."""


class Updater:
    """A module on its device and its optimizer."""

    def __init__(self, accelerator: Accelerator, module: nn.Module, settings: OptimizerConfig, num_steps: int) -> None:
        self.accelerator = accelerator
        self.settings = settings
        self.num_steps = num_steps
        self.budget = MicroBudget(settings.micro_batch_tokens, accelerator.num_processes)
        self.module, self.optimizer = accelerator.prepare(module, adamw(module, settings))

    def update(self, step: int, losses: Callable[[], Sequence[Loss]], *, silent: bool = False) -> dict[str, float]:
        """Take step `step` on the losses of this process's micro-batches; the step's metrics, over all processes.

        losses: makes them, of at most `budget.tokens` each; again where memory did not suffice.
        silent: these rows are not this process's own, it has none; they count nothing.
        """
        began = time.perf_counter()
        lr = learning_rate(self.settings, step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        again = partial(self._backward_of, losses, silent)
        metrics = self.budget.fitting(again, self.module.zero_grad)
        finite = math.isfinite(metrics.get("loss", 0.0))
        norm, skipped = clipped_step(
            self.accelerator, self.module.parameters(), self.optimizer, self.settings.max_grad_norm, finite=finite
        )
        metrics |= {"optimizer/lr": lr, "optimizer/grad_norm": norm, "optimizer/skipped": skipped}
        return metrics | {"time/step": time.perf_counter() - began}

    def _backward_of(self, losses: Callable[[], Sequence[Loss]], silent: bool) -> dict[str, float]:
        return self.backward(losses(), silent=silent)

    def backward(self, losses: Sequence[Loss], *, silent: bool = False) -> dict[str, float]:
        """Accumulate the step's gradient; its metrics, `loss` among them."""
        parts: list[Metrics] = []
        # Data parallelism averages gradients over processes; the denominators are already over all.
        scale = 0 if silent else self.accelerator.num_processes
        for k, loss_of in enumerate(losses):
            with no_gradient_exchange(self.accelerator, [self.module], k < len(losses) - 1):
                with self.accelerator.autocast():
                    loss, metrics = loss_of()
                self.accelerator.backward(loss * scale)
            parts.append({"loss": loss.detach(), **metrics})
        own = {name: float(value) for name, value in add_metrics(parts).items()}
        return added_up({} if silent else own)

    @property
    def unwrapped(self) -> nn.Module:
        """The module without the wrappers of data parallelism, for passes that not all processes make."""
        module: nn.Module = self.accelerator.unwrap_model(self.module)
        return module

    def state(self) -> dict[str, Any]:
        """The optimizer's state, and the trained weights where a checkpoint has them merged (LoRA)."""
        named = dict(self.unwrapped.named_parameters())
        tensors: dict[str, Any] = {"optimizer": self.optimizer.state_dict()}
        if any(not p.requires_grad for p in named.values()):
            tensors["trained"] = {name: p.detach() for name, p in named.items() if p.requires_grad}
        return tensors

    def load_state(self, tensors: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(tensors["optimizer"])
        if "trained" in tensors:
            self.unwrapped.load_state_dict(tensors["trained"], strict=False)


def clipped_step(
    accelerator: Accelerator,
    parameters: Iterable[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    max_norm: float,
    *,
    finite: bool = True,
) -> tuple[float, float]:
    """Scale the gradients of `parameters` down to `max_norm` (0: never), take a step, forget them.

    finite: whether the loss was; a step of a loss that is not is skipped, whatever its gradient.
    Returns the norm they had, and 1.0 where the step was skipped, else 0.0.
    """
    norm = float(accelerator.clip_grad_norm_(parameters, max_norm or math.inf))
    # A gradient that is not finite would poison the optimizer's moments: the step is skipped, and shows.
    finite = finite and math.isfinite(norm)
    if finite:
        optimizer.step()
    optimizer.zero_grad()
    return norm, float(not finite)


def adamw(module: nn.Module, settings: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over the module's trainable parameters."""
    return torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def learning_rate(settings: OptimizerConfig, step: int, num_steps: int) -> float:
    """The rate of `step` (from 1): linear warm-up, then constant, or down to `min_lr` at `num_steps`."""
    if step <= settings.warmup_steps:
        return settings.lr * step / settings.warmup_steps
    progress = min(1.0, (step - settings.warmup_steps) / max(1, num_steps - settings.warmup_steps))
    if settings.schedule == "linear":
        return settings.lr + (settings.min_lr - settings.lr) * progress
    if settings.schedule == "cosine":
        return settings.min_lr + (settings.lr - settings.min_lr) * (1 + math.cos(math.pi * progress)) / 2
    return settings.lr


def num_steps(num_units: int, batch_size: int, epochs: float, steps: int) -> int:
    """Optimizer steps of a run: `steps` where it is set, else as many as `epochs` passes take."""
    return steps or max(1, math.ceil(round(num_units * epochs) / batch_size))


def batch_of(step: int, num_units: int, batch_size: int, epochs: float, steps: int, seed: int) -> list[int]:
    """The units of `step` (from 1): each once a pass, in an order of its own, and none beyond the last pass.

    A function of its arguments alone, so that a resumed run needs no more than the step. The last batch of a run
    may be smaller; in a run whose `steps` are set, every batch is whole.
    """
    start = (step - 1) * batch_size
    count = batch_size if steps else min(batch_size, round(num_units * epochs) - start)
    return take(num_units, start, count, seed)
