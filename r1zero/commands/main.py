"""The command line: `r1zero train | eval | compare | report | serve | chat | verifiers | doctor | …`.

Results go to stdout, everything else to stderr. A mistake of the user's is one line and exit code 2.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence

from r1zero import __version__
from r1zero.commands.chat import add_parser as add_chat
from r1zero.commands.completion import add_parser as add_completion
from r1zero.commands.data import add_parser as add_data
from r1zero.commands.eval import add_parser as add_eval
from r1zero.commands.export import add_parser as add_export
from r1zero.commands.plan import add_parser as add_plan
from r1zero.commands.recipes import add_parser as add_recipes
from r1zero.commands.report import add_parser as add_report
from r1zero.commands.rollout_server import add_parser as add_rollout_server
from r1zero.commands.train import add_parser as add_train
from r1zero.commands.verifiers import add_parser as add_verifiers
from r1zero.errors import EXIT_CODES, REQUEUE, Requeue, UserError

EXAMPLES = """\
examples:
  r1zero train tiny-cpu                                      the smallest whole run, on a CPU
  r1zero train r1zero-1gpu --run.name try1 --optimizer.lr 2e-6
  r1zero train my-recipe.yaml --resume
  r1zero train tiny-cpu --help                               the settings people change (--help-all: every one)
  r1zero eval runs/tiny-cpu/checkpoints/step-50              on its own held-out problems
  r1zero verifiers check math
  r1zero doctor
"""


COMMANDS = (
    *(add_train, add_plan, add_recipes, add_data, add_verifiers, add_eval, add_report, add_chat),
    *(add_export, add_rollout_server, add_completion),
)
TAKES_MORE = ("train", "plan", "rollout-server")
"""Commands with options that are not argparse's: a recipe's settings, vLLM's own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        print(f"r1zero: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"r1zero: {error}: free some disk space, then go on (train: with --resume)", file=sys.stderr)
        return 2
    except Requeue:
        return REQUEUE
    except KeyboardInterrupt:
        return 130


def _dispatch(argv: list[str]) -> int:
    parser = build_parser()
    arguments, rest = parser.parse_known_args(argv)
    if rest and arguments.command not in TAKES_MORE:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest, arguments.parser = rest, parser
    code: int = arguments.run(arguments)
    sys.stdout.flush()
    return code


def build_parser() -> argparse.ArgumentParser:
    """Every command with its options; each file of this folder mounts its own. Imports no torch."""
    parser = argparse.ArgumentParser(
        prog="r1zero",
        description="Reasoning models by reinforcement learning from verifiable rewards.",
        epilog=f"{EXAMPLES}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"r1zero {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add_parser in COMMANDS:
        add_parser(commands)
    commands.add_parser("doctor", help="what is installed, what will be used, what is wrong").set_defaults(run=_doctor)
    return parser


def _doctor(arguments: argparse.Namespace) -> int:
    from r1zero.commands.doctor import report

    return report()


if __name__ == "__main__":
    sys.exit(main())
