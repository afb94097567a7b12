"""Attention of a packed sequence by matrix products, for short sequences on a CPU, where torch's flash kernel is slow
in its backward pass: each prompt's keys and values are used in place for all of its completions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from r1zero.models.packed_layout import Block, Layout


class ShortAttention(torch.autograd.Function):
    """Attention by matrix products, each prompt's keys and values used in place for all of its completions.

    Scores are summed and normalised in float32, as flash attention does; probabilities are not kept but computed again
    in the backward pass from one number a query (the log-sum-exp of its scores).
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype)
        kept: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            for block in layout.blocks:
                result, lse = _attend(*_inputs(q, k, v, block), block.padding, scale)
                out[block.own] = _to_tokens(result, block.inverse)
                kept.append(lse)
        ctx.save_for_backward(q, k, v, out, *kept)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, out, *kept = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        with torch.autocast("cpu", enabled=False):
            delta = (grad_out.float() * out.float()).sum(-1)  # (L, H)
            for block, lse in zip(ctx.layout.blocks, kept, strict=True):
                inputs = _inputs(q, k, v, block)
                heads = k.shape[1]
                # Padding is no query: its gradient is 0, and then so is all that comes of it.
                d_out = _to_heads(grad_out[block.own], block, heads, padding=True)
                d = _to_heads(delta[block.own].unsqueeze(-1), block, heads, padding=True)
                d_query, d_own_key, d_own_value, d_key, d_value = _attend_backward(
                    *inputs, block.padding, ctx.scale, lse, d_out, d
                )
                dq[block.own] = _to_tokens(d_query, block.inverse)
                dk[block.own] += _to_tokens(d_own_key, block.inverse)
                dv[block.own] += _to_tokens(d_own_value, block.inverse)
                if block.context is not None and d_key is not None and d_value is not None:
                    _add(dk, block.context, d_key)
                    _add(dv, block.context, d_value)
        return dq, dk, dv, None, None


def _to_heads(x: Tensor, block: Block, heads: int, *, padding: bool = False) -> Tensor:
    """(n, H, D) -> (K, G, H / K, T, D) contiguous, for K = `heads`. `padding`: 0 on padding, else any token there."""
    group, longest = block.places.shape
    if len(block.inverse) == group * longest:
        rows = x
    elif padding:
        rows = x.new_zeros(group * longest, *x.shape[1:])
        rows[block.inverse] = x
    else:
        rows = x.index_select(0, block.places.flatten())
    return rows.reshape(group, longest, heads, -1, x.shape[-1]).permute(2, 0, 3, 1, 4).contiguous()


def _to_tokens(x: Tensor, inverse: Tensor) -> Tensor:
    """(K, G, R, T, D) -> (n, K * R, D)."""
    heads, group, each, longest, size = x.shape
    rows = x.permute(1, 3, 0, 2, 4).reshape(group * longest, heads * each, size)
    return rows if len(inverse) == len(rows) else rows.index_select(0, inverse)


def _add(total: Tensor, context: slice | Tensor, x: Tensor) -> None:
    """Add (K * B, P, D) to the rows of `total` (L, K, D) that `context` names; on its padding `x` is 0."""
    rows = x.view(total.shape[1], -1, *x.shape[1:]).permute(1, 2, 0, 3).flatten(0, 1)  # (B * P, K, D)
    if isinstance(context, slice):
        total[context] += rows
    else:
        total.index_add_(0, context, rows)


