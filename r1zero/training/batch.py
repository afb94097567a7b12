"""The tensors of one step on their way to the loss. Between advantages and update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from r1zero.models.policy import MicroBatch
from r1zero.training.groups import ScoredGroup


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """The tensors of a step, a row a completion, on the CPU until a micro-batch asks for them."""

    mask: Tensor
    """(B, T) bool, True on the completion tokens trained on; all False for a dropped completion."""
    engine_logprobs: Tensor
    """(B, T) of the distribution sampled from, as the engine reported them."""
    rewards: Tensor
    """(B,) 0 for a dropped completion."""
    advantages: Tensor
    """(B, T)."""
    old_logprobs: Tensor | None = None
    """(B, T) log pi_old under the trainer; None: the policy has not moved, its own logprobs are the old ones."""
    ref_logprobs: Tensor | None = None
    """(B, T)."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What the making of the advantages found, for the step's metrics."""

    def at(self, indices: list[int], micro: MicroBatch) -> StepBatch:
        """The rows of a micro-batch, cut to its longest completion, on its device."""
        width = micro.mask.shape[1]

        def pick(values: Any) -> Any:
            is_per_token = isinstance(values, Tensor) and values.dim() == 2
            return values[indices, :width].to(micro.mask.device) if is_per_token else values

        per_token = {name: pick(getattr(self, name)) for name in self.__dataclass_fields__}
        return replace(self, **{**per_token, "mask": micro.mask, "rewards": self.rewards[indices]})


@dataclass(frozen=True, kw_only=True)
class PPOBatch(StepBatch):
    """A step's tensors with those of the value model."""

    old_values: Tensor
    """(B, T) V of the state before each token, as it was at the rollout; 0 on padding."""
    returns: Tensor
    """(B, T) advantage before whitening, plus value."""

    @classmethod
    def of(cls, batch: StepBatch, **more: Any) -> PPOBatch:
        """`batch` with some fields replaced and those of the value model added."""
        return cls(**{**{name: getattr(batch, name) for name in batch.__dataclass_fields__}, **more})


def sampled_batch(groups: Sequence[ScoredGroup]) -> StepBatch:
    """What the engine and the judges said of a step's groups; advantages are still 0."""
    completions = [completion for group in groups for completion in group.completions]
    rewards = [reward for group in groups for reward in group.rewards]
    lengths = torch.tensor([completion.num_tokens for completion in completions])
    keep = torch.tensor([reward.keep for reward in rewards], dtype=torch.bool) & (lengths > 0)
    mask = (torch.arange(int(lengths.max()) if len(lengths) else 0)[None, :] < lengths[:, None]) & keep[:, None]
    engine = torch.zeros(mask.shape)
    for i, completion in enumerate(completions):
        engine[i, : completion.num_tokens] = torch.tensor(completion.logprobs)
    return StepBatch(
        mask=mask,
        engine_logprobs=engine,
        rewards=torch.tensor([reward.value if reward.value is not None else 0.0 for reward in rewards]),
        advantages=torch.zeros(mask.shape),
    )
