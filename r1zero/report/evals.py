"""Evaluations as tables with intervals, and two of them side by side, question by question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from r1zero.report.folders import Evaluation, Run
from r1zero.report.samples import HEAD, TAIL, shorten

if TYPE_CHECKING:
    from r1zero.eval.compare import Comparison
    from r1zero.eval.samples import EvalSample

MOST_BYTES = 2_500_000
"""Of samples in a page of evaluations: beyond it, questions are left out, those answered alike by both first."""


def step_scores(run: Run) -> list[dict[str, Any]]:
    """The held-out scores in metrics.jsonl, a row an evaluation."""
    keys = ("eval/pass@1", "eval/ci95_low", "eval/ci95_high", "eval/score", "eval/truncated", "eval/tokens")
    return [
        {"step": row["step"], **{key.removeprefix("eval/"): row.get(key) for key in keys}}
        for row in run.rows
        if "eval/pass@1" in row
    ]


def side_by_side(a: Evaluation, b: Evaluation) -> list[dict[str, Any]]:
    """Every benchmark that both have: the comparison, and each question with both sides' samples.

    Raises UserError as `compare` does, for evaluations that are not of the same thing.
    """
    from r1zero.eval.compare import compare  # imports torch, which a page of runs does not wait for

    report = compare(a.path, b.path)
    share = MOST_BYTES // len(report.comparisons)
    return [
        {
            "name": one.name,
            "comparison": one,
            "notes": report.notes,
            **_questions(one.name, (a, b), share),
            "verdict": verdict(one),
        }
        for one in report.comparisons
    ]


def verdict(one: Comparison) -> str:
    """What the interval allows to say."""
    low, high = one.paired.ci95
    if low > 0:
        return "B is better: the interval of the difference lies above 0"
    if high < 0:
        return "A is better: the interval of the difference lies below 0"
    return "the difference may be chance: its interval holds 0"


def _questions(name: str, sides: Sequence[Evaluation], budget: int) -> dict[str, Any]:
    from r1zero.eval.folder import read_problems
    from r1zero.eval.samples import read_samples

    samples: list[dict[str, list[EvalSample]]] = []
    for side in sides:
        groups: dict[str, list[EvalSample]] = {}
        for sample in read_samples(side.path / name / "samples.jsonl"):
            groups.setdefault(sample.problem_id, []).append(sample)
        samples.append(groups)
    rows = []
    for problem in read_problems(sides[0].path, name):
        groups_here = [side.get(problem.id, []) for side in samples]
        shares = [sum(s.correct for s in group) / len(group) if group else None for group in groups_here]
        rows.append(
            {
                "id": problem.id,
                "prompt": shorten(problem.prompt, HEAD // 2, TAIL // 2),
                "answer": shorten(problem.answer, 400, 0),
                "shares": shares,
                "samples": [[_sample(s) for s in group[:4]] for group in groups_here],
            }
        )
    # Where the two differ is what one reads: those are kept first, and the file's order within.
    ordered = sorted(range(len(rows)), key=lambda i: len(set(rows[i]["shares"])) == 1)
    kept: list[int] = []
    size = 0
    for i in ordered:
        size += len(str(rows[i]))
        if kept and size > budget:
            break
        kept.append(i)
    return {"questions": [rows[i] for i in sorted(kept)], "all_questions": len(rows)}


def single(one: Evaluation) -> list[dict[str, Any]]:
    """Every benchmark of one evaluation, each question with its samples."""
    names = list(one.results["benchmarks"])
    return [{"name": name, **_questions(name, (one,), MOST_BYTES // len(names))} for name in names]


def _sample(one: EvalSample) -> dict[str, Any]:
    return {
        "completion": shorten(one.completion, HEAD, TAIL),
        "outcome": str(one.outcome),
        "score": one.score,
        "reason": shorten(one.reason, 400, 0),
        "extracted": None if one.extracted is None else shorten(one.extracted, 400, 0),
        "tokens": one.num_tokens,
        "finish": one.finish_reason,
    }
