"""A run's rollouts, each file read once: figures of every step, texts early and late, and what the page keeps."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from r1zero.errors import UserError
from r1zero.report.curves import number
from r1zero.report.folders import Run
from r1zero.report.samples import Row, Shown, chosen_rows, chosen_steps, shown
from r1zero.report.words import Text, reflections
from r1zero.runs.folder import read_rollouts

QUANTILES = (5, 25, 50, 75, 95)
WORDS_A_STEP = 100
"""Completions a step, evenly taken, in which words are counted."""
_TEXTS = 1000
"""Completions compared of the first steps, a tenth of them, and of the last fifth."""
_OVERRATED = 20


@dataclass(kw_only=True)
class Digest:
    """What was read of one run's rollouts."""

    steps: list[int] = field(default_factory=list)
    completions: int = 0
    lengths: list[list[float]] = field(default_factory=list)
    """Of each step, the QUANTILES of the completions' tokens."""
    words: list[dict[str, float]] = field(default_factory=list)
    """Of each step, the share of completions with each reflection word in it."""
    length_reward: list[float | None] = field(default_factory=list)
    format_reward: list[float | None] = field(default_factory=list)
    """Of each step, Pearson's correlation over its completions; None where one of the two does not vary."""
    early: list[Text] = field(default_factory=list)
    late: list[Text] = field(default_factory=list)
    samples: list[Shown] = field(default_factory=list)
    overrated: list[tuple[float, int, Shown]] = field(default_factory=list)
    """Reward over the step's mean, a serial number, and the completion that the gold verifier does not like."""
    paid: int = 0
    """Completions offered to `overrated`: serial numbers, so that equal lifts are not compared further."""
    agreement: Counter[tuple[str, str, bool, bool]] = field(default_factory=Counter)
    """Of each two verifiers, how often each of the four pairs of correct or not was said."""


def digest(run: Run, index: int, *, gold: str, format_term: str, budget: int) -> Digest:
    """Read the rollouts of `run`, the page's `index`-th.

    gold, format_term: names of terms, or empty; budget: bytes of samples to keep, a third of them of held-out ones.
    Raises UserError for a file that cannot be read.
    """
    found = Digest()
    files = run.files("rollouts")
    first, last = max(1, len(files) // 10), max(1, len(files) // 5)
    keep = chosen_steps([step for step, _ in files])
    evals = run.files("eval")
    mine = budget if not evals else budget * 2 // 3 if files else 0
    wanted: set[str] = set()
    for place, (step, path) in enumerate(files):
        rows = _read(path)
        if not rows:
            continue
        lifts = _lifts(rows)
        _figures(found, step, rows, format_term)
        if place < first and len(files) > 1:
            found.early += _texts(rows, lifts, math.ceil(_TEXTS / first))
        elif place >= len(files) - last:
            found.late += _texts(rows, lifts, math.ceil(_TEXTS / last))
        if gold and place >= len(files) // 2:
            _overrated(found, rows, lifts, gold, lambda row, step=step: shown(row, index, step, "train"))
        if step in keep:
            picked = chosen_rows(rows, mine // len(keep), wanted)
            found.samples += [shown(row, index, step, "train") for row in picked]
    seen: set[str] = set()
    held_out = chosen_steps([step for step, _ in evals], 8)
    for step, path in evals:
        if step in held_out:
            picked = chosen_rows(_read(path), (budget - mine) // len(held_out), seen)
            found.samples += [shown(row, index, step, "held-out") for row in picked]
    return found


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        rows = read_rollouts(path)
    except (zstandard.ZstdError, ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): remove it to report on the rest") from error
    for row in rows:
        row["reward"] = number(row.get("reward", row.get("score")))  # nan: no figure of the page can be made with it
    return rows


def _lifts(rows: Sequence[Row]) -> list[float | None]:
    """Each reward less the mean of those that have one."""
    rewards = [row["reward"] for row in rows if row.get("reward") is not None]
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    return [None if row.get("reward") is None else row["reward"] - mean for row in rows]


def _texts(rows: Sequence[Row], lifts: Sequence[float | None], most: int) -> list[Text]:
    return [Text(str(rows[i].get("completion", "")), lifts[i]) for i in _evenly(len(rows), most)]


def _evenly(count: int, most: int) -> list[int]:
    return list(range(count)) if count <= most else [i * count // most for i in range(most)]


def _figures(found: Digest, step: int, rows: Sequence[Row], format_term: str) -> None:
    lengths = [float(row.get("num_tokens") or 0) for row in rows]
    rewards = [row.get("reward") for row in rows]
    found.steps.append(step)
    found.completions += len(rows)
    found.lengths.append([float(q) for q in np.percentile(lengths, QUANTILES)])
    some = _evenly(len(rows), WORDS_A_STEP)
    count = reflections(str(rows[i].get("completion", "")) for i in some)
    found.words.append({word: seen / len(some) for word, seen in count.items()})
    found.length_reward.append(correlation(lengths, rewards))
    kept = [(row.get("verdicts") or {}).get(format_term, {}).get("score") for row in rows] if format_term else []
    found.format_reward.append(correlation(kept, rewards) if kept else None)
    for row in rows:
        said = [(n, v["outcome"] == "correct") for n, v in (row.get("verdicts") or {}).items() if _judged(v)]
        for i, (a, a_says) in enumerate(said):
            for b, b_says in said[i + 1 :]:
                found.agreement[a, b, a_says, b_says] += 1


def _judged(verdict: Mapping[str, Any]) -> bool:
    return verdict.get("outcome") not in ("error", "timeout", None)


def correlation(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """Pearson's over the places where both have a number; None where one of them does not vary there."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    if len(pairs) < 2:
        return None
    x, y = np.asarray(pairs, dtype=np.float64).T
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(x @ x) * float(y @ y))
    return float(x @ y) / scale if scale > 1e-12 else None


def _overrated(found: Digest, rows: Sequence[Row], lifts: Sequence[float | None], gold: str, show: Any) -> None:
    """Keep the completions paid most over their step's mean of those the gold verifier does not call correct."""
    for row, lift in zip(rows, lifts, strict=True):
        verdict = (row.get("verdicts") or {}).get(gold)
        if lift is None or lift <= 0 or verdict is None or not _judged(verdict) or verdict["outcome"] == "correct":
            continue
        if len(found.overrated) < _OVERRATED or lift > found.overrated[0][0]:
            found.paid += 1
            one = (lift, found.paid, show(row))
            (heapq.heappush if len(found.overrated) < _OVERRATED else heapq.heapreplace)(found.overrated, one)
