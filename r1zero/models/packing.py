"""Packed micro-batches: no padding through the model's layers, and the prompt of a group computed once.

The completions of a group have the same prompt. Packed, a micro-batch is one sequence of tokens

    prompt a | completion a1 | completion a2 | ... | prompt b | completion b1 | ...

in which only attention knows what belongs together: a completion sees its prompt and itself. With 8 completions of 64
tokens after 40 of prompt this is 552 tokens in place of 832, and the last token of a completion, which predicts
nothing, is left out as well. Positions count from the prompt's first token, for each completion anew.

The attention stands behind transformers' attention interface, so that a model's own code runs unchanged. Three ways to
compute it: matrix products that keep the prompt's keys and values apart (`packed_short.py`), for short sequences on a
CPU, where the backward pass of torch's flash kernel is slow; torch's `scaled_dot_product_attention` on whole rows, a
call a prompt, for everything else; and, where `model.packed_attention` is `flex`, one kernel of torch's flex attention
on a GPU for the whole sequence, which no GPU was at hand to try. What stands where: `packed_layout.py`.
Measured on SmolLM2-135M, 4 prompts x 8 completions x 64 tokens, bfloat16: 31% less time than padded rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from r1zero.models.packed_layout import Layout, Packed, Segment
from r1zero.models.packed_short import ShortAttention

ATTENTION = "r1zero_packed"
"""The name under which transformers finds this attention."""
MAX_SHORT = 1024
"""Tokens of prompt plus completion up to which the matrix products are faster than the flash kernel on a CPU."""


def supports_packing(model: PreTrainedModel) -> bool:
    """Whether every layer of `model` is plain causal attention behind transformers' attention interface.

    Sliding windows, state-space layers and attention chosen by the user (flash_attention_2, eager) take padded rows.
    """
    config: Any = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    return (
        config._attn_implementation in ("sdpa", ATTENTION)
        and getattr(model, "_supports_attention_backend", False)
        and not getattr(model, "_is_stateful", False)
        and kinds == {"full_attention"}
        and not window
    )


def use_packed_attention(model: PreTrainedModel) -> None:
    """Make `model` attend through this module; calls without a layout go to sdpa as before."""
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, packed_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation(ATTENTION)


def model_inputs(packed: Packed) -> dict[str, Any]:
    """Keyword arguments of a model's forward pass over a packed sequence."""
    # A mask of four dimensions is handed on as it is: else transformers builds one of (L, L) from the positions.
    unused = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=packed.input_ids.device)
    return {
        "input_ids": packed.input_ids,
        "position_ids": packed.position_ids,
        "attention_mask": unused,
        "layout": packed.layout,
    }


def packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, H, L, D)
    key: Tensor,  # (1, K, L, D), K heads that each serve H / K queries
    value: Tensor,  # (1, K, L, D)
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """(1, L, H, D) attention of a packed sequence; without a layout, transformers' sdpa attention.

    Raises ValueError for a kind of attention that only the model's own implementation knows.
    """
    if layout is None:
        result: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **options
        )
        return result
    unknown = [
        name for name in ("sliding_window", "softcap", "s_aux", "position_bias") if options.get(name) is not None
    ]
    if unknown or dropout:
        raise ValueError(f"packed attention knows no {', '.join(unknown) or 'dropout'}: set model.attention to eager")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    device = query.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else query.dtype
    q, k, v = (x[0].transpose(0, 1).to(dtype) for x in (query, key, value))  # (L, heads, D)
    if layout.kind == "flex" and device != "cpu":
        out: Tensor = flexible(q, k, v, layout, scale)
    elif device == "cpu" and layout.longest <= MAX_SHORT:
        out = ShortAttention.apply(q, k, v, layout, scale)  # type: ignore[no-untyped-call]
    else:
        out = _whole_rows(q, k, v, layout, scale)
    return out[None], None


def flexible(q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float) -> Tensor:
    """(L, H, D): one call of flex attention for the whole packed sequence; compiled on a GPU, eager on a CPU.

    On a CPU it has no backward pass and forms all L x L scores: there it serves to try the mask.
    """
    query, key, value = (x.transpose(0, 1)[None] for x in (q, k, v))
    kernel = _compiled() if q.is_cuda else flex_attention
    out: Tensor = kernel(
        query, key, value, block_mask=block_mask(layout), scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out[0].transpose(0, 1)


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


def block_mask(layout: Layout) -> BlockMask:
    """Which blocks of the L x L scores flex attention computes; made once a micro-batch and kept with its layout."""
    found = layout.masks.get("flex")
    if found is None:
        row, prompt = layout.row, layout.prompt

        def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            """A token sees what stands before it in its own row and in its prompt."""
            return (query >= key) & ((row[query] == row[key]) | (prompt[query] == row[key]))

        size = len(row)
        found = layout.masks["flex"] = create_block_mask(sees, None, None, size, size, device=str(row.device))
    return found


def _whole_rows(q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float) -> Tensor:
    """(L, H, D): causal attention over padded rows of prompt and completion, one call a segment."""
    parts: list[Tensor] = []
    for segment in layout.segments:
        size = segment.prompt.stop - segment.prompt.start

        query, key, value = (_rows(x, segment) for x in (q, k, v))
        out = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        ).transpose(1, 2)  # (G, P + T, H, D)
        if segment.first:
            parts.append(out[0, :size])
        parts.append(out[:, size:].flatten(0, 1).index_select(0, segment.inverse))
    return torch.cat(parts)


def _rows(x: Tensor, segment: Segment) -> Tensor:
    """(L, heads, D) -> (G, heads, P + T, D), what a segment's completions see and are."""
    group, longest = segment.places.shape
    prompt = x[segment.prompt].expand(group, -1, -1, -1)
    own = x[segment.own].index_select(0, segment.places.flatten()).view(group, longest, *x.shape[1:])
    return torch.cat([prompt, own], dim=1).transpose(1, 2)
