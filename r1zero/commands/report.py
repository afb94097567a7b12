"""`r1zero report` and `r1zero serve`: folders to a page. Imports no torch."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from r1zero.errors import at_least

EXAMPLES = """\
examples:
  r1zero report runs/tiny-cpu                          writes runs/tiny-cpu/report.html
  r1zero report runs/lab-reward-hacking -o lab.html    every run of a lab, seeds overlaid
  r1zero report runs/seed-0 runs/seed-1 --gold truth
  r1zero report runs/evals/A runs/evals/B              two evaluations, question by question
"""


def add_parser(commands: Any) -> None:
    """Add `report` to the subparsers `commands` of an argparse parser; `arguments.run(arguments)` runs it."""
    parser = commands.add_parser(
        "report",
        help="one HTML page of runs or evaluations",
        description="Write one self-contained HTML page: curves, samples, reward hacking, evaluations, lineage.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER", help="a run, a pipeline, a lab, an evaluation")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="default: report.html in the first folder")
    parser.add_argument(
        "--gold", default="", metavar="TERM", help="reward term to trust (default: the first of weight 0)"
    )
    parser.set_defaults(run=write_report)
    serving = commands.add_parser(
        "serve",
        help="the same pages in a browser, while runs train",
        description="Serve the reports of all runs and evaluations under some folders, read-only.",
    )
    serving.add_argument("folders", nargs="*", type=Path, default=[Path("runs")], help="default: runs")
    serving.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, which only this machine can reach")
    serving.add_argument("--port", type=at_least(0), default=8042, help="default: 8042; 0: a free one")
    serving.set_defaults(run=serve_reports)


def write_report(arguments: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    from r1zero.report.build import write

    start = time.perf_counter()
    out = arguments.out or arguments.paths[0] / "report.html"
    size = write(arguments.paths, out, gold=arguments.gold)
    print(f"{out} ({size / 1e6:.1f} MB, {time.perf_counter() - start:.1f} s)")
    return 0


def serve_reports(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from r1zero.report.serve import Reports, address, is_loopback, server

    with server(Reports(arguments.folders), arguments.host, arguments.port) as running:
        print(f"{address(running, arguments.host)} (Ctrl-C ends it)", flush=True)
        if not is_loopback(arguments.host):
            print("anyone who can reach this address can read these runs: there is no password", file=sys.stderr)
        running.serve_forever()
    return 0
