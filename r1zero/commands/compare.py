"""`r1zero compare A B`: two evaluations side by side, paired by problem."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from r1zero.commands.output import console, file_errors
from r1zero.errors import at_least


def add_parser(subparsers: Any) -> None:
    """Mount `compare`; the parsed namespace has a `run` that returns the exit code."""
    against = subparsers.add_parser(
        "compare",
        help="two evaluations side by side, paired by problem",
        description="B minus A: paired bootstrap and permutation test over problems. Unlike runs are refused.",
    )
    against.add_argument("a", help="folder of an evaluation")
    against.add_argument("b", help="folder of another")
    against.add_argument("--force", action="store_true", help="compare unlike runs all the same")
    against.add_argument("--seed", type=at_least(0), default=0)
    against.add_argument(
        "--draws", type=at_least(1), default=10_000, help="of the bootstrap and of the permutation test"
    )
    against.add_argument("--show", type=at_least(0), default=10, help="changed problems to list (default 10)")
    against.set_defaults(run=run_compare)


def run_compare(args: argparse.Namespace) -> int:
    """`r1zero compare A B`."""
    from rich.table import Table

    from r1zero.eval.compare import compare

    with file_errors():
        report = compare(Path(args.a), Path(args.b), force=args.force, seed=args.seed, draws=args.draws)
    for line in report.unlike:
        print(f"UNLIKE: {line}")
    for line in report.notes:
        print(f"note: {line}")
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
    console().print(summary)
    for c in report.comparisons:
        if c.not_compared:
            print(f"{c.name}: {c.not_compared} problems left out: a side could not grade all their samples")
        for q in c.changed[: args.show]:
            print(f"  {c.name} {q.problem_id}: {q.a:.0%} -> {q.b:.0%}  {' '.join(q.prompt.split())[:80]}")
        if len(c.changed) > args.show:
            print(f"  ... and {len(c.changed) - args.show} more changed (--show N)")
    return 0
