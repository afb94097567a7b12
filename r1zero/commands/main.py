"""The command line: `r1zero train | eval | compare | verifiers | doctor | recipes`.

Results go to stdout, everything else to stderr. A mistake of the user's is one line and exit code 2.
"""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Sequence
from pathlib import Path

from r1zero import __version__
from r1zero.errors import UserError

EXAMPLES = """\
examples:
  r1zero train tiny-cpu                                      the smallest whole run, on a CPU
  r1zero train r1zero-1gpu --run.name try1 --optimizer.lr 2e-6
  r1zero train my-recipe.yaml --resume
  r1zero train tiny-cpu --help                               every setting, its default and meaning
  r1zero eval runs/tiny-cpu/checkpoints/step-50              on its own held-out problems
  r1zero verifiers check math
  r1zero doctor
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        print(f"r1zero: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"r1zero: {error}: free some disk space, then go on (train: with --resume)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _dispatch(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="r1zero",
        description="Reasoning models by reinforcement learning from verifiable rewards.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"r1zero {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train = commands.add_parser(
        "train", help="train by a recipe", add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    train.add_argument("recipe", nargs="?", help="a recipe's name or a YAML file; `auto` picks by the hardware")
    train.add_argument("--resume", action="store_true", help="go on from the run's latest checkpoint")
    train.add_argument("--resume-or-start", action="store_true", help="--resume where the run exists, else start it")
    train.add_argument("--print_config", action="store_true", help="print the complete settings and stop")
    train.add_argument("-h", "--help", action="store_true")
    train.set_defaults(run=_train)
    commands.add_parser("recipes", help="list the recipes that ship").set_defaults(run=_recipes)
    commands.add_parser("doctor", help="what is installed, what will be used, what is wrong").set_defaults(run=_doctor)
    commands.add_parser(
        "rollout-server",
        help="start a vLLM server to train on: rollout-server MODEL [options of `vllm serve`]",
        add_help=False,
    ).set_defaults(run=_rollout_server)
    # Imported here: each pulls in what it needs, and a recipe's --help must not wait for torch.
    from r1zero.commands.eval import add_parser as add_eval
    from r1zero.commands.export import add_parser as add_export
    from r1zero.commands.plan import add_parser as add_plan
    from r1zero.commands.verifiers import add_parser as add_verifiers

    add_plan(commands)
    add_export(commands)
    add_eval(commands)
    add_verifiers(commands)
    arguments, rest = parser.parse_known_args(argv)
    if rest and arguments.command not in ("train", "plan", "rollout-server"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    arguments.rest = rest
    code: int = arguments.run(arguments)
    return code


def _train(arguments: argparse.Namespace) -> int:
    from r1zero.config import recipe

    if arguments.recipe is None:
        print("usage: r1zero train RECIPE [--resume] [--print_config] [--section.key value ...]\n")
        print(f"recipes: {', '.join(recipe.names())}, auto, or a YAML file")
        print("r1zero train RECIPE --help lists every setting\n\n" + EXAMPLES, end="")
        return 0 if arguments.help else 2
    name = hardware_recipe() if arguments.recipe == "auto" else arguments.recipe
    if arguments.help:
        print(recipe.help_text(name))
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
    from r1zero.runs.folder import RunFolder

    exists = RunFolder(config.run.root, config.run.name).exists
    recipe.run(config, resume=arguments.resume or (arguments.resume_or_start and exists))
    return 0


def hardware_recipe() -> str:
    """The default recipe of this machine, said aloud."""
    import torch

    if torch.cuda.is_available():
        name, why = "r1zero-1gpu", torch.cuda.get_device_name(0)
    else:
        name, why = "tiny-cpu", "no GPU"
    print(f"recipe {name} ({why})", file=sys.stderr)
    return name


def _rollout_server(arguments: argparse.Namespace) -> int:
    from r1zero.rollout.serve import main as serve

    serve(arguments.rest)
    return 0


def _recipes(arguments: argparse.Namespace) -> int:
    from r1zero.config import recipe

    for name in recipe.names():
        print(name)
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from r1zero.commands.doctor import report

    return report()


if __name__ == "__main__":
    sys.exit(main())
