"""Log-probabilities and entropy of tokens from hidden states and the language-model head, without their logits.

Logits of N tokens over V words are the largest tensor of a training step (2,048 tokens of a 49,152-word model: 400 MB
in float32, several times over in a plain backward pass). Here they exist one block of words at a time: the forward
pass keeps a running log-sum-exp, and the backward pass computes each block AGAIN. A loop over chunks in the forward
pass alone would bound nothing, as autograd keeps every chunk. Peak memory beyond inputs and gradients is a few times
`block_elements`, whatever N * V is.

Blocks go over words and not over tokens, so that each row of the head's gradient is written once: over tokens, the
whole (V, D) gradient would be read and written again for every chunk.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from r1zero.errors import UserError

CPU_BLOCK_ELEMENTS = 2**21
"""Tokens times words in one block: 8 MiB in float32, which stays in the cache."""
GPU_BLOCK_ELEMENTS = 2**26
"""256 MiB in float32: enough work for each kernel that launching it does not count."""
MIN_BLOCK_WORDS = 128
LOWEST_LOGIT = -1e30
"""A word that the head's bias rules out with -inf: e^-1e30 is 0 as well, and 0 * -1e30 is not nan."""


def token_logprobs(
    hidden: Tensor,  # (N, D) the state before each token
    weight: Tensor,  # (V, D) of the head
    targets: Tensor,  # (N,) int64, the token ids
    *,
    bias: Tensor | None = None,  # (V,)
    temperature: float = 1.0,
    block_elements: int | None = None,  # None: by device
    into_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """`(logprobs, entropy)`, both (N,): log softmax(logits / temperature)[target] and that softmax's entropy in nats.

    Both carry gradients to `hidden`, `weight` and `bias`; a gradient that is not asked for is not computed. Products
    run in the autocast type where autocast is on, else in the type of `hidden`; softmax and sums run in float32 (in
    float64 for float64 inputs), which is also the type of the results. Under bfloat16 a CPU rounds each logit to
    bfloat16, as every engine's head does there; a GPU keeps it in float32. N may be 0.

    into_grad: the backward pass adds the head's gradient to `weight.grad` itself, where `loss.backward()` would have
    put it, and hands none on: else autograd holds a second (V, D) tensor, for the whole backward pass where the head
    is tied to the embedding. `weight` has to be a leaf, such as a parameter. Not for `torch.autograd.grad`, nor where
    hooks wait for the gradient (data parallelism).

    Raises ValueError for a temperature that is not above 0, and for a target that is no row of `weight`.
    """
    if not temperature > 0 or math.isinf(temperature):
        raise ValueError(f"temperature must be a number above 0, got {temperature}")
    if bool(((targets < 0) | (targets >= len(weight))).any()):
        raise ValueError(f"targets must be in 0 .. {len(weight) - 1}, got {int(targets.min())} .. {int(targets.max())}")
    if block_elements is None:
        block_elements = GPU_BLOCK_ELEMENTS if hidden.is_cuda else CPU_BLOCK_ELEMENTS
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    with torch.autocast(device, enabled=False):
        results: tuple[Tensor, Tensor] = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, targets, temperature, block_elements, dtype, into_grad
        )
    return results


def language_model_head(model: nn.Module) -> nn.Linear:
    """The head of a Hugging Face causal model, when its logits are just `head(hidden)`.

    Raises UserError for a model that does more to its logits (a soft cap, a scale), or whose head is no plain linear
    layer: log-probabilities from `token_logprobs` would silently be of another distribution.
    """
    config: Any = getattr(model, "config", None)
    # Gemma 2, Cohere and Granite, MiniCPM, Falcon-H1: the neutral value of each.
    neutral = {"final_logit_softcapping": None, "logit_scale": 1, "logits_scaling": 1, "lm_head_multiplier": 1}
    for name, value in neutral.items():
        found = getattr(config, name, value)
        if found is not None and found != value:
            raise UserError(f"the model changes its logits ({name}={found}), which training does not support")
    head = getattr(model, "get_output_embeddings", lambda: None)()
    if type(head) is not nn.Linear:
        raise UserError(
            f"the language-model head is {type(head).__name__}, not a plain linear layer: leave it out of LoRA"
        )
    return head


def require_neutral_sampling(*, top_p: float = 1.0, top_k: int = 0, min_p: float = 0.0) -> None:
    """Raises UserError where sampling cuts the distribution: the trained log-probabilities are of the whole softmax.

    Temperature is no such cut: it is applied on both sides. Truncated sampling gives ratios that are wrong by the mass
    cut off, and tokens whose sampled probability the policy's gradient does not know of.
    """
    cuts = {"top_p": (top_p, 1.0), "top_k": (max(top_k, 0), 0), "min_p": (min_p, 0.0)}
    for name, (value, off) in cuts.items():
        if value != off:
            raise UserError(
                f"{name}={value} in training: log-probabilities are those of the whole distribution; set {name} to "
                f"{off} (temperature is supported, and evaluation may use {name})"
            )


