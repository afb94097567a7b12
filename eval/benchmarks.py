"""Benchmarks, loaded: the published ones (`published.py`), generated sources and data files.

A row comes from the hub (through `datasets`) or from a local file of `--data-dir`, in the hub's fields or in ours
(`problem`, `answer`, ...), and gives the same `Problem` either way: ids are the row's number in the benchmark's own
order, levels are text, whole numbers are written as such. `fingerprint` hashes what the rows say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from r1zero.config import DataConfig
from r1zero.data.datasets import fingerprint, load_problems
from r1zero.data.records import Problem
from r1zero.data.rows import SUFFIXES, read_file, read_hub
from r1zero.errors import UserError, unknown_name
from r1zero.eval.published import ALIASES, EQUAL, TESTS, Benchmark
from r1zero.eval.published import BENCHMARKS as BENCHMARKS
from r1zero.verifiers import VerifierSpec

WITHOUT_GOLD = ("ifeval", "livecodebench")
"""Graded by what stands in the problem's data, in the rows' own fields."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A benchmark's problems and how to grade them."""

    name: str
    problems: tuple[Problem, ...]
    verifier: VerifierSpec
    fingerprint: str
    """Of the problems' text, golds and tests, in order."""
    source: str
    """The hub id or the file they came from."""
    kind: str = "math"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else made them what they are: limit, seed, size."""


def load(
    name: str,
    *,
    data_dir: str = "",
    limit: int = 0,
    seed: int = 0,
    size: int = 500,
    verifier: VerifierSpec | None = None,
) -> Loaded:
    """The problems of a benchmark, of `reasoning_gym:TASK`, of `tiny:arithmetic`, or of a data file.

    A benchmark with dates may be cut to a window: `livecodebench@2024-08-01..2025-02-01`.
    data_dir: a folder with local copies of the benchmarks; empty: the hub. limit: a benchmark's first so many, or as
    many of a file or a generated source, drawn with `seed`. size: how many a generated source makes. verifier: instead
    of the benchmark's own.
    Raises UserError for an unknown name, a missing file, a row without its fields (named), another number of rows.
    """
    base, _, window = name.partition("@")
    base = ALIASES.get(base, base)
    if base in BENCHMARKS:
        return _load_benchmark(BENCHMARKS[base], data_dir, limit, verifier, window)
    is_file = name.endswith(SUFFIXES)
    if not (":" in name or is_file):
        raise unknown_name("benchmark", name, [*BENCHMARKS, "reasoning_gym:TASK", "tiny:arithmetic", "FILE.jsonl"])
    problems = load_problems(DataConfig(source=name, split="test", seed=seed, size=size, limit=limit))
    if is_file and verifier is None:  # one that was named may need neither answer nor tests
        _check_gradable(name, problems)
    return Loaded(
        name=_stem(name) if is_file else name.replace(":", "-"),
        problems=tuple(problems),
        verifier=verifier or _verifier_of(name, problems),
        fingerprint=fingerprint(problems),
        source=name,
        settings={"limit": limit, "seed": seed, **({} if is_file else {"size": size})},
    )


def _stem(path: str) -> str:
    """A file's name without its suffix and a hidden file's dot: what its samples' folder is called."""
    suffix = max((suffix for suffix in SUFFIXES if path.endswith(suffix)), key=len)
    return Path(path).name.removesuffix(suffix).lstrip(".") or "problems"


def _check_gradable(path: str, problems: Sequence[Problem]) -> None:
    """Raise UserError where one verifier cannot grade all rows."""
    broken = next((p for p in problems if "tests" in p.data and not _is_text(p.data["tests"])), None)
    if broken is not None:
        raise UserError(f"{path}: the tests of {broken.id!r} are no text: check the file")
    graded_by_tests = all("tests" in p.data for p in problems)
    lacking = next((p for p in problems if not p.answer and not graded_by_tests), None)
    if lacking is not None:
        raise UserError(f"{path}: {lacking.id!r} has no answer and others no tests: a file per kind of problem")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _verifier_of(source: str, problems: Sequence[Problem]) -> VerifierSpec:
    if source.startswith("reasoning_gym:"):
        return VerifierSpec(name="reasoning_gym")
    if source.startswith("tiny:"):
        return VerifierSpec(name="answer", options={"rules": ["answer_tag"]})  # as in the recipe tiny-cpu
    return TESTS if all("tests" in problem.data for problem in problems) else EQUAL


