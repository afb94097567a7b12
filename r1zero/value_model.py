"""The value model of PPO: a backbone with a scalar head that reads the state before each completion token.

V(s_t) is what the completion is expected to earn from its token t on: its reward, and what KL term there is in it. It
stands between the policy's micro-batches, which it shares, and `advantages.gae`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from r1zero.config import ModelConfig, RewardModelTerm
from r1zero.packing import supports_packing, use_packed_attention
from r1zero.policy import MicroBatch, load_model, states_before
from r1zero.reward_model import load_reward_model, score_scale


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
        states = states_before(self.backbone, batch)  # (N, D)
        # A value is a sum of rewards: the three digits of bfloat16 would be seen in the advantages.
        with torch.autocast(states.device.type, enabled=False):
            values = self.head(states.float())[:, 0]  # (N,)
        return batch.spread(values)


def value_from_policy(folder: Path, config: ModelConfig) -> ValueModel:
    """The policy's backbone with a head of zeros: it begins by expecting nothing, as in arXiv 2403.17031."""
    backbone = load_model(folder, config).base_model
    return ValueModel(backbone, zero_head(backbone))


def value_from_reward_model(folder: Path, config: ModelConfig, term: RewardModelTerm) -> ValueModel:
    """The reward model with its head: V begins as what the model would score the text so far with (arXiv 2203.02155,
    appendix C.4), in the units in which the score enters the reward."""
    model = load_reward_model(folder, config, pad_token_id=0, seed=0)
    return ValueModel(model.base_model, head_in_reward_units(model.score, score_scale(model), term))


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
