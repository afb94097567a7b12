"""Two evaluations side by side, question by question: is the difference more than noise, and where is it?

Refuses runs that are not of the same thing (other problems, template, sampling or grader): their difference would be
the settings'. What may only add noise (engine, versions, seed, k) is named and allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.folder import read_problems, read_results
from r1zero.eval.manifest import LIKE, differences
from r1zero.eval.result import by_problem
from r1zero.eval.samples import read_samples
from r1zero.eval.statistics import Paired, paired
from r1zero.verifiers import Outcome


@dataclass(frozen=True, kw_only=True)
class Question:
    """One problem's share of correct samples on both sides."""

    problem_id: str
    prompt: str
    a: float
    b: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One benchmark, A against B."""

    name: str
    num_problems: int
    a: float
    b: float
    """avg@k of each side, over the compared problems."""
    paired: Paired
    changed: tuple[Question, ...]
    """Problems whose share differs, the largest change first."""
    not_compared: int
    """Problems of which one side could not grade a sample."""

    @property
    def better(self) -> int:
        return sum(q.b > q.a for q in self.changed)

    @property
    def worse(self) -> int:
        return sum(q.b < q.a for q in self.changed)


@dataclass(frozen=True, kw_only=True)
class Report:
    comparisons: tuple[Comparison, ...]
    unlike: tuple[str, ...]
    """What makes the runs unlike, allowed by `force`."""
    notes: tuple[str, ...]
    """What differs and may only add noise."""


def compare(a: Path, b: Path, *, force: bool = False, seed: int = 0, draws: int = 10_000) -> Report:
    """B minus A on every benchmark that both have.

    Raises UserError for unlike runs unless `force`, for runs without a common benchmark, and for missing samples.
    """
    first, second = read_results(a), read_results(b)
    names = [name for name in first["benchmarks"] if name in second["benchmarks"]]
    if not names:
        raise UserError(
            f"{a} ({', '.join(first['benchmarks'])}) and {b} ({', '.join(second['benchmarks'])}) share none"
        )
    unlike = _unlike(first["manifest"], second["manifest"], names)
    if unlike and not force:
        raise UserError(
            f"the runs are not of the same thing: {'; '.join(unlike)}. Evaluate both under the same settings, regrade "
            "one (r1zero eval --regrade), or --force to compare all the same"
        )
    return Report(
        comparisons=tuple(_benchmark(a, b, name, _ks(first, second, name), seed, draws) for name in names),
        unlike=tuple(unlike),
        notes=tuple(_notes(first["manifest"], second["manifest"], names)),
    )


def _unlike(a: dict[str, Any], b: dict[str, Any], names: list[str]) -> list[str]:
    found = []
    for name in names:
        mine, theirs = a["benchmarks"][name], b["benchmarks"][name]
        for key in LIKE:
            for path, old, new in differences(mine[key], theirs[key], key):
                found.append(f"{name}: {path} is {old!r} and {new!r}")
    return found


def _notes(a: dict[str, Any], b: dict[str, Any], names: list[str]) -> list[str]:
    found = []
    for name in names:
        mine, theirs = a["benchmarks"][name]["k"], b["benchmarks"][name]["k"]
        found += [f"{name}: k is {mine} and {theirs}"] if mine != theirs else []
    for key in ("engine", "batch"):
        found += [f"{path} is {old!r} and {new!r}" for path, old, new in differences(a.get(key), b.get(key), key)]
    versions = differences(a["machine"]["versions"], b["machine"]["versions"])
    return found + [f"version of {path}: {old} and {new}" for path, old, new in versions]


def _benchmark(a: Path, b: Path, name: str, ks: tuple[int, int], seed: int, draws: int) -> Comparison:
    mine, theirs = read_problems(a, name), read_problems(b, name)
    prompts, others = {p.id: p.prompt for p in mine}, {p.id for p in theirs}
    shares_a, shares_b = _shares(a, name, mine, ks[0]), _shares(b, name, theirs, ks[1])
    # With --force the problem sets may differ: what both have is compared.
    ids = [i for i in prompts if i in others]
    if not ids:
        raise UserError(f"{name}: the two runs share no problem")
    questions = [
        Question(problem_id=i, prompt=prompts[i], a=shares_a[i], b=shares_b[i])
        for i in ids
        if i in shares_a and i in shares_b
    ]
    if not questions:
        raise UserError(f"{name}: no problem was graded in both runs")
    changed = sorted((q for q in questions if q.a != q.b), key=lambda q: (-abs(q.b - q.a), q.problem_id))
    return Comparison(
        name=name,
        num_problems=len(questions),
        a=sum(q.a for q in questions) / len(questions),
        b=sum(q.b for q in questions) / len(questions),
        paired=paired([q.a for q in questions], [q.b for q in questions], seed=seed, draws=draws),
        changed=tuple(changed),
        not_compared=len(ids) - len(questions),
    )


def _ks(a: dict[str, Any], b: dict[str, Any], name: str) -> tuple[int, int]:
    return a["manifest"]["benchmarks"][name]["k"], b["manifest"]["benchmarks"][name]["k"]


def _shares(folder: Path, name: str, problems: list[Problem], k: int) -> dict[str, float]:
    """Share of correct samples by problem; a problem with a sample that could not be graded is left out."""
    groups = by_problem(problems, read_samples(folder / name / "samples.jsonl"), k)
    return {
        problem.id: sum(s.correct for s in group) / k
        for problem, group in zip(problems, groups, strict=True)
        if all(s.outcome is not Outcome.ERROR for s in group)
    }
