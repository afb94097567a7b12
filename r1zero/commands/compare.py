"""`r1zero compare A B`: two evaluations side by side, paired by problem."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from r1zero.commands.output import file_errors
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
    from r1zero.eval.compare import compare
    from r1zero.eval.output import report_text

    with file_errors():
        report = compare(Path(args.a), Path(args.b), force=args.force, seed=args.seed, draws=args.draws)
    print(report_text(report, args.show))
    return 0
