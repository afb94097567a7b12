"""Grading a finished evaluation again, from its own samples: after the verifier was mended, or with another. No GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.folder import EvalFolder, read_problems, read_results
from r1zero.eval.manifest import verifier_facts
from r1zero.eval.output import figures, markdown
from r1zero.eval.result import EvalResult, summarise
from r1zero.eval.samples import EvalSample, read_samples
from r1zero.eval.voting import DEFAULT_DRAWS, with_votes
from r1zero.verifiers import VerifierPool, VerifierSpec


@dataclass(frozen=True, kw_only=True)
class Change:
    """One sample that the two gradings judge differently."""

    benchmark: str
    before: EvalSample
    after: EvalSample


@dataclass(frozen=True, kw_only=True)
class Regraded:
    folder: Path
    results: tuple[EvalResult, ...]
    changes: tuple[Change, ...]


def regrade(folder: Path, pool: VerifierPool, *, out: Path | None = None, verifier: str = "") -> Regraded:
    """Grade every sample of `folder` again and write a folder of the same form to `out` (`FOLDER-regraded`).

    verifier: another one for all benchmarks; empty: each benchmark's own, as it is now. The old folder is left as it
    was. Raises UserError where it is no finished evaluation, or `out` is the folder itself.
    """
    before = read_results(folder)
    out = out or folder.with_name(f"{folder.name}-regraded")
    if out.resolve() == folder.resolve():
        raise UserError(f"--out {out} is the folder that is graded again: its verdicts would be lost; choose another")
    manifest: dict[str, Any] = {**before["manifest"], "regraded_from": folder.name}
    specs = {}
    for name, facts in before["manifest"]["benchmarks"].items():
        old = facts["verifier"]
        specs[name] = (
            VerifierSpec(name=verifier) if verifier else VerifierSpec(name=old["name"], options=old["options"])
        )
        benchmark = {**manifest["benchmarks"][name], "verifier": verifier_facts(specs[name])}
        manifest["benchmarks"] = {**manifest["benchmarks"], name: benchmark}
    target = EvalFolder(out)
    target.open(manifest)
    try:
        results, changes = [], []
        for name, spec in specs.items():
            problems = {p.id: replace(p, verifier="") if verifier else p for p in read_problems(folder, name)}
            samples = read_samples(folder / name / "samples.jsonl")
            unknown = next((s.problem_id for s in samples if s.problem_id not in problems), None)
            if unknown is not None:
                raise UserError(f"{folder / name}: a sample of {unknown!r}, which is none of its problems")
            graded = _grade(samples, problems, spec, pool)
            changes += [
                Change(benchmark=name, before=old, after=new)
                for old, new in zip(samples, graded, strict=True)
                if old.outcome is not new.outcome
            ]
            facts = manifest["benchmarks"][name]
            result = summarise(list(problems.values()), graded, facts["k"], name=name)
            result = with_votes(result, pool, spec, seed=facts["seed"], draws=manifest.get("cons_draws", DEFAULT_DRAWS))
            target.start(name, list(problems.values()))
            target.finish(name, result.samples)
            results.append(result)
        scores = {result.name: figures(result) for result in results}
        target.write_results(
            {**before, "benchmarks": scores, "manifest": manifest},
            markdown(
                results, str(manifest["checkpoint"]), {"regraded with": ", ".join(s.name for s in specs.values())}
            ),
        )
    finally:
        target.close()
    return Regraded(folder=out, results=tuple(results), changes=tuple(changes))


def _grade(
    samples: list[EvalSample], problems: Mapping[str, Problem], spec: VerifierSpec, pool: VerifierPool
) -> list[EvalSample]:
    """New verdicts; a sample the engine never gave stays the error it is."""
    asked = [(s, problems[s.problem_id]) for s in samples if not s.failed]
    verdicts = iter(pool.verify((spec.of(problem), s.verifier_input(problem)) for s, problem in asked))
    return [s if s.failed else s.with_verdict(next(verdicts)) for s in samples]
