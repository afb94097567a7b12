"""`r1zero plan RECIPE [--gpus 8x80] [--scale]`: what a recipe takes of memory and time, before it is run."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from r1zero.errors import UserError

if TYPE_CHECKING:
    from r1zero.pipelines.plan import Device


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("plan", help="memory and time of a recipe, before it is run")
    parser.add_argument("recipe", help="a recipe's name or a YAML file (stages grpo and ppo)")
    parser.add_argument("--gpus", default="", help="devices to plan for, such as 8x80; default: this machine")
    parser.add_argument("--sharded", action="store_true", help="weights, gradients and optimizer over all devices")
    parser.add_argument("--scale", action="store_true", help="step time of 1.5B, 7B and 32B on 1 to 512 GPUs as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; 0 where it fits, 1 where it does not. Settings are laid on the recipe as for `train`."""
    from r1zero.config import GRPOConfig, PPOConfig, recipe
    from r1zero.pipelines import plan, plan_scale

    config = recipe.load(arguments.recipe, arguments.rest)
    if not isinstance(config, GRPOConfig | PPOConfig):
        raise UserError(f"r1zero plan knows the stages grpo and ppo; {arguments.recipe} is {config.stage}")
    count, device = plan.parse_gpus(arguments.gpus) if arguments.gpus else this_machine()
    shape = plan.model_shape(config)
    parts = plan.memory(config, shape, device, shards=count if arguments.sharded else 1)
    print(f"{config.model.path}: {shape.total / 1e9:.2f} B weights; {count} device(s) of {device.gib:.1f} GiB")
    for phase, held in parts.items():
        print(f"{phase:10}{sum(held.values()) / plan.GIB:8.2f} GiB   " + named(held, plan.GIB))
    if device.tflops:
        times = plan.seconds(config, shape, device, count)
        print(f"{'step':10}{sum(times.values()):8.1f} s     " + ", ".join(f"{k} {v:.1f}" for k, v in times.items()))
        print(
            f"          at {plan.TRAIN_SHARE:.0%} of {device.tflops} TFLOP/s and {plan.DECODE_SHARE:.0%} of "
            f"{device.bandwidth} GB/s (assumed), every completion of {config.sampling.max_tokens} tokens"
        )
    found = plan.advice(config, parts, device, count)
    print("fits" if not found else "does not fit:\n  " + "\n  ".join(found))
    if arguments.scale:
        print("\n" + plan_scale.table())
    return 1 if found else 0


def named(held: dict[str, int], unit: int) -> str:
    return ", ".join(f"{name} {size / unit:.2f}" for name, size in held.items() if size)


def this_machine() -> tuple[int, Device]:
    """The GPUs here, or this machine's memory where there is none; a CPU has no rates, as no data sheet gives them."""
    import torch

    from r1zero.pipelines import plan

    if torch.cuda.is_available():
        gib = torch.cuda.get_device_properties(0).total_memory / plan.GIB
        _, known = plan.parse_gpus(f"1x{max(1, round(gib))}")
        device = plan.Device(gib=gib, tflops=known.tflops, bandwidth=known.bandwidth)
        return torch.cuda.device_count(), device
    bytes_here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 1, plan.Device(gib=bytes_here / plan.GIB, tflops=0, bandwidth=0, gpu=False)