class _TokenLogprobs(torch.autograd.Function):
    """See `token_logprobs`. Saves its inputs and two numbers a token; no logits."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        block_elements: int,
        dtype: torch.dtype,
        into_grad: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.temperature, ctx.dtype = temperature, dtype
        ctx.leaf = weight if into_grad else None  # itself, which saved tensors need not be
        ctx.words = _block_words(len(hidden), len(weight), block_elements)
        n, wide = len(hidden), _wide(dtype)
        # Running maximum m, s = sum e^(z - m) and t = sum e^(z - m) (z - m) over the words so far, in place of logits.
        m = torch.full((n,), LOWEST_LOGIT, dtype=wide, device=hidden.device)
        s, t, target_logit = torch.zeros_like(m), torch.zeros_like(m), torch.zeros_like(m)
        states = hidden.to(dtype)
        for start in range(0, len(weight), ctx.words):
            z = _logits(states, weight[start : start + ctx.words], _part(bias, start, ctx.words), temperature)
            columns, inside = _targets_here(targets, start, z.shape[1])
            target_logit = torch.where(inside, z.gather(1, columns)[:, 0], target_logit)
            new_m = torch.maximum(m, z.amax(1))
            z.sub_(new_m[:, None])
            shift = m - new_m
            decay = shift.exp()
            e = z.exp()
            t = decay * (t + shift * s) + torch.mul(e, z, out=z).sum(1)
            s = decay * s + e.sum(1)
            m = new_m
        log_s = s.log()
        logsumexp = m + log_s
        entropy = log_s - t / s
        ctx.save_for_backward(hidden, weight, bias, targets, logsumexp, entropy)
        ctx.set_materialize_grads(False)
        return target_logit - m - log_s, entropy  # and not less their sum, which large logits would round

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logprobs: Tensor | None, grad_entropy: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None, None, None]:
        hidden, weight, bias, targets, logsumexp, entropy = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        temperature, dtype = ctx.temperature, ctx.dtype
        states = hidden.to(dtype)
        grad_hidden = torch.zeros(hidden.shape, dtype=_wide(dtype), device=hidden.device) if need_hidden else None
        grad_weight = None
        if need_weight:
            grad_weight = torch.zeros_like(weight) if ctx.leaf is None else _grad_of(ctx.leaf)
        grad_bias = torch.empty_like(bias) if need_bias else None
        for start in range(0, len(weight), ctx.words):
            rows_of_weight = weight[start : start + ctx.words]
            z = _logits(states, rows_of_weight, _part(bias, start, ctx.words), temperature)
            log_p = z.sub_(logsumexp[:, None])
            here = _targets_here(targets, start, z.shape[1])
            grad = _grad_logits(log_p, here, grad_logprobs, grad_entropy, entropy)
            if grad_bias is not None:
                grad_bias[start : start + ctx.words] = grad.sum(0) / temperature
            narrow = grad.to(dtype)
            if grad_weight is not None:
                grad_weight[start : start + ctx.words].add_(narrow.t() @ states, alpha=1 / temperature)
            if grad_hidden is not None:
                grad_hidden += narrow @ rows_of_weight.to(dtype)
        if grad_hidden is not None:
            grad_hidden = (grad_hidden / temperature).to(hidden.dtype)
        handed_on = grad_weight if ctx.leaf is None else None
        return grad_hidden, handed_on, grad_bias, None, None, None, None, None


def _grad_of(leaf: Tensor) -> Tensor:
    """The gradient that a leaf has so far, zeros if it has none, to add to in place."""
    if leaf.grad is None:
        leaf.grad = torch.zeros_like(leaf)
    return leaf.grad


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None, temperature: float) -> Tensor:
    """(N, words) in the wide type, of a block of the head's rows."""
    wide, block = _wide(states.dtype), weight.to(states.dtype).t()
    if states.is_cuda and states.dtype != wide:
        z = torch.mm(states, block, out_dtype=wide)  # not rounded to bfloat16 on the way out; a CPU has no such product
    else:
        z = torch.mm(states, block).to(wide)
    if bias is not None:
        z.add_(bias).clamp_(min=LOWEST_LOGIT)
    return z if temperature == 1 else z.div_(temperature)


def _grad_logits(
    log_p: Tensor,  # (N, words), overwritten
    here: tuple[Tensor, Tensor],  # see `_targets_here`
    grad_logprobs: Tensor | None,  # (N,)
    grad_entropy: Tensor | None,  # (N,)
    entropy: Tensor,  # (N,)
) -> Tensor:
    """(N, words): d logprob / dz = onehot - p, and d entropy / dz = -p (log p + entropy)."""
    columns, inside = here
    minus_onehot = -inside[:, None].to(log_p.dtype)  # (N, 1)
    if grad_entropy is None:
        # The 1 goes in before rounding: 1 - p of a sure token would be lost in bfloat16.
        p_minus_onehot = log_p.exp_().scatter_add_(1, columns, minus_onehot)
        return p_minus_onehot.mul_(-grad_logprobs[:, None]) if grad_logprobs is not None else p_minus_onehot.zero_()
    p = log_p.exp()
    grad = log_p.add_(entropy[:, None]).mul_(p).mul_(-grad_entropy[:, None])
    if grad_logprobs is not None:
        grad.sub_(p.scatter_add_(1, columns, minus_onehot).mul_(grad_logprobs[:, None]))
    return grad


def _targets_here(targets: Tensor, start: int, words: int) -> tuple[Tensor, Tensor]:
    """(N, 1) each target's column in a block of words (any column if it has none), (N,) bool whether it has one.

    Not by `nonzero`, which would make a GPU wait in every block.
    """
    inside = (targets >= start) & (targets < start + words)
    return (targets - start).clamp(0, words - 1)[:, None], inside


def _part(bias: Tensor | None, start: int, words: int) -> Tensor | None:
    return None if bias is None else bias[start : start + words]


def _block_words(num_tokens: int, num_words: int, block_elements: int) -> int:
    """Words of a block: as many as `block_elements` allows, and not so few that the products get slow."""
    return min(max(block_elements // max(num_tokens, 1), MIN_BLOCK_WORDS), num_words)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
