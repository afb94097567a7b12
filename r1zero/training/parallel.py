"""Several processes and one gradient: who waits for whom, and what is added up. One process: nothing happens here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from r1zero.algorithms.losses import Metrics, StepTotals
from r1zero.models.policy import MicroBatch


def everyone(accelerator: Accelerator, flat: Tensor) -> Tensor:
    """(n,) values of this process -> those of all processes, in their order."""
    if accelerator.num_processes == 1:
        return flat
    shares: list[Tensor] = gather_object([flat.cpu()])
    return torch.cat(shares)


def added_up(own: dict[str, float]) -> dict[str, float]:
    """The sum of each figure over all processes; of one called `…_max` the largest."""
    parts: list[dict[str, float]] = gather_object([own])
    names = sorted({name for part in parts for name in part}) if len(parts) > 1 else own
    figures = {name: [part[name] for part in parts if name in part] for name in names}
    return {name: max(values) if name.endswith("_max") else sum(values) for name, values in figures.items()}


@contextmanager
def no_gradient_exchange(accelerator: Accelerator, modules: Sequence[nn.Module], wanted: bool) -> Iterator[None]:
    """Within, gradients stay on their process: only the last micro-batch's backward pass exchanges the sums."""
    with ExitStack() as stack:
        if wanted and accelerator.num_processes > 1:
            for module in modules:
                stack.enter_context(accelerator.no_sync(module))
        yield


def empty_backward(accelerator: Accelerator, modules: Sequence[nn.Module], micro: MicroBatch) -> None:
    """A process without a row to learn from still takes part in the exchange of gradients, with zeros.

    micro: any rows, which several processes send through the modules to begin the exchange.
    """
    if accelerator.num_processes == 1:
        for parameter in (p for module in modules for p in module.parameters()):
            parameter.grad = torch.zeros_like(parameter)
        return
    for module in modules:
        found = module(micro)
        accelerator.backward((found[0] if isinstance(found, tuple) else found).sum() * 0.0)


def step_totals(accelerator: Accelerator, mask: Tensor, max_tokens: int) -> StepTotals:
    """The denominators of a minibatch over all processes; `mask` (B, T) is True on this process's trained tokens."""
    counts = torch.tensor([mask.sum(), mask.any(-1).sum()], dtype=torch.long, device=accelerator.device)
    tokens, sequences = accelerator.reduce(counts, "sum").tolist()
    return StepTotals(num_tokens=int(tokens), num_sequences=int(sequences), max_tokens=max_tokens)


def step_figures(metrics: Metrics, num_tokens: int, trained: int) -> dict[str, float]:
    """One process's sums -> the step's figures: means over the tokens that went through the trainer.

    The losses divide by all tokens of the minibatch; rows left out for their zero advantage were not looked at, so
    a mean of what was looked at needs the other denominator. `policy/loss` keeps its own.
    """
    own = {name: float(value) for name, value in metrics.items()}
    shares: list[tuple[dict[str, float], int]] = gather_object([(own, trained)])
    trained = sum(count for _, count in shares)
    figures: dict[str, float] = {}
    for name in sorted({name for part, _ in shares for name in part}):
        values = [part[name] for part, _ in shares if name in part]
        if name.endswith("_max"):
            figures[name] = max(values)
        else:
            figures[name] = sum(values) if name == "policy/loss" else sum(values) * num_tokens / max(trained, 1)
    return figures