def _inputs(
    q: Tensor, k: Tensor, v: Tensor, block: Block
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Queries (K, B G, R, T, D), own keys and values (K, B G, 1, T, D), the prompts' (K * B, P, D)."""
    heads = k.shape[1]
    query, own_key, own_value = (_to_heads(x[block.own], block, heads) for x in (q, k, v))
    if block.context is None:
        return query, own_key, own_value, None, None
    key, value = (x[block.context].transpose(0, 1).reshape(heads * block.prompts, -1, x.shape[-1]) for x in (k, v))
    return query, own_key, own_value, key, value


def _scores(
    query: Tensor, own_key: Tensor, key: Tensor | None, padding: Tensor | None, scale: float
) -> tuple[Tensor, Tensor | None]:
    """float32 scores against the own keys (K * B G, R, T, T), -inf above the diagonal, and against the prompts'
    (K * B, G R T, P), -inf on padding."""
    heads, group, each, longest, size = query.shape
    wide = query.float()
    wide = wide * scale
    own = torch.bmm(
        wide.view(heads * group, each * longest, size), own_key.view(heads * group, longest, size).float().mT
    ).view(heads * group, each, longest, longest)
    own += torch.full((longest, longest), float("-inf")).triu(1)
    if key is None:
        return own, None
    prompt = torch.bmm(wide.view(len(key), -1, size), key.float().mT)
    if padding is not None:
        prompt.view(heads, *padding.shape[:1], -1, padding.shape[1]).masked_fill_(padding[:, None, :], float("-inf"))
    return own, prompt


def _attend(
    query: Tensor,
    own_key: Tensor,
    own_value: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    padding: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """(K, B G, R, T, D) attention, and the (K, B G, R, T) log-sum-exp of its scores."""
    heads, group, each, longest, size = query.shape
    shape = (heads, group, each, longest)
    own, prompt = _scores(query, own_key, key, padding, scale)
    highest = own.amax(-1).view(shape)
    if prompt is not None:
        highest = torch.maximum(highest, prompt.amax(-1).view(shape))
    own.sub_(highest.view(heads * group, each, longest, 1)).exp_()
    total = own.sum(-1).view(shape)
    out = torch.bmm(
        own.view(heads * group, each * longest, longest).to(query.dtype), own_value.view(heads * group, longest, size)
    ).view(query.shape)
    if prompt is not None and value is not None:
        prompt.sub_(highest.view(len(prompt), -1, 1)).exp_()
        total += prompt.sum(-1).view(shape)
        out = out.float() + torch.bmm(prompt.to(query.dtype), value).view(query.shape)
    return (out / total[..., None]).to(query.dtype), highest + total.log()


def _attend_backward(
    query: Tensor,
    own_key: Tensor,
    own_value: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    padding: Tensor | None,
    scale: float,
    lse: Tensor,  # (K, B G, R, T)
    d_out: Tensor,  # (K, B G, R, T, D)
    delta: Tensor,  # (K, B G, R, T, 1) sum over D of out * d_out
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of queries (K, B G, R, T, D), own keys and values (K, B G, 1, T, D), the prompts' (K * B, P, D)."""
    heads, group, each, longest, size = query.shape
    own, prompt = _scores(query, own_key, key, padding, scale)

    def one(p: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients from scores `p` (B, rows, keys) against keys and values (B, keys, D)."""
        batch = len(p)
        p.sub_(lse.reshape(batch, -1, 1)).exp_()
        d_o = d_out.view(batch, -1, size)
        d_value = torch.bmm(p.to(d_o.dtype).mT, d_o)
        d_score = torch.bmm(d_o, v.mT).float().sub_(delta.reshape(batch, -1, 1)).mul_(p).mul_(scale).to(query.dtype)
        return torch.bmm(d_score, k), torch.bmm(d_score.mT, query.view(batch, -1, size)), d_value

    d_query, d_own_key, d_own_value = one(
        own.view(heads * group, each * longest, longest),
        own_key.view(heads * group, longest, size),
        own_value.view(heads * group, longest, size),
    )
    d_query = d_query.view(query.shape)
    d_own_key, d_own_value = d_own_key.view(own_key.shape), d_own_value.view(own_key.shape)
    if prompt is None or key is None or value is None:
        return d_query, d_own_key, d_own_value, None, None
    more, d_key, d_value = one(prompt, key, value)
    return d_query + more.view(query.shape), d_own_key, d_own_value, d_key, d_value
