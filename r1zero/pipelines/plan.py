"""Does a recipe fit the device, and how long does a step take: `r1zero plan`, by arithmetic over the model's config.

Memory is counted part by part (`models/memory_plan.py`). Times are FLOPs and bytes over the device's rates, times the
share of them that such programs reach; the shares are assumptions that the output names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from r1zero import models
from r1zero.config import GRPOConfig, PPOConfig
from r1zero.errors import UserError
from r1zero.models.memory_plan import Shape, forward_flops, read_shape, training_bytes, training_flops

GIB = 2**30
TRAIN_SHARE, DECODE_SHARE = 0.4, 0.6
"""Shares of the matrix rate in training and of the memory's bandwidth in decoding; assumed."""
Planned = GRPOConfig | PPOConfig


@dataclass(frozen=True, kw_only=True)
class Device:
    """What a plan has to know of one device."""

    gib: float
    tflops: float
    """bfloat16 matrix rate."""
    bandwidth: float
    """GB/s of its memory."""
    gpu: bool = True


KNOWN = ((180, 2250, 8000), (141, 989, 4800), (80, 989, 3350), (48, 362, 864), (24, 165, 1008), (0, 65, 320))
"""GiB from which, TFLOP/s, GB/s: B200, H200, H100, L40S, RTX 4090, T4, from their makers' data sheets."""


def parse_gpus(text: str) -> tuple[int, Device]:
    """`8x80` -> 8 devices of 80 GiB with the rates of the card of that size. Raises UserError for another form."""
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None or not int(found[1]) or not int(found[2]):
        raise UserError(f"--gpus {text}: write NUMBERxGIB, such as 8x80")
    gib = int(found[2])
    _, tflops, bandwidth = next(row for row in KNOWN if gib >= row[0])
    return int(found[1]), Device(gib=gib, tflops=tflops, bandwidth=bandwidth)


def model_shape(config: Planned) -> Shape:
    """The shape of the recipe's model. Raises UserError where its config.json describes no decoder that is known."""
    folder = models.resolve(config.model.path)
    try:
        return read_shape(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder}/config.json describes no decoder this plan knows ({error})") from error


def memory(config: Planned, shape: Shape, device: Device, shards: int = 1) -> dict[str, dict[str, int]]:
    """Bytes a device holds in the training phase and in the rollout phase, by part."""
    model, ppo = config.model, isinstance(config, PPOConfig)
    compute = 4 if model.dtype == "float32" or (model.dtype == "auto" and not device.gpu) else 2
    longest = context(config)
    train = training_bytes(
        shape,
        compute=compute,
        # A row is never split: the longest one is the least a micro-batch can be.
        tokens=max(config.optimizer.micro_batch_tokens, longest),
        checkpointing=model.gradient_checkpointing,
        lora_rank=model.lora_rank,
        references=(1 if config.algorithm.beta else 0) + len(config.reward.models),
        copies=2 if ppo else 1,
        shards=shards,
        block_elements=2**26 if device.gpu else 2**21,
    )
    held = {name: train[name] for name in ("weights", "optimizer")}
    sequences = min(config.engine.max_sequences, completions(config))
    cache = sequences * longest * shape.kv_bytes(compute)
    if device.gpu and config.engine.name != "transformers":
        engine = int(device.gib * GIB * config.engine.gpu_memory_utilization)
        if not config.engine.sleep:
            train["engine"] = engine
        if config.engine.offload is not False:
            held.pop("optimizer")
        rollout = {**held, "engine": engine}
    elif config.engine.name == "transformers":
        rollout = {**held, "KV cache": cache}
    else:
        rollout = {**held, "engine weights": shape.total * compute, "KV cache": cache}
        train |= {name: rollout[name] for name in ("engine weights", "KV cache")}
    return {"training": train, "rollout": rollout}


def context(config: Planned) -> int:
    """Tokens of the longest prompt plus completion."""
    return config.engine.max_context or config.data.max_prompt_tokens + config.sampling.max_tokens


