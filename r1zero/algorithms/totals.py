"""The totals of a step, and how token values become one number: what every loss and metric is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["sequence", "token", "constant"]
Metrics = dict[str, Tensor]

MIN_LOGPROB = -1e4
"""Log-probabilities are held at this floor, so that the -inf of an impossible token gives no inf - inf."""


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """Denominators of one optimizer step: counted once over all its micro-batches and ranks."""

    num_tokens: int
    """Completion tokens that are trained on (True in a mask)."""
    num_sequences: int
    """Completions that are trained on: those with at least one True in their mask. Dropped, overlong-filtered and
    empty completions do not count, so masking one leaves the others' weight as if it had not been sampled."""
    max_tokens: int = 1
    """The constant of Dr. GRPO (the length limit, tokens); used by aggregation `constant` alone."""

    @classmethod
    def of(cls, mask: Tensor, max_tokens: int = 1) -> StepTotals:
        """Counts (B, T) masks that hold the whole step."""
        return cls(num_tokens=int(mask.sum()), num_sequences=int(mask.any(-1).sum()), max_tokens=max_tokens)


def aggregate(values: Tensor, mask: Tensor, totals: StepTotals, aggregation: Aggregation) -> Tensor:
    """One number from (B, T) token values; what is False in `mask` counts for nothing, even where it is inf or nan.

    `sequence`: mean over each completion's tokens, then over completions (GRPO, arXiv 2402.03300 eq. 3).
    `token`: mean over all tokens of the step (DAPO, arXiv 2503.14476 eq. 8).
    `constant`: sum over tokens / (completions * max_tokens) (Dr. GRPO, arXiv 2503.20783).
    A step without a single trained token gives 0 with a zero gradient, not nan and not a loss without a graph.
    """
    values = values.masked_fill(~mask, 0.0)
    if aggregation == "token":
        return values.sum() / max(totals.num_tokens, 1)
    if aggregation == "constant":
        return values.sum() / max(totals.num_sequences * totals.max_tokens, 1)
    if aggregation == "sequence":
        return sequence_mean(values, mask).sum() / max(totals.num_sequences, 1)
    raise ValueError(f"aggregation must be sequence, token or constant, got {aggregation!r}")


def add_metrics(parts: Iterable[Metrics]) -> Metrics:
    """The step's metrics from its micro-batches': sums, as each is already divided by the step's totals.

    The exception is a name that ends in `_max`, which takes the maximum; across ranks the same rule holds.
    """
    whole: Metrics = {}
    for part in parts:
        for name, value in part.items():
            if name not in whole:
                whole[name] = value
            else:
                whole[name] = torch.maximum(whole[name], value) if name.endswith("_max") else whole[name] + value
    return whole


def log_ratio(logprobs: Tensor, other_logprobs: Tensor, mask: Tensor) -> Tensor:
    """log(p / q), (B, T); 0 with no gradient on padding, whatever it holds. Finite, unless an input is nan."""
    # Cut before any exp(): padding may hold -inf, and 0 * inf is nan in the backward pass. The same cut, backward, is
    # where the nan that an advantage or a weight on padding may have made of a gradient becomes 0.
    p = logprobs.masked_fill(~mask, 0.0).clamp(min=MIN_LOGPROB)
    q = other_logprobs.masked_fill(~mask, 0.0).clamp(min=MIN_LOGPROB)
    return p - q


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(B, T) -> (B,): mean over the True tokens of each row, 0 for a row without one."""
    return values.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


def masked_max(values: Tensor, mask: Tensor) -> Tensor:
    """The maximum over True tokens of values >= 0; 0 where there is none (and for any empty tensor)."""
    return torch.cat([values[mask], values.new_zeros(1)]).max()
