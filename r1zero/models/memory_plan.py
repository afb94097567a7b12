"""What a model takes, by arithmetic over its config.json alone: parameters, bytes of each part, FLOPs of each phase.

Nothing is loaded and nothing measured here; tests/models/test_memory_plan.py holds it against measured peaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MASTER = 4
"""Bytes of a master weight, and of a gradient: float32."""
ADAM = 8
"""Bytes of AdamW's two moments of one weight."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder with gated feed-forward layers, as Llama, Qwen and SmolLM are."""

    layers: int
    hidden: int
    intermediate: int
    """Of all experts that a token goes through together."""
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    experts: int = 1
    """How many times `intermediate` is stored; 1 for a dense model."""

    @property
    def block(self) -> int:
        """Weights of one layer, norms left out."""
        return self.attention + 3 * self.hidden * self.intermediate * self.experts

    @property
    def attention(self) -> int:
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def total(self) -> int:
        """All weights, norms and biases left out (under 0.2 % of any real model)."""
        return self.layers * self.block + self.embedding * (1 if self.tied else 2)

    @property
    def embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def used(self) -> int:
        """Weights a token is multiplied with in a forward pass, the head included."""
        return self.layers * (self.attention + 3 * self.hidden * self.intermediate) + self.embedding

    def kv_bytes(self, compute: int) -> int:
        """Bytes of one token's keys and values in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * compute


def read_shape(config: Mapping[str, Any]) -> Shape:
    """The shape a config.json describes. Raises KeyError where it lacks a size (not such a decoder)."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    experts = config.get("num_local_experts") or config.get("num_experts") or 0
    active = config.get("num_experts_per_tok") or 1
    width = config.get("moe_intermediate_size") if experts else None
    width = width or config["intermediate_size"]
    return Shape(
        layers=config["num_hidden_layers"],
        hidden=hidden,
        intermediate=width * (active if experts else 1),
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        vocab=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", False)),
        experts=max(1, experts // active),
    )


def lora_weights(shape: Shape, rank: int) -> int:
    """Weights of LoRA adapters of `rank` on all linear layers but the head."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    ends = 2 * (shape.hidden + q) + 2 * (shape.hidden + kv) + 3 * (shape.hidden + shape.intermediate) * shape.experts
    return shape.layers * rank * ends


def activation_bytes(shape: Shape, compute: int) -> int:
    """Bytes that autograd keeps of one token in one layer, the compute type having `compute` bytes.

    The residual stream and the norms are float32. Below float32, autocast casts a norm's output anew for each of the
    linear layers that read it (3 and 2), in float32 they share it; queries, keys, values and the attention's output;
    four feed-forward tensors (gate, its activation, up, their product).
    """
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norms = 4 * 4 * shape.hidden + (5 * compute if compute < 4 else 2 * compute) * shape.hidden
    return norms + compute * (2 * q + 2 * kv + 4 * shape.intermediate) + 4 * shape.heads


def training_bytes(
    shape: Shape,
    *,
    compute: int,
    tokens: int,
    checkpointing: bool,
    lora_rank: int = 0,
    references: int = 0,
    copies: int = 1,
    shards: int = 1,
    block_elements: int = 2**21,
) -> dict[str, int]:
    """Bytes a device holds at the peak of the training phase, by part.

    compute: bytes of the compute type. tokens: of a micro-batch. references: frozen models beside the trained ones, in
    the compute type. copies: trained models (PPO has 2). shards: devices over which weights, gradients and optimizer
    are spread. block_elements: logits that exist at once.
    """
    trained = lora_weights(shape, lora_rank) if lora_rank else shape.total
    weights = shape.total + (lora_weights(shape, lora_rank) if lora_rank else 0)
    layer = activation_bytes(shape, compute)
    per_token = shape.layers * 4 * shape.hidden + layer if checkpointing else shape.layers * layer
    cast = 0 if compute == 4 else compute * (shape.layers * shape.block)
    return {
        "weights": copies * weights * MASTER // shards,
        "gradients": copies * trained * MASTER // shards,
        "optimizer": copies * trained * ADAM // shards,
        # Autocast keeps its cast copy of each linear weight from the forward to the backward pass.
        "cast weights": cast if shards == 1 else cast // shape.layers,
        "references": references * (shape.total * compute + shape.embedding * (MASTER - compute)) // shards,
        "activations": tokens * per_token,
        # A few blocks of float32 logits, and the last states in and out of the head with their gradients.
        "logits": 3 * 4 * block_elements + tokens * shape.hidden * (2 * 4 + 2 * compute),
    }


def training_flops(shape: Shape, tokens: int, context: float, *, checkpointing: bool) -> float:
    """FLOPs of a forward and a backward pass: 6 a weight and token, a third more with recomputation, and attention's
    over a mean of `context` / 2 tokens seen."""
    forward = forward_flops(shape, tokens, context)
    return forward * (4 if checkpointing else 3)


def forward_flops(shape: Shape, tokens: int, context: float) -> float:
    """FLOPs of a forward pass over `tokens` in sequences of `context`."""
    attention = 4 * shape.layers * shape.heads * shape.head_dim * context / 2
    return tokens * (2.0 * shape.used + attention)
