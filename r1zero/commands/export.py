"""`r1zero export CHECKPOINT [--dtype bfloat16] [-o FOLDER] [--push-to-hub NAME]`: weights alone, with a model card."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("export", help="a checkpoint's weights alone, with a model card")
    parser.add_argument("checkpoint", help="a checkpoint's folder, or a run's: its latest")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("-o", "--output", help="the new folder; default: exports/RUN-STEP-DTYPE")
    parser.add_argument("--push-to-hub", metavar="NAME", help="upload it as OWNER/NAME (private, HF_TOKEN)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Export, push where asked to, print where it is and what it takes beside what the checkpoint takes."""
    from r1zero.runs.checkpoint import part_bytes, resolve_checkpoint
    from r1zero.runs.export import export, push

    source = Path(resolve_checkpoint(arguments.checkpoint))
    run_name = source.parent.parent.name if source.parent.name == "checkpoints" else "model"
    folder = Path(arguments.output or f"exports/{run_name}-{source.name}-{arguments.dtype}")
    export(str(source), folder, arguments.dtype)
    before, after = part_bytes(source), part_bytes(folder)
    print(f"{folder}: {sum(after.values()) / 1e6:.1f} MB ({arguments.dtype})")
    print(f"{source}: " + ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in before.items()))
    if arguments.push_to_hub:
        print(push(folder, arguments.push_to_hub))
    return 0
