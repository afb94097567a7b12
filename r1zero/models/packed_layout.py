"""Where everything stands in a packed sequence: token ids, positions, and what attention has to know of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

PackedAttention = Literal["by_prompt", "joined", "flex"]
"""How attention goes over a packed sequence: see `ModelConfig.packed_attention`."""
SEGMENT_ELEMENTS = 2**21
"""Attention scores of one head that a segment may have, padding included, where it has more than one completion."""
JOINED_ELEMENTS = 2**16
"""Attention scores of one head, padding included, up to which blocks are joined: what stays in a CPU's cache."""
FREE_ELEMENTS = 2**12
"""Scores that take as long as a turn of the loop over blocks: a block may be padded by so many to be joined."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Completions of one prompt whose attention is computed together, padded to the longest of them."""

    prompt: slice
    """Where the prompt's P tokens stand in the packed sequence."""
    own: slice
    """Where the n tokens of these completions stand."""
    first: bool
    """Whether this is its prompt's first segment, which computes the prompt's own attention too."""
    places: Tensor
    """(G, T) positions within `own` of each completion's tokens; 0 on padding, which is to the right."""
    inverse: Tensor
    """(n,) the place in the flattened (G, T) of each token of `own`."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """B prompts whose queries go through one set of matrix products: a segment of each, or the prompts themselves."""

    own: slice | Tensor
    """Where the n query tokens stand in the packed sequence, a slice where that is one."""
    places: Tensor
    """(B * G, T) positions within `own` of each row's tokens; 0 on padding, which is to the right."""
    inverse: Tensor
    """(n,) the place in the flattened (B * G, T) of each token of `own`."""
    context: slice | Tensor | None
    """Where the prompts' tokens stand, (B * P,) with place 0 on padding; None: the rows are prompts themselves."""
    padding: Tensor | None
    """(B, P) True where `context` is padding; None: nowhere."""
    prompts: int
    """B."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What attention has to know of a packed sequence."""

    segments: tuple[Segment, ...]
    blocks: tuple[Block, ...]
    longest: int
    """Tokens of the longest prompt plus completion."""
    row: Tensor
    """(L,) which row each token belongs to, numbered over prompts and completions alike."""
    prompt: Tensor
    """(L,) the row of the prompt of each token."""
    kind: PackedAttention
    masks: dict[str, Any] = field(default_factory=dict)
    """What a kernel makes of the above for itself, kept for the layers that follow."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """One packed sequence of L tokens."""

    input_ids: Tensor
    """(1, L)."""
    position_ids: Tensor
    """(1, L)."""
    predicting: Tensor
    """(N,) the position whose state predicts each completion token, in the order of the rows."""
    layout: Layout


def pack(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]],
    device: torch.device | str = "cpu",
    kind: PackedAttention = "by_prompt",
) -> Packed:
    """Pack (prompt ids, completion ids); rows of one prompt have to be neighbours, the longest first saves padding."""
    ids: list[int] = []
    positions: list[int] = []
    predicting: list[int] = []
    row: list[int] = []
    prompt_row: list[int] = []
    segments: list[Segment] = []
    parts: list[_Part] = []
    i = 0
    while i < len(rows):
        prompt = rows[i][0]
        end = i
        while end < len(rows) and rows[end][0] == prompt:
            end += 1
        start = len(ids)
        ids += prompt
        positions += range(len(prompt))
        number = row[-1] + 1 if row else 0
        row += [number] * len(prompt)
        place = slice(start, len(ids))
        first = True
        while i < end:
            longest = max(len(rows[i][1]) - 1, 1)
            count = max(1, SEGMENT_ELEMENTS // (longest * (longest + len(prompt))))
            chosen = [rows[k][1] for k in range(i, min(end, i + count))]
            begin = len(ids)
            for completion in chosen:
                predicting += [place.stop - 1, *range(len(ids), len(ids) + len(completion) - 1)]
                positions += range(len(prompt), len(prompt) + len(completion) - 1)
                ids += completion[:-1]
                row += [row[-1] + 1] * (len(completion) - 1)
            lengths = tuple(len(c) - 1 for c in chosen)
            segments.append(_segment(place, begin, lengths, first, device))
            if first:
                parts.append(_Part(own=place, lengths=(len(prompt),), context=None))
            if sum(lengths):
                parts.append(_Part(own=segments[-1].own, lengths=lengths, context=place))
            first = False
            i += len(chosen)
        prompt_row += [number] * (len(ids) - start)
    groups = _join(parts) if kind == "joined" else [[part] for part in parts]
    return Packed(
        input_ids=torch.tensor([ids], device=device),
        position_ids=torch.tensor([positions], device=device),
        predicting=torch.tensor(predicting, device=device),
        layout=Layout(
            segments=tuple(segments),
            blocks=tuple(_block(group, device) for group in groups),
            longest=max(len(p) + len(c) for p, c in rows),
            row=torch.tensor(row, device=device),
            prompt=torch.tensor(prompt_row, device=device),
            kind=kind,
        ),
    )


def _segment(prompt: slice, begin: int, lengths: Sequence[int], first: bool, device: torch.device | str) -> Segment:
    places, inverse = _padded(lengths)
    return Segment(
        prompt=prompt,
        own=slice(begin, begin + len(inverse)),
        first=first,
        places=places.to(device),
        inverse=inverse.to(device),
    )


def _padded(lengths: Sequence[int], longest: int = 0) -> tuple[Tensor, Tensor]:
    """`(places, inverse)` of rows of these lengths, one after the other: see `Block`."""
    counts = torch.tensor(lengths)
    mask = torch.arange(longest or int(counts.max()))[None, :] < counts[:, None]  # (G, T)
    places = torch.zeros(mask.shape, dtype=torch.long).masked_scatter(mask, torch.arange(int(counts.sum())))
    return places, mask.flatten().nonzero()[:, 0]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A segment's completions, or a prompt by itself, before blocks are made of them."""

    own: slice
    lengths: tuple[int, ...]
    context: slice | None

    @property
    def keys(self) -> int:
        return 0 if self.context is None else self.context.stop - self.context.start

    @property
    def elements(self) -> int:
        longest = max(self.lengths)
        return len(self.lengths) * longest * (longest + self.keys)


