"""`r1zero verifiers list | show | check | audit`. Mounted by `r1zero.commands.main`."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1zero.data.verdict import Outcome
from r1zero.errors import UserError, at_least
from r1zero.verifiers.registry import Verifier, VerifierSpec, broken, get, names, resolve

if TYPE_CHECKING:
    from r1zero.verifiers.running.audit import Audit, Judged

EXAMPLES = """\
examples:
  r1zero verifiers list                                     every verifier there is, built-in or installed
  r1zero verifiers show math                                what it counts as correct, and its options
  r1zero verifiers check my_package.my_module:my_verifier   the conformance suite; exit code 1 when it fails
  r1zero verifiers audit labelled.jsonl --verifier math --verifier answer --json audit.json
  r1zero verifiers audit gpt4.jsonl --problems humaneval.jsonl --verifier code --deadline 30
  r1zero verifiers audit runs/tiny-cpu --verifier answer    what another verifier would have said of a run
"""


def add_parser(commands: Any) -> None:
    """Add `verifiers` to the subparsers `commands` of an argparse parser; `arguments.run(arguments)` runs it."""
    parser = commands.add_parser(
        "verifiers",
        help="list, show, check and audit verifiers",
        description="The verifiers there are, what they count as correct, and how far they can be trusted.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    actions.add_parser("list", help="every registered verifier").set_defaults(run=list_verifiers)

    show = actions.add_parser("show", help="docstring, options and example of one verifier")
    show.add_argument("name", help="a registered name, or package.module:function")
    show.set_defaults(run=show_verifier)

    check = actions.add_parser("check", help="run the conformance suite on one verifier")
    check.add_argument("name", help="a registered name, or package.module:function")
    check.set_defaults(run=check_verifier)

    audit = actions.add_parser("audit", help="score a labelled file, or a run's rollouts")
    audit.add_argument("file", type=Path, help=".jsonl (.gz, .zst) with gold, output, correct; or a run's folder")
    audit.add_argument("--verifier", action="append", metavar="NAME", help="may be given several times; default: math")
    audit.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of every verifier above that has it"
    )
    audit.add_argument(
        "--problems", type=Path, metavar="FILE", help="problems by id, for rows that only name theirs (tests, gold)"
    )
    audit.add_argument("--by", default="", metavar="FIELD", help="break the table down by a field of the rows")
    audit.add_argument("--json", type=Path, metavar="OUT", help="write every verdict and the summary")
    audit.add_argument("--limit", type=int, default=0, metavar="N", help="only the first N rows")
    audit.add_argument("--show", type=int, default=10, metavar="N", help="print N wrong or disputed rows (default: 10)")
    audit.add_argument("--workers", type=at_least(0), default=0, metavar="N", help="processes (default: one a core)")
    audit.add_argument(
        "--deadline", type=at_least(0.01, float), default=10.0, metavar="SECONDS", help="for each verdict (default: 10)"
    )
    audit.set_defaults(run=audit_file)


def list_verifiers(arguments: argparse.Namespace) -> int:
    """Print a line a verifier; a plugin that cannot be used is named with the reason."""
    rows = []
    for name in names():
        verifier = get(name)
        module = verifier.function.__module__
        origin = "built in" if module.startswith("r1zero.") else module
        rows.append((name, verifier.judges, origin, _first_line(verifier)))
    _print_table(("name", "judges", "from", "correct when"), rows)
    for name, reason in broken().items():
        print(f"{name}: cannot be used: {reason}", file=sys.stderr)
    return 1 if broken() else 0


def show_verifier(arguments: argparse.Namespace) -> int:
    """Print what a verifier says of itself."""
    _import_from_here()
    verifier = get(arguments.name)
    print(f"{verifier.name} ({verifier.function.__module__}:{verifier.function.__qualname__}), judges the", end=" ")
    print({"answer": "answer", "format": "format", "shaping": "shape"}[verifier.judges])
    print(f"\n{inspect.getdoc(verifier.function) or 'no docstring'}\n")
    print(f"reads: {', '.join(verifier.inputs) or 'nothing'}")
    print("options (default):" if verifier.options else "options: none")
    for option, default in verifier.options.items():
        print(f"  {option}: {default!r}")
    if verifier.example is not None:
        print(f"example: completion {verifier.example.completion!r}, answer {verifier.example.answer!r}")
    return 0


def check_verifier(arguments: argparse.Namespace) -> int:
    """Run the conformance suite; 1 when a check fails."""
    from r1zero.verifiers.running.conformance import check

    _import_from_here()
    checks = check(arguments.name)
    _print_table(("", "check", "why not"), [("ok" if c.passed else "FAILED", c.name, c.note) for c in checks])
    failed = sum(not c.passed for c in checks)
    print(f"{arguments.name}: {len(checks) - failed} of {len(checks)} checks passed")
    return 1 if failed else 0


def audit_file(arguments: argparse.Namespace) -> int:
    """Score a file and print the table, the rows in dispute, and where the whole was written."""
    from r1zero.verifiers.running.audit import audit, read_rows, write_json
    from r1zero.verifiers.running.pool import VerifierPool

    _import_from_here()
    rows = read_rows(arguments.file, arguments.by, arguments.problems)
    rows = rows[: arguments.limit] if arguments.limit > 0 else rows
    specs = _specs(arguments.verifier or ["math"], arguments.option)
    if arguments.json is not None and not arguments.json.parent.is_dir():
        raise UserError(f"--json {arguments.json}: there is no folder {arguments.json.parent}")
    with VerifierPool(arguments.workers or None, arguments.deadline) as pool:
        result = audit(rows, specs, pool)
    _print_audit(result, arguments.show)
    if arguments.json is not None:
        write_json(result, arguments.json)
        print(f"every verdict: {arguments.json}")
    return 1 if _only_errors(result) else 0


def _only_errors(result: Audit) -> bool:
    """Whether some verifier could judge no row at all; says which, and why, on stderr."""
    broken = False
    for name, judged in result.judged.items():
        if judged and all(one.verdict.outcome is Outcome.ERROR for one in judged):
            reason, count = Counter(one.verdict.reason for one in judged).most_common(1)[0]
            print(f"r1zero: {name} judged none of {len(judged)} rows; {count} times: {reason}", file=sys.stderr)
            broken = True
    return broken


def _print_audit(result: Audit, show: int) -> None:
    from r1zero.verifiers.running.audit import disagreements, summary

    table = []
    for name, figures in summary(result)["verifiers"].items():
        outcomes = " ".join(f"{outcome} {count}" for outcome, count in figures["outcomes"].items() if count)
        per_second = len(result.rows) / max(figures["wall_seconds"], 1e-9)
        times = f"{figures['median_seconds'] * 1000:.2f}", f"{figures['p99_seconds'] * 1000:.1f}", f"{per_second:.0f}"
        table.append((name, *_error_columns(figures), *times, outcomes))
        for group, own in figures["groups"].items():
            table.append((f"  {group}", *_error_columns(own), "", "", "", ""))
    errors = ("labelled", "right %", "false pos.", "false neg.", "no verdict")
    _print_table(("verifier", *errors, "median ms", "p99 ms", "rows/s", "outcomes"), table)
    mistaken = [one for judged in result.judged.values() for one in judged if _mistaken(one)]
    _print_disputed("not as labelled", mistaken, show)
    if len(result.judged) > 1:
        disputed = disagreements(result)
        print(f"the verifiers disagree on {len(disputed)} of {len(result.rows)} rows")
        _print_disputed("in dispute", [one for own in disputed for one in own], show * len(result.judged))


def _error_columns(figures: dict[str, Any]) -> tuple[str, ...]:
    accuracy = "-" if figures["accuracy"] is None else f"{100 * figures['accuracy']:.2f}"
    keys = ("false_positives", "false_negatives", "no_verdict")
    return (str(figures["labelled"]), accuracy, *(str(figures[key]) for key in keys))


def _mistaken(one: Judged) -> bool:
    return one.row.expected is not None and one.says is not one.row.expected


def _print_disputed(title: str, judged: Sequence[Judged], show: int) -> None:
    if not judged or show <= 0:
        return
    print(f"\n{title}: {len(judged)}" + (f", the first {show}:" if len(judged) > show else ":"))
    label = {True: "correct", False: "wrong", None: "-"}
    _print_table(
        ("row", "verifier", "label", "verdict", "gold", "extracted", "reason"),
        [
            (
                one.row.id,
                one.verifier,
                label[one.row.expected],
                str(one.verdict.outcome),
                _short(one.row.sample.answer),
                _short(one.verdict.extracted or ""),
                _short(one.verdict.reason, 90),
            )
            for one in judged[:show]
        ],
    )


def _specs(verifiers: Sequence[str], options: Sequence[str]) -> list[VerifierSpec]:
    """The verifiers with those of the options that each has. Raises UserError for an option that none has."""
    values = dict(_option(text) for text in options)
    specs = []
    for name in dict.fromkeys(verifiers):
        known = get(name).options
        spec = VerifierSpec(name=name, options={key: value for key, value in values.items() if key in known})
        resolve(spec)
        specs.append(spec)
    for key in values:
        if not any(key in spec.options for spec in specs):
            raise UserError(f"--option {key}: none of {', '.join(verifiers)} has it; see r1zero verifiers show NAME")
    return specs


def _option(text: str) -> tuple[str, Any]:
    """`key=value`; the value is JSON where it reads as JSON, else text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--option {text!r}: write it as NAME=VALUE")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def _import_from_here() -> None:
    """Let `module:function` name a file in the current folder, as `python -m` would, after everything installed."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _first_line(verifier: Verifier) -> str:
    doc = inspect.getdoc(verifier.function) or ""
    return re.sub(r"^Correct(, with score 0,)? when ", "", " ".join(doc.split("\n\n")[0].split()))


def _short(text: str, limit: int = 40) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns padded to their widest cell; the last is not padded, so that lines have no trailing blanks."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())
