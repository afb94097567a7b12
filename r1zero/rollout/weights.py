"""A policy's weights under their Hugging Face names, one at a time, as an engine takes them over at a sync."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


def named_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, full tensor) of each weight; tied weights once, wrappers' prefixes removed, LoRA adapters merged.

    The tensors may be the model's own: copy before you keep one. Sharded (DTensor) weights are gathered one at a time,
    so that a device never holds two copies of the model; every rank has to call this.
    """
    model = unwrapped(model)
    adapters = _lora_deltas(model)
    for name, parameter in model.named_parameters():
        if ".lora_" in name or ".modules_to_save." in name:
            continue
        tensor = _full(parameter.detach())
        delta = adapters.get(name)
        if delta is not None:
            # In float32, then cast: the base may be bfloat16, where a small delta would be rounded away twice.
            tensor = (tensor.float() + _full(delta[0].get_delta_weight(delta[1]).detach()).float()).to(tensor.dtype)
        yield _plain(name), tensor


def unwrapped(model: nn.Module) -> nn.Module:
    """The Hugging Face module inside DistributedDataParallel and torch.compile; FSDP2 needs no unwrapping."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ == "DistributedDataParallel":
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _plain(name: str) -> str:
    """A peft or torch.compile parameter name as the base model spells it."""
    return name.replace("_orig_mod.", "").replace(".base_layer.", ".").removeprefix("base_model.model.")


def _full(tensor: torch.Tensor) -> torch.Tensor:
    gather = getattr(tensor, "full_tensor", None)
    return gather() if gather is not None else tensor


def _lora_deltas(model: nn.Module) -> dict[str, tuple[Any, str]]:
    """Of a peft model: parameter name -> (its LoRA layer, the active adapter). Other adapter kinds are refused."""
    deltas: dict[str, tuple[Any, str]] = {}
    for name, module in model.named_modules():
        if not hasattr(module, "base_layer"):
            continue
        if not hasattr(module, "get_delta_weight"):
            raise TypeError(f"{name} is a {type(module).__name__}: only LoRA adapters can be merged for the engine")
        active = list(module.active_adapters)
        if len(active) != 1:
            raise TypeError(f"{name} has {len(active)} active adapters: exactly one can be merged for the engine")
        if not module.merged:
            deltas[f"{name}.base_layer.weight"] = (module, active[0])
    return deltas
