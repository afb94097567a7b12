"""`r1zero.evaluate` and `r1zero.compare`: the code of the commands, called from Python; what they return prints as a
table."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import r1zero.eval.compare as comparison
from r1zero.data.memory import GivenProblem, write_problems
from r1zero.errors import UserError
from r1zero.eval.output import as_text, report_text, table, warnings
from r1zero.eval.result import EvalResult
from r1zero.eval.run import run_eval
from r1zero.eval.tasks import EvalSettings

_PLAIN: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str}
"""The types of the settings that are one value, as `EvalSettings` spells them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Mapping[str, EvalResult]):
    """What an evaluation found: benchmark -> its result. Printed, it is the table of `r1zero eval`."""

    folder: Path
    """Where every sample is kept; `r1zero.compare` takes it."""
    label: str
    results: tuple[EvalResult, ...]

    def __getitem__(self, name: str) -> EvalResult:
        for result in self.results:
            if result.name == name:
                return result
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (result.name for result in self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        found = [f"warning: {line}" for result in self.results for line in warnings(result)]
        return "\n".join([as_text(table(self.results, self.label)), *found, f"folder: {self.folder}"])


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison:
    """B minus A, paired by problem. Printed, it is the output of `r1zero compare`."""

    report: comparison.Report

    def __repr__(self) -> str:
        return report_text(self.report)


def evaluate(
    model: str | os.PathLike[str],
    suite: str | Sequence[str] = (),
    *,
    k: int | None = None,
    problems: Sequence[GivenProblem] | None = None,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> Result:
    """Score a model folder, hub id, checkpoint or `Run`; the same settings again go on with, or read, the same folder.

    suite: benchmarks by name (`r1zero eval list`), data files; nothing: the held-out problems of the model's run.
    k: samples of each problem (None: the protocol's); problems: Python objects in place of a suite (see
    `data.memory.GivenProblem`); settings: fields of `EvalSettings`, such as template, temperature, max_tokens, limit,
    verifier, out. Raises UserError for what `r1zero eval` refuses.
    """
    unknown = settings.keys() - EvalSettings.__dataclass_fields__.keys()
    if unknown:
        raise UserError(f"evaluate: {', '.join(sorted(unknown))} is no setting of an evaluation: see EvalSettings")
    for field in fields(EvalSettings):
        value = k if field.name == "k" else settings.get(field.name)
        wanted = _PLAIN.get(str(field.type).removesuffix(" | None"))
        if value is not None and wanted is not None and not isinstance(value, wanted):
            raise UserError(f"evaluate: {field.name} is a {field.type}, got {value!r:.80}")
    names = (suite,) if isinstance(suite, str) else tuple(suite)
    if problems is None:
        return _evaluate(EvalSettings(checkpoint=os.fspath(model), suite=names, k=k, **settings), say)
    if names:
        raise UserError("evaluate: give a suite or problems, not both")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problems.jsonl"
        write_problems(problems, path)
        # Called by its content, which the result's manifest then names wherever the file was.
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        path = path.rename(Path(folder) / f"problems-{digest}.jsonl")
        return _evaluate(EvalSettings(checkpoint=os.fspath(model), suite=(str(path),), k=k, **settings), say)


def _evaluate(settings: EvalSettings, say: Callable[[str], None]) -> Result:
    done = run_eval(settings, say=say)
    return Result(folder=done.folder, label=done.label, results=done.results)


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *, force: bool = False, seed: int = 0, draws: int = 10_000
) -> Comparison:
    """B minus A on every benchmark that both evaluations have, with its interval and the problems that changed.

    a, b: what `evaluate` returned, or folders of evaluations. Raises UserError for unlike runs unless `force`.
    """
    return Comparison(report=comparison.compare(Path(a), Path(b), force=force, seed=seed, draws=draws))
