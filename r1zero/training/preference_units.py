"""What stands in one place of a DPO batch: pairs, or thumbs with their mismatches, and the reference's word on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from accelerate import Accelerator

from r1zero.config import DPOConfig
from r1zero.data.preferences import Ranking, Thumb
from r1zero.models.policy import Row
from r1zero.training.reference_logprobs import reference_logprobs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """What stands in one place of a batch: a pair (chosen, rejected), or for kto a response and a mismatched one."""

    rows: tuple[Row, Row]
    """kto: the response, and another prompt's response put to this prompt, which measures the KL."""
    reference: tuple[float, float] = (0.0, 0.0)
    """log ref of both, summed over tokens."""
    desirable: bool = True
    """kto's thumb."""


def units_of_pairs(rankings: Sequence[Ranking]) -> list[Unit]:
    """Best against worst of each ranking."""
    return [Unit(rows=(r.chosen, r.rejected)) for r in rankings]


def units_of_thumbs(thumbs: Sequence[Thumb]) -> list[Unit]:
    """Each response with a mismatch: the next response in the data that answers another prompt.

    Fixed by the data's order, so that the reference's log-probabilities of mismatches are computed once as well.
    """
    units = []
    for i, thumb in enumerate(thumbs):
        others = (thumbs[(i + k) % len(thumbs)] for k in range(1, len(thumbs)))
        other = next((o for o in others if o.row.prompt_ids != thumb.row.prompt_ids), thumb)
        mismatch = Row(prompt_ids=thumb.row.prompt_ids, completion_ids=other.row.completion_ids)
        units.append(Unit(rows=(thumb.row, mismatch), desirable=thumb.desirable))
    return units


def with_reference(
    config: DPOConfig, model_path: Path, accelerator: Accelerator, *sets: list[Unit]
) -> tuple[list[Unit], ...]:
    """The units with the reference's log-probabilities, from the cache or computed now."""
    rows = [row for units in sets for u in units for row in u.rows]
    values = reference_logprobs(
        model_path, config.model, rows, config.optimizer.micro_batch_tokens, accelerator
    ).tolist()
    pairs = iter(zip(values[::2], values[1::2], strict=True))
    return tuple([dataclasses.replace(u, reference=next(pairs)) for u in units] for units in sets)


def longer_wins(units: Sequence[Unit]) -> float:
    """Share of pairs whose chosen response has more tokens (equal: half): the bias that DPO takes over."""
    lengths = [(len(u.rows[0].completion_ids), len(u.rows[1].completion_ids)) for u in units]
    return sum((a > b) + 0.5 * (a == b) for a, b in lengths) / max(len(lengths), 1)
