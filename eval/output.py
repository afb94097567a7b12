"""A result as figures for `results.json`, as a table for the terminal, as a Markdown row to paste."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from r1zero.eval.compare import Report
from r1zero.eval.result import EvalResult


def figures(result: EvalResult) -> dict[str, Any]:
    """The benchmark's entry of `results.json`. Shares are in [0, 1]. No times: the same samples give the same file."""
    return {
        "n": result.num_problems,
        "k": result.k,
        "avg@k": result.pass_at_1,
        "stderr": result.stderr,
        "ci95": list(result.ci95),
        "pass@k": {str(j): value for j, value in result.pass_at.items()},
        "cons@k": {str(j): value for j, value in result.cons_at.items()},
        "truncated": result.truncated,
        "unparseable": result.unparseable,
        "timeout": result.timeout,
        "error": result.error,
        "bounds": list(result.bounds),
        "tokens_per_answer": result.tokens_per_answer,
        "tokens_per_correct": result.tokens_per_correct,
        "by": {key: {value: asdict(mean) for value, mean in group.items()} for key, group in result.groups.items()},
    }


def table(results: Sequence[EvalResult], title: str) -> Table:
    """The terminal's table: a benchmark a row, then its levels or subjects."""
    out = Table(title=title, title_justify="left", title_style="bold")
    out.add_column("benchmark")
    for column in ("n x k", "avg@k", "95% interval", "pass@k", "cons@k", "cut", "unparseable", "error", "tokens"):
        out.add_column(column, justify="right")
    for result in results:
        best = max(result.pass_at, default=None)
        out.add_row(
            result.name,
            f"{result.num_problems} x {result.k}",
            percent(result.pass_at_1),
            interval(result.ci95),
            percent(result.pass_at[best]) if best and best > 1 else "",
            percent(result.cons_at[max(result.cons_at)]) if result.cons_at else "",
            percent(result.truncated),
            percent(result.unparseable),
            percent(result.error + result.timeout),
            f"{result.tokens_per_answer:.0f}",
        )
        for key, group in result.groups.items():
            if len(group) > 12:
                continue
            for value, mean in group.items():
                row = (f"  {key} {value}", str(mean.num_questions), percent(mean.mean), interval(mean.ci95))
                out.add_row(*row, style="dim")
    return out


def as_text(shown: Table, width: int = 160) -> str:
    """A table as plain text: a log file or a notebook is not cut to the 80 columns of a terminal that is not there."""
    console = Console(width=width, color_system=None, force_jupyter=False, force_terminal=False)
    with console.capture() as capture:
        console.print(shown)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def report_text(report: Report, show: int = 10) -> str:
    """A comparison as text: what makes the runs unlike, the table, then up to `show` changed problems a benchmark."""
    lines = [f"UNLIKE: {line}" for line in report.unlike] + [f"note: {line}" for line in report.notes]
    summary = Table("benchmark", "problems", "A", "B", "B - A", "95% interval", "p", "better", "worse")
    for c in report.comparisons:
        low, high = c.paired.ci95
        summary.add_row(
            c.name,
            str(c.num_problems),
            f"{c.a:.1%}",
            f"{c.b:.1%}",
            f"{c.paired.difference * 100:+.1f}",
            f"{low * 100:+.1f} to {high * 100:+.1f}",
            f"{c.paired.p_value:.2g}",
            str(c.better),
            str(c.worse),
        )
    lines.append(as_text(summary))
    for c in report.comparisons:
        if c.not_compared:
            lines.append(f"{c.name}: {c.not_compared} problems left out: a side could not grade all their samples")
        for q in c.changed[:show]:
            lines.append(f"  {c.name} {q.problem_id}: {q.a:.0%} -> {q.b:.0%}  {' '.join(q.prompt.split())[:80]}")
        if len(c.changed) > show:
            lines.append(f"  ... and {len(c.changed) - show} more changed (--show N)")
    return "\n".join(lines)


def markdown(results: Sequence[EvalResult], label: str, conditions: Mapping[str, str]) -> str:
    """A table to paste, with what the numbers were measured under in its last line."""
    head = ["model", *(f"{r.name} (n={r.num_problems}, k={r.k})" for r in results)]
    cells = [label]
    for r in results:
        half = (r.ci95[1] - r.ci95[0]) / 2
        cut = f", {r.truncated:.0%} cut" if r.truncated else ""
        errors = f", {percent(r.error)} not graded" if r.error else ""
        cells.append(f"{percent(r.pass_at_1)} ± {half * 100:.1f}{cut}{errors}")
    lines = [head, ["---"] * len(head), cells]
    rows = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    notes = "; ".join(f"{key} {value}" for key, value in conditions.items())
    return f"{rows}\n\navg@k with 95% interval over problems; {notes}\n"


def warnings(result: EvalResult) -> list[str]:
    """What a reader of the number must be told beside it."""
    found = []
    if result.error:
        low, high = result.bounds
        found.append(
            f"{result.name}: {result.error:.1%} of samples could not be graded; they are left out of avg@k, which lies "
            f"between {low:.1%} and {high:.1%}; run the same command again to draw them anew"
        )
    if result.timeout > 0.001:
        found.append(
            f"{result.name}: {result.timeout:.1%} of verifications ran past the deadline (counted as not correct)"
        )
    if result.truncated > 0.05:
        found.append(f"{result.name}: {result.truncated:.1%} of answers were cut at the token limit: it hides skill")
    if result.unparseable > 0.2:
        found.append(
            f"{result.name}: {result.unparseable:.1%} of the samples hold no answer that can be read: the template "
            "may not suit the model (try --template best)"
        )
    return found


def percent(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value * 100:.1f}%"


def interval(ci95: tuple[float, float]) -> str:
    return f"{ci95[0] * 100:.1f} to {ci95[1] * 100:.1f}"
