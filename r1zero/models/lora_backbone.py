"""Several LoRA adapters on one backbone: PPO's policy, value and reward model; its reference is the backbone alone.

The weights of one model and three small sets of adapters stand for the four models (`shared_backbone`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from r1zero import models
from r1zero.config import ModelConfig, RewardModelConfig, recipe
from r1zero.errors import UserError
from r1zero.models.policy import MicroBatch
from r1zero.models.reward_model import score_last

POLICY = "default"
"""The name that `policy.add_lora` gives the policy's adapter."""
VALUE, REWARD = "value", "reward"


@contextmanager
def adapter(model: nn.Module, name: str | None) -> Iterator[None]:
    """Within the block `model` computes with adapter `name` alone, or with none.

    A backward pass through what was computed does not need the block, unless activations are recomputed in it.
    """
    # By the attributes: peft's own methods also switch requires_grad, of all adapters and under the graph's feet.
    layers = _layers(model)
    before = [(layer._active_adapter, layer._disable_adapters) for layer in layers]
    for layer in layers:
        layer._disable_adapters = name is None
        if name is not None:
            layer._active_adapter = [name]
    try:
        yield
    finally:
        for layer, (active, disabled) in zip(layers, before, strict=True):
            layer._active_adapter, layer._disable_adapters = active, disabled


def _layers(model: nn.Module) -> list[Any]:
    """The layers that have adapters."""
    return [module for module in model.modules() if hasattr(module, "base_layer")]


def add_adapter(model: PreTrainedModel, name: str, rank: int, alpha: int) -> list[nn.Parameter]:
    """Put one more adapter on a model that has the policy's; returns its parameters, as yet frozen. The policy's stays
    active."""
    from peft import LoraConfig, inject_adapter_in_model

    trainable = {key for key, p in model.named_parameters() if p.requires_grad}
    lora = LoraConfig(r=rank, lora_alpha=alpha, target_modules="all-linear")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Already found a `peft_config`")  # several are what this is for
        inject_adapter_in_model(lora, model, adapter_name=name)
    added = []
    for key, parameter in model.named_parameters():
        new = f".{name}." in key and ".lora_" in key
        added += [parameter] if new else []
        # peft makes the new adapter the active one, and the only one with a gradient.
        parameter.requires_grad_(key in trainable)
    for layer in _layers(model):
        layer._active_adapter = [POLICY]
    return added


class WithAdapter(nn.Module):
    """Another module's forward pass, with one adapter of the backbone or with none; holds no weights of its own."""

    def __init__(self, module: nn.Module, backbone: nn.Module, name: str | None) -> None:
        super().__init__()
        self._others = (module, backbone)  # in a tuple: they are another's to train, move and save
        self.name = name

    def forward(self, *inputs: Any, **options: Any) -> Any:
        module, backbone = self._others
        with adapter(backbone, self.name):
            return module(*inputs, **options)


class SharedScores(nn.Module):
    """The forward pass of `reward_model.RewardModel` through a shared backbone."""

    def __init__(self, backbone: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.head = head
        self._others = (backbone,)

    def forward(self, batch: MicroBatch) -> Tensor:
        """(B,) float32 scores: see `RewardModel.forward`."""
        with adapter(self._others[0], REWARD):
            return score_last(self._others[0], self.head, batch)


def reward_adapter(checkpoint: Path, base: Path) -> tuple[Mapping[str, Tensor], ModelConfig]:
    """A reward model's trained tensors, as its trainer keeps them beside the merged weights, and its LoRA settings.

    Raises UserError where it was not trained with LoRA from `base`.
    """
    run = checkpoint.parent.parent / "config.yaml"
    config = recipe.load(str(run)) if run.is_file() else None
    if not isinstance(config, RewardModelConfig) or not config.model.lora_rank:
        raise UserError(
            f"shared_backbone: {checkpoint} is no checkpoint of a reward model trained with LoRA: train one with "
            "--model.lora_rank, or set shared_backbone to false"
        )
    if models.resolve(config.model.path).resolve() != base.resolve():
        raise UserError(
            f"shared_backbone: the reward model {checkpoint} was trained from {config.model.path}, and the policy "
            f"starts from {base}: they have to be the same, or set shared_backbone to false"
        )
    tensors: dict[str, Any] = torch.load(checkpoint / "trainer" / "tensors.pt", map_location="cpu", weights_only=False)
    return {name.removeprefix("model."): value for name, value in tensors["trained"].items()}, config.model


def load_adapter(model: PreTrainedModel, trained: Mapping[str, Tensor], name: str) -> None:
    """Copy a reward model's LoRA tensors, but its head's, into adapter `name` of `model`."""
    own = dict(model.named_parameters())
    with torch.no_grad():
        for key, tensor in trained.items():
            if ".lora_" in key and not key.startswith("score."):
                own[key.replace(f".{POLICY}.", f".{name}.")].copy_(tensor)