def completions(config: Planned) -> int:
    return config.algorithm.group_size * config.algorithm.prompts_per_step


def advice(config: Planned, parts: dict[str, dict[str, int]], device: Device, count: int) -> list[str]:
    """The settings that make the larger phase smaller, most first; empty where it fits."""
    room = device.gib * GIB
    over = {phase: sum(held.values()) - room for phase, held in parts.items()}
    if max(over.values()) <= 0:
        return []
    train = parts["training"]
    found: list[tuple[int, str]] = []
    if over["training"] > 0:
        if not config.model.gradient_checkpointing:
            found.append((train["activations"] * 9 // 10, "--model.gradient_checkpointing true"))
        half = config.optimizer.micro_batch_tokens // 2
        if half >= context(config):
            found.append((train["activations"] // 2, f"--optimizer.micro_batch_tokens {half}"))
        if not config.model.lora_rank:
            saved = (train["gradients"] + train["optimizer"]) * 9 // 10
            found.append((saved, "--model.lora_rank 32"))
        if "engine" in train:
            found.append((train["engine"], "--engine.sleep true"))
        if count > 1:
            state = train["weights"] + train["gradients"] + train["optimizer"]
            found.append((state - state // count, f"weights and optimizer sharded over the {count} devices (FSDP2)"))
    if over["rollout"] > 0:
        share = config.engine.gpu_memory_utilization
        name = "KV cache" if "KV cache" in parts["rollout"] else "engine"
        smaller = (
            f"--engine.gpu_memory_utilization {share / 2:.2f}"
            if name == "engine"
            else f"--engine.max_sequences {max(1, min(config.engine.max_sequences, completions(config)) // 2)}"
        )
        found.append((parts["rollout"][name] // 2, smaller))
    return [f"{text} (saves about {size / GIB:.2f} GiB)" for size, text in sorted(found, reverse=True)]


def seconds(config: Planned, shape: Shape, device: Device, count: int) -> dict[str, float]:
    """Seconds of a step's parts on `count` devices, every completion taken to be as long as it may be."""
    longest, rows = context(config), completions(config)
    new = config.sampling.max_tokens
    rate = device.tflops * 1e12 * count
    fields = min(config.engine.max_sequences, max(1, rows // count))
    rounds = max(1, -(-rows // (fields * count)))
    # A decoding step reads all weights once, and the keys and values of every sequence so far (half, on average).
    read = 2 * shape.total + fields * (longest - new / 2) * shape.kv_bytes(2)
    decode = max(
        read / (device.bandwidth * 1e9 * DECODE_SHARE),
        fields * forward_flops(shape, 1, longest) / (device.tflops * 1e12 * TRAIN_SHARE),
    )
    tokens = rows * new + config.algorithm.prompts_per_step * config.data.max_prompt_tokens
    found = {
        "rollout": rounds * new * decode,
        "train": config.algorithm.epochs
        * training_flops(shape, tokens, longest, checkpointing=config.model.gradient_checkpointing)
        / (rate * TRAIN_SHARE),
    }
    if config.algorithm.beta:
        found["reference"] = forward_flops(shape, tokens, longest) / (rate * TRAIN_SHARE)
    return found


def refuse_what_cannot_fit(config: Planned, device: Device, count: int = 1) -> None:
    """Raises UserError, with the settings that mend it, where a device cannot even hold weights, gradients and
    optimizer. What is only likely not to fit (activations depend on the data) is left to run."""
    parts = memory(config, model_shape(config), device)
    certain = sum(parts["training"][name] for name in ("weights", "gradients", "optimizer"))
    if certain <= device.gib * GIB:
        return
    raise UserError(
        f"{config.model.path} needs {certain / GIB:.1f} GiB for weights, gradients and optimizer alone and the device "
        f"has {device.gib:.1f}: " + "; ".join(advice(config, parts, device, count))
    )