def _join(parts: list[_Part]) -> list[list[_Part]]:
    """Parts of like size together, as long as the padding costs less than the turns of the loop that it saves."""
    groups: list[list[_Part]] = []
    own = 0  # scores of the last group without the padding of joining
    for part in sorted(parts, key=lambda p: (p.context is None, max(p.lengths), p.keys, len(p.lengths)), reverse=True):
        if groups and (groups[-1][0].context is None) == (part.context is None):
            group = [*groups[-1], part]
            rows, longest = max(len(p.lengths) for p in group), max(max(p.lengths) for p in group)
            padded = len(group) * rows * longest * (longest + max(p.keys for p in group))
            if padded <= min(own + part.elements + FREE_ELEMENTS * (len(group) - 1), JOINED_ELEMENTS):
                groups[-1].append(part)
                own += part.elements
                continue
        groups.append([part])
        own = part.elements
    return groups


def _block(parts: list[_Part], device: torch.device | str) -> Block:
    rows = max(len(part.lengths) for part in parts)
    lengths = [n for part in parts for n in (*part.lengths, *([0] * (rows - len(part.lengths))))]
    places, inverse = _padded(lengths)
    own = _together([part.own for part in parts])
    context, padding = None, None
    slices = [part.context for part in parts if part.context is not None]
    if slices:
        sizes = [s.stop - s.start for s in slices]
        context = _together(slices)
        if min(sizes) < max(sizes):
            where, _ = _padded(sizes)
            padding = torch.arange(max(sizes))[None, :] >= torch.tensor(sizes)[:, None]
            flat = torch.cat([torch.arange(s.start, s.stop) for s in slices])
            context = flat[where.flatten()]
    return Block(
        own=own if isinstance(own, slice) else own.to(device),
        places=places.to(device),
        inverse=inverse.to(device),
        context=context.to(device) if isinstance(context, Tensor) else context,
        padding=None if padding is None else padding.to(device),
        prompts=len(parts),
    )


def _together(slices: Sequence[slice]) -> slice | Tensor:
    if len(slices) == 1:
        return slices[0]
    return torch.cat([torch.arange(s.start, s.stop) for s in slices])
