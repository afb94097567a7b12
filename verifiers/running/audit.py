"""Scoring a labelled file, or a run's own rollouts, with any verifiers: `r1zero verifiers audit FILE`.

A labelled file answers "how often is this verifier wrong?"; a run's rollouts, whose labels are the verdicts that were
trained on, answer "which completions would another verifier have judged otherwise?".
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, VerifierSpec, resolve
from r1zero.verifiers.running.pool import VerifierPool

# The first of these that a row has. `output` before `pred`: some sources keep the whole text and their extract of it.
GOLD_FIELDS = ("gold", "answer")
OUTPUT_FIELDS = ("output", "completion", "pred")
LABEL_FIELDS = ("correct", "expected")

# Read here; a row's other fields are the problem's data (tests in any shape, choices, a schema).
_OWN_FIELDS = frozenset(
    {*GOLD_FIELDS, *OUTPUT_FIELDS, *LABEL_FIELDS, "id", "problem", "problem_id", "prompt", "finish_reason",
     "num_tokens", "debatable", "verdicts", "data"}
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """One row of the file."""

    id: str
    sample: Sample
    expected: bool | None
    """The label; None where there is none, or where it is marked debatable."""
    group: str
    """Value of the field the report is broken down by."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One verifier's verdict on one row."""

    row: AuditRow
    verifier: str
    verdict: Verdict

    @property
    def says(self) -> bool | None:
        """Whether it calls the row correct; None where it says nothing (`timeout`, `error`)."""
        return None if self.verdict.outcome in (Outcome.TIMEOUT, Outcome.ERROR) else self.verdict.correct


@dataclass(frozen=True, kw_only=True)
class Audit:
    """Every verdict, and how long all of it took."""

    rows: Sequence[AuditRow]
    judged: Mapping[str, Sequence[Judged]]
    """By verifier, in the rows' order."""
    wall_seconds: Mapping[str, float]


def audit(rows: Sequence[AuditRow], specs: Sequence[VerifierSpec], pool: VerifierPool) -> Audit:
    """Score every row with every verifier, one verifier after the other so that the times are its own."""
    judged: dict[str, list[Judged]] = {}
    wall: dict[str, float] = {}
    for spec in specs:
        resolve(spec)
        # The first verdict waits for the worker's imports: not counted.
        if rows:
            pool.submit(spec, rows[0].sample).result()
        began = time.perf_counter()
        verdicts = pool.verify((spec, row.sample) for row in rows)
        wall[spec.name] = time.perf_counter() - began
        judged[spec.name] = [
            Judged(row=row, verifier=spec.name, verdict=verdict) for row, verdict in zip(rows, verdicts, strict=True)
        ]
    return Audit(rows=rows, judged=judged, wall_seconds=wall)


def counts(judged: Iterable[Judged]) -> dict[str, Any]:
    """Accuracy and errors against the labels. A row with no verdict (`timeout`, `error`) is not right, and neither a
    false positive nor a false negative."""
    labelled = [one for one in judged if one.row.expected is not None]
    right = sum(one.says is one.row.expected for one in labelled)
    return {
        "labelled": len(labelled),
        "right": right,
        "accuracy": right / len(labelled) if labelled else None,
        "false_positives": sum(one.says is True and one.row.expected is False for one in labelled),
        "false_negatives": sum(one.says is False and one.row.expected is True for one in labelled),
        "no_verdict": sum(one.says is None for one in labelled),
    }


def summary(result: Audit) -> dict[str, Any]:
    """`{"rows": n, "verifiers": {name: {counts, outcomes, seconds, groups}}, "disagreements": [ids]}`."""
    verifiers = {}
    for name, judged in result.judged.items():
        seconds = sorted(one.verdict.seconds for one in judged)
        outcomes = Counter(one.verdict.outcome for one in judged)
        groups = sorted({one.row.group for one in judged} - {""})
        verifiers[name] = {
            **counts(judged),
            "outcomes": {str(outcome): outcomes[outcome] for outcome in Outcome},
            "median_seconds": statistics.median(seconds) if seconds else None,
            "p99_seconds": seconds[int(0.99 * (len(seconds) - 1))] if seconds else None,
            "wall_seconds": result.wall_seconds[name],
            "groups": {group: counts(one for one in judged if one.row.group == group) for group in groups},
        }
    ids = [next(iter(verdicts)).row.id for verdicts in disagreements(result)]
    return {"rows": len(result.rows), "verifiers": verifiers, "disagreements": ids}


def disagreements(result: Audit) -> list[tuple[Judged, ...]]:
    """Rows on which the verifiers do not all say the same: each one's verdict. With one verifier there are none."""
    return [own for own in zip(*result.judged.values(), strict=True) if len({one.says for one in own}) > 1]


def report(result: Audit) -> dict[str, Any]:
    """What `--json` writes."""
    return {
        "summary": summary(result),
        "rows": [
            {
                "id": one.row.id,
                "verifier": one.verifier,
                "outcome": str(one.verdict.outcome),
                "score": one.verdict.score,
                "reason": one.verdict.reason,
                "extracted": one.verdict.extracted,
                "seconds": one.verdict.seconds,
                "expected": one.row.expected,
            }
            for judged in result.judged.values()
            for one in judged
        ],
    }


