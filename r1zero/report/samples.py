"""What a page shows of a completion, and which completions it shows: all of a small run, some of a large."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from r1zero.report.curves import number

Row = Mapping[str, Any]
Shown = dict[str, Any]
"""A completion as the page's script reads it; `shown` says which key is what."""

HEAD, TAIL = 8_000, 4_000
"""Characters shown of a completion that is longer than both together."""
_SHORT = 400
_STEPS = 24
_NEWEST = 6
_OF_A_GROUP = 4


def shown(row: Row, run: int, step: int, kind: str) -> Shown:
    """`row` of a rollouts or an eval file, shortened: run, kind, step, problem (`id`), prompt, answer, completion, its
    tokens, how it ended, verdicts as (term, outcome, score, reason, extracted), reward models' scores, reward and
    advantage; the last two are None where there is none."""
    verdicts = row.get("verdicts") or {}
    if not verdicts and "outcome" in row:
        verdicts = {"held-out": row}
    return {
        "run": run,
        "kind": kind,
        "step": step,
        "id": str(row.get("problem_id", "")),
        "prompt": shorten(str(row.get("prompt", "")), HEAD // 2, TAIL // 2),
        "answer": shorten(str(row.get("answer", "")), _SHORT, 0),
        "completion": shorten(str(row.get("completion", "")), HEAD, TAIL),
        "tokens": row.get("num_tokens"),
        "finish": row.get("finish_reason", ""),
        "verdicts": [
            [
                name,
                str(verdict.get("outcome", "")),
                number(verdict.get("score")),
                shorten(str(verdict.get("reason") or ""), _SHORT, 0),
                None if verdict.get("extracted") is None else shorten(str(verdict["extracted"]), _SHORT, 0),
            ]
            for name, verdict in verdicts.items()
        ],
        "scores": {name: number(score) for name, score in (row.get("scores") or {}).items()},
        "reward": number(row.get("reward", row.get("score"))),
        "advantage": number(row.get("advantage")),
    }


def shorten(text: str, head: int, tail: int) -> str:
    """`text`, or its two ends and how much stood between them."""
    if len(text) <= head + tail:
        return text
    return (
        f"{text[:head]}\n… {len(text) - head - tail:,} characters left out of this page …\n{text[len(text) - tail :]}"
    )


def chosen_steps(steps: Sequence[int], most: int = _STEPS) -> list[int]:
    """At most `most` of `steps`: the first, the newest six, and the others evenly between."""
    if len(steps) <= most:
        return list(steps)
    newest, older = list(steps[-_NEWEST:]), steps[:-_NEWEST]
    places = most - _NEWEST
    return [older[round(i * (len(older) - 1) / (places - 1))] for i in range(places)] + newest


def chosen_rows(rows: Iterable[Row], budget: int, wanted: set[str]) -> list[Row]:
    """Up to `budget` bytes of `rows`, whole prompts at a time: of each its best, its worst and some between; prompts in
    `wanted` first, to see the same one at several steps. Adds the prompts taken to `wanted`."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("problem_id", "")), []).append(row)
    taken: list[Row] = []
    size = 0
    for problem in sorted(groups, key=lambda one: one not in wanted):
        members = _of_group(groups[problem])
        size += sum(_bytes(row) for row in members)
        if taken and size > budget:
            break
        wanted.add(problem)
        taken += members
    return taken


def _of_group(rows: list[Row]) -> list[Row]:
    """The best, the worst, and of the rest what stands evenly between them."""
    ordered = sorted(rows, key=lambda row: -(row.get("reward") or row.get("score") or 0.0))
    if len(ordered) <= _OF_A_GROUP:
        return ordered
    return [ordered[round(i * (len(ordered) - 1) / (_OF_A_GROUP - 1))] for i in range(_OF_A_GROUP)]


def _bytes(row: Row) -> int:
    """About what `shown` takes as JSON; escapes of control characters counted."""
    text = str(row.get("completion", ""))
    ends = text if len(text) <= HEAD + TAIL else text[:HEAD] + text[-TAIL:]
    return 250 + len(json.dumps(ends)) + 150 * len(row.get("verdicts") or ())
