"""`r1zero recipes`: the recipes that ship, one a line."""

from __future__ import annotations

import argparse
from typing import Any

from r1zero.config import recipe


def add_parser(subparsers: Any) -> None:
    """Mount `recipes`."""
    subparsers.add_parser("recipes", help="list the recipes that ship").set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the names."""
    for name in recipe.names():
        print(name)
    return 0
