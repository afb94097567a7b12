"""`r1zero train RECIPE`: a recipe's settings, its help, or its run."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from r1zero.errors import UserError

EXAMPLES = """\
examples:
  r1zero train tiny-cpu                                      the smallest whole run, on a CPU
  r1zero train r1zero-1gpu --run.name try1 --optimizer.lr 2e-6
  r1zero train my-recipe.yaml --resume
"""


def add_parser(subparsers: Any) -> None:
    """Mount `train`; what it does not know is left to the recipe's own settings."""
    train = subparsers.add_parser(
        "train", help="train by a recipe", add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    train.add_argument("recipe", nargs="?", help="a recipe's name or a YAML file; `auto` picks by the hardware")
    train.add_argument("--resume", action="store_true", help="go on from the run's latest checkpoint")
    train.add_argument("--resume-or-start", action="store_true", help="--resume where the run exists, else start it")
    train.add_argument("--print_config", action="store_true", help="print the complete settings and stop")
    train.add_argument("-h", "--help", action="store_true", help="the settings people change")
    train.add_argument("--help-all", action="store_true", help="every setting, its default and meaning")
    train.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from r1zero.config import recipe

    if arguments.recipe is None:
        print("usage: r1zero train RECIPE [--resume] [--print_config] [--section.key value ...]\n")
        print(f"recipes: {', '.join(recipe.names())}, auto, or a YAML file")
        print("r1zero train RECIPE --help lists its settings\n\n" + EXAMPLES, end="")
        return 0 if arguments.help or arguments.help_all else 2
    name = hardware_recipe() if arguments.recipe == "auto" else arguments.recipe
    if arguments.help or arguments.help_all:
        print(recipe.help_text(name, every=arguments.help_all))
        return 0
    here = str(Path.cwd())
    if here not in sys.path:  # a recipe may name a verifier in a module beside it, as `verifiers check` does
        sys.path.append(here)
    config = recipe.load(name, arguments.rest)
    if arguments.print_config:
        import yaml

        from r1zero.runs.folder import plain

        print(yaml.safe_dump(plain(config), sort_keys=False), end="")
        return 0
    from r1zero.pipelines import stages
    from r1zero.runs.folder import RunFolder

    exists = RunFolder(config.run.root, config.run.name).exists
    stages.run(config, resume=arguments.resume or (arguments.resume_or_start and exists))
    if os.environ.get("RANK", "0") == "0":
        _report(RunFolder(config.run.root, config.run.name).path)
    return 0


def _report(folder: Path) -> None:
    """The run's page beside it. A run that has ended well is not failed by its picture."""
    from r1zero.report.build import write

    try:
        write([folder], folder / "report.html")
    except UserError as error:
        print(f"no report: {error}", file=sys.stderr)
        return
    print(f"report: {folder / 'report.html'}")


def hardware_recipe() -> str:
    """The default recipe of this machine, said aloud."""
    import torch

    if torch.cuda.is_available():
        name, why = "r1zero-1gpu", torch.cuda.get_device_name(0)
    else:
        name, why = "tiny-cpu", "no GPU"
    print(f"recipe {name} ({why})", file=sys.stderr)
    return name
