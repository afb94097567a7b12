"""Problems given as Python objects, written to a file that a run and its resumption read like any other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r1zero.data.records import Problem
from r1zero.errors import UserError

GivenProblem = Problem | Mapping[str, Any] | tuple[str, str]
"""A `Problem`; a mapping with `problem` (or `prompt`) and `answer`, whatever else goes to the verifier; or a pair
(problem, answer)."""


def write_problems(problems: Sequence[GivenProblem], path: Path) -> None:
    """Write `path` (.jsonl), a row a problem. Raises UserError for no problems and for one that cannot be written."""
    given: Any = problems
    if not hasattr(given, "__len__") or isinstance(given, str):
        raise UserError(f"problems is a {type(given).__name__}: give a list of them")
    if not problems:
        raise UserError("problems is empty: give at least one")
    lines = []
    for number, problem in enumerate(problems):
        try:
            lines.append(json.dumps(_row(problem, number), ensure_ascii=False) + "\n")
        except (TypeError, ValueError) as error:
            raise UserError(f"problems[{number}] cannot be written as JSON: {error}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def _row(given: GivenProblem, number: int) -> dict[str, Any]:
    if isinstance(given, Problem):
        return {**given.data, "id": given.id or f"problem-{number}", "problem": given.prompt, "answer": given.answer}
    if isinstance(given, tuple) and len(given) == 2:
        return {"id": f"problem-{number}", "problem": given[0], "answer": str(given[1])}
    if isinstance(given, Mapping):
        row = {"id": f"problem-{number}", **given}
        if "problem" not in row and "prompt" in row:
            row["problem"] = row.pop("prompt")
        if isinstance(row.get("answer"), int | float):
            row["answer"] = str(row["answer"])
        if "problem" in row and ("answer" in row or "tests" in row):
            return row
    raise UserError(
        f"problems[{number}] is {given!r:.80}: give a Problem, a pair (problem, answer), or a mapping with problem and "
        "answer"
    )
