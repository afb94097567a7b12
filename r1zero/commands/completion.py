"""`r1zero completion bash`: a script that completes commands, recipes and settings, written by shtab."""

from __future__ import annotations

import argparse
from typing import Any

from r1zero.config import recipe
from r1zero.errors import UserError


def add_parser(subparsers: Any) -> None:
    """Mount `completion`."""
    parser = subparsers.add_parser(
        "completion",
        help="tab completion for a shell",
        description="Prints the script; for bash: source <(r1zero completion bash)",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script. Raises UserError without shtab."""
    try:
        import shtab
    except ImportError as error:
        raise UserError("tab completion needs the package: pip install 'r1zero[completion]'") from error
    parser: argparse.ArgumentParser = arguments.parser
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    train = commands.choices["train"]
    # A recipe's settings are read by another parser, and which there are depends on the recipe: here all are offered.
    for key in recipe.setting_names():
        train.add_argument(f"--{key}", help=argparse.SUPPRESS if key.count(".") > 1 else "setting")
    next(action for action in train._actions if action.dest == "recipe").choices = [*recipe.names(), "auto"]
    print(shtab.complete(parser, arguments.shell))
    return 0