def read_rows(path: Path, group_by: str = "", problems: Path | None = None) -> list[AuditRow]:
    """The rows of a .jsonl file (also .gz, .zst), of a run's folder, or of its `rollouts/`.

    A row needs an output (`output`, `completion` or `pred`) and may have a gold (`gold` or `answer`), a label
    (`correct` or `expected`; `debatable` rows count as unlabelled), `id`, `problem`, `finish_reason`, `num_tokens`, and
    `data` for verifiers that need more than a gold. A row of a run has as label the verdict it was trained on.
    problems: a .jsonl file whose rows have what this file's rows lack, found by `problem_id`.
    Raises UserError, with file and line, for a file that cannot be read and a problem that is not there.
    """
    known = {str(raw.get("id")): raw for _, raw in _lines(problems)} if problems is not None else None
    rows = [_row(raw, f"{file.name}:{line}", group_by, known) for file in _files(path) for line, raw in _lines(file)]
    if not rows:
        raise UserError(f"{path}: no rows")
    if group_by and not any(row.group for row in rows):
        raise UserError(f"{path}: no row has a field {group_by!r}")
    return _with_unique_ids(rows)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    folder = path / "rollouts" if (path / "rollouts").is_dir() else path
    files = sorted(folder.glob("step-*.jsonl.zst"))
    if not files:
        raise UserError(f"{path}: neither a .jsonl file (.gz, .zst) nor a run's folder with rollouts in it")
    return files


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a JSONL file."""
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {number}: not JSON ({error.msg})") from error
        if not isinstance(raw, dict):
            raise UserError(f"{path}, line {number}: a JSON object is needed, got {type(raw).__name__}")
        yield number, raw


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".zst":
            import zstandard

            reader = zstandard.ZstdDecompressor().decompressobj()
            data = _unpacked(reader, data)
            if not reader.eof:
                raise UserError(f"{path}: cut off, not a whole zstd file")
        return data.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def _unpacked(reader: Any, data: bytes) -> bytes:
    import zstandard

    try:
        text: bytes = reader.decompress(data)
    except zstandard.ZstdError as error:
        raise OSError(f"no zstd data: {error}") from error
    return text


def _row(raw: Mapping[str, Any], where: str, group_by: str, known: Mapping[str, Any] | None) -> AuditRow:
    if known is not None:
        problem_id = str(raw.get("problem_id"))
        if problem_id not in known:
            raise UserError(f"{where}: its problem_id {problem_id!r} is not among the {len(known)} problems")
        lacking = {key: value for key, value in known[problem_id].items() if key not in ("id", *OUTPUT_FIELDS)}
        raw = {**lacking, **raw}
    output = _first(raw, OUTPUT_FIELDS)
    if output is None:
        raise UserError(f"{where}: needs one of the fields {', '.join(OUTPUT_FIELDS)}")
    gold = str(_first(raw, GOLD_FIELDS) or "")
    data = raw.get("data") or {key: value for key, value in raw.items() if key not in _OWN_FIELDS}
    finish_reason: FinishReason = "length" if raw.get("finish_reason") == "length" else "stop"
    question = str(raw.get("problem") or raw.get("prompt", ""))
    problem = Problem(id=str(raw.get("problem_id", "")), prompt=question, answer=gold, data=data, source=where)
    sample = Sample(
        completion=str(output),
        answer=gold,
        problem=problem,
        prompt=str(raw.get("prompt", "")),
        finish_reason=finish_reason,
        num_tokens=int(raw.get("num_tokens", 0)),
    )
    return AuditRow(
        id=str(raw.get("id") or where), sample=sample, expected=_label(raw, where), group=str(raw.get(group_by, ""))
    )


def _first(raw: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((raw[name] for name in names if raw.get(name) is not None), None)


def _label(raw: Mapping[str, Any], where: str) -> bool | None:
    if raw.get("debatable"):
        return None
    if "verdicts" in raw:
        # A run's row: its first term is the accuracy term.
        outcome = Outcome(next(iter(raw["verdicts"].values()))["outcome"])
        return None if outcome in (Outcome.TIMEOUT, Outcome.ERROR) else outcome is Outcome.CORRECT
    label = _first(raw, LABEL_FIELDS)
    if label not in (None, True, False):  # 0 and 1 are equal to these
        raise UserError(f"{where}: the label must be true or false, is {label!r}")
    return None if label is None else bool(label)


def _with_unique_ids(rows: Sequence[AuditRow]) -> list[AuditRow]:
    """Rows whose id another has are named by their place in the file as well."""
    seen = Counter(row.id for row in rows)
    return [
        row
        if seen[row.id] == 1
        else AuditRow(
            id=f"{row.id} ({row.sample.problem.source})", sample=row.sample, expected=row.expected, group=row.group
        )
        for row in rows
    ]


def write_json(result: Audit, path: Path) -> None:
    """Write `report` to `path`, whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(report(result), ensure_ascii=True, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    temporary.replace(path)