def _load_benchmark(entry: Benchmark, data_dir: str, limit: int, verifier: VerifierSpec | None, window: str) -> Loaded:
    path = _local_copy(entry, Path(data_dir)) if data_dir else None
    config = DataConfig(source=entry.hub, config=entry.config, split=entry.split)
    problems: list[Problem] = []
    for row in read_file(path) if path else read_hub(config):
        try:
            problem = entry.row(row.fields)
        except KeyError as error:
            raise UserError(
                f"{row.where}: no field {error}, so this is no row of {entry.title}: check the file"
            ) from None
        # What a field of another type, or tests that are no Python, raise on their way through `row`.
        except (TypeError, ValueError, AttributeError, SyntaxError) as error:
            raise UserError(f"{row.where}: not a row of {entry.title} ({error}): check the file") from None
        if problem is None:
            continue
        by_rule = entry.name in WITHOUT_GOLD or "tests" in problem.data
        if not problem.prompt.strip() or not (problem.answer or by_rule):
            raise UserError(f"{row.where}: an empty question or gold answer: check the file")
        if any("\ud800" <= c <= "\udfff" for c in problem.prompt + problem.answer):
            raise UserError(f"{row.where}: half of a UTF-16 pair (\\ud800 to \\udfff): not valid text")
        problems.append(replace(problem, id=f"{entry.name}-{len(problems):04d}", source=entry.name))
    source = str(path) if path else entry.hub
    # OlympiadBench's public copies differ by one row; anything else is a wrong or a cut file.
    if abs(len(problems) - entry.num_problems) > (entry.name == "olympiadbench"):
        raise UserError(f"{source} has {len(problems)} problems and {entry.title} has {entry.num_problems}")
    if window:
        problems = _in_window(problems, entry, window)
    problems = problems[:limit] if limit else problems
    return Loaded(
        name=f"{entry.name}@{window}" if window else entry.name,
        problems=tuple(problems),
        verifier=verifier or entry.verifier,
        fingerprint=fingerprint(problems),
        source=source,
        kind=entry.kind,
        settings={"limit": limit},
    )


def _in_window(problems: Sequence[Problem], entry: Benchmark, window: str) -> list[Problem]:
    """Those of contests from the first day of `FROM..TO` up to, and without, the last."""
    if not all("contest_date" in problem.data for problem in problems):
        raise UserError(f"{entry.title} has no contest dates: name it without @{window}")
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)", window)
    if not found:
        raise UserError(f"{entry.name}@{window}: a window is two days, as in {entry.name}@2024-08-01..2025-02-01")
    kept = [problem for problem in problems if found[1] <= problem.data["contest_date"] < found[2]]
    if not kept:
        raise UserError(f"{entry.name}@{window}: no contest is in that window")
    return kept


def _local_copy(entry: Benchmark, folder: Path) -> Path:
    """The benchmark's file in `folder` or one folder down. Raises UserError that lists the names looked for."""
    if not folder.is_dir():
        raise UserError(f"--data-dir {folder} is no folder")
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for stem in entry.files:
            for suffix in SUFFIXES:
                if (place / f"{stem}{suffix}").is_file():
                    return place / f"{stem}{suffix}"
    names = " or ".join(f"{stem}{{{','.join(SUFFIXES)}}}" for stem in entry.files)
    raise UserError(f"--data-dir {folder} has no copy of {entry.title}: looked for {names} in it and one folder down")
