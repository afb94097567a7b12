"""`r1zero rollout-server MODEL`: a vLLM server to train on, for `engine.name=vllm-server`."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(commands: Any) -> None:
    """Mount `rollout-server`; what follows the model are vLLM's own options."""
    commands.add_parser(
        "rollout-server",
        help="start a vLLM server to train on: rollout-server MODEL [options of `vllm serve`]",
        add_help=False,
    ).set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until stopped."""
    from r1zero.rollout.serve import main as serve

    serve(arguments.rest)
    return 0
