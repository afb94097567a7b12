"""The value model of PPO: a backbone with a scalar head that reads the state before each completion token.

V(s_t) is what the completion is expected to earn from its token t on: its reward, and what KL term there is in it. It
stands between the policy's micro-batches, which it shares, and `advantages.gae`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from r1zero.config import ModelConfig, RewardModelTerm
from r1zero.models.lora_backbone import VALUE, adapter
from r1zero.models.packing import supports_packing, use_packed_attention
from r1zero.models.policy import MicroBatch, Policy, load_model, states_before
from r1zero.models.reward_model import load_reward_model, score_scale


class ValueModel(nn.Module):
    """A module of its own so that the wrappers of data parallelism see one forward call."""

    def __init__(self, backbone: PreTrainedModel, head: nn.Linear) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.packed = supports_packing(backbone)
        """Whether it takes packed micro-batches; else the policy's have to be padded too."""
        if self.packed:
            use_packed_attention(backbone)

    def forward(self, batch: MicroBatch) -> Tensor:
        """(B, T) float32 value of the state before each completion token; 0 on padding."""
        return values_before(self.backbone, self.head, batch)


class SharedValueModel(nn.Module):
    """The same through the policy's backbone, with an adapter: holds the adapter and the head."""

    def __init__(self, policy: Policy, adapter_weights: Sequence[nn.Parameter], head: nn.Linear) -> None:
        super().__init__()
        self.head = head
        self.adapter = nn.ParameterList(adapter_weights)
        self.packed = policy.packed
        self._others = (policy,)  # in a tuple: it is another's to train, move and save

    def forward(self, batch: MicroBatch) -> Tensor:
        """(B, T) float32: see `ValueModel.forward`."""
        policy = self._others[0]
        with adapter(policy.model, VALUE):
            return values_before(policy.backbone, self.head, batch)


def values_before(backbone: nn.Module, head: nn.Linear, batch: MicroBatch) -> Tensor:
    """(B, T) float32: what `head` makes of the state before each completion token."""
    states = states_before(backbone, batch)  # (N, D)
    # A value is a sum of rewards: the three digits of bfloat16 would be seen in the advantages.
    with torch.autocast(states.device.type, enabled=False):
        values = head(states.float())[:, 0]  # (N,)
    return batch.spread(values)


def value_from_policy(folder: Path, config: ModelConfig) -> ValueModel:
    """The policy's backbone with a head of zeros: it begins by expecting nothing, as in arXiv 2403.17031."""
    backbone = load_model(folder, config).base_model
    return ValueModel(backbone, zero_head(backbone))


def value_from_reward_model(folder: Path, config: ModelConfig, term: RewardModelTerm) -> ValueModel:
    """The reward model with its head: V begins as what the model would score the text so far with (arXiv 2203.02155,
    appendix C.4), in the units in which the score enters the reward."""
    model = load_reward_model(folder, config, pad_token_id=0, seed=0)
    return ValueModel(model.base_model, head_in_reward_units(model.score, score_scale(folder), term))


def zero_head(backbone: PreTrainedModel) -> nn.Linear:
    head = nn.Linear(backbone.config.get_text_config().hidden_size, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def head_in_reward_units(score: nn.Linear, scale: tuple[float, float], term: RewardModelTerm) -> nn.Linear:
    """The reward model's head with `scale` (mean, deviation) and the term's weight folded in."""
    mean, std = scale if term.normalise else (0.0, 1.0)
    head = nn.Linear(score.in_features, 1)
    with torch.no_grad():
        head.weight.copy_(score.weight * (term.weight / std))
        head.bias.copy_(((0.0 if score.bias is None else score.bias) - torch.tensor([mean])) * (term.weight / std))
    return head
