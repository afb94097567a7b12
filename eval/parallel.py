"""Data parallel evaluation on one machine: n processes, each with its own GPUs and every n-th batch of the samples.

Batches have seeds of their own, so the samples are those of one process. Over several machines: give each
`--shard I/N` and the same `--out` on a shared filesystem, then run the command once without it, with their `--batch`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from r1zero.errors import UserError
from r1zero.eval.tasks import EvalSettings


def draw_shards(settings: EvalSettings, num_shards: int) -> None:
    """Draw all samples of `settings` into its folder by `num_shards` processes; `run_eval` then finds them there.

    Raises UserError when the machine has GPUs but too few, or when a shard failed (its own message is on stderr).
    """
    if num_shards < 1:
        raise UserError(f"--data-parallel must be 1 or more, got {num_shards}")
    devices = _devices(num_shards, settings.engine.tensor_parallel if settings.engine else 1)
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    shards = [
        context.Process(target=_shard, args=(replace(settings, shard=(i, num_shards)), devices[i]))
        for i in range(num_shards)
    ]
    for shard in shards:
        shard.start()
    for shard in shards:
        shard.join()
    failed = [i for i, shard in enumerate(shards) if shard.exitcode]
    if failed:
        raise UserError(
            f"shard {failed[0]} of {num_shards} failed (its message is above): what was sampled is kept, and the same "
            "command goes on"
        )


def _devices(num_shards: int, each: int) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each shard; None where there is no GPU."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names: Sequence[str] = visible.split(",") if visible else [str(i) for i in range(torch.cuda.device_count())]
    if not torch.cuda.is_available():
        return [None] * num_shards
    if len(names) < num_shards * each:
        raise UserError(
            f"--data-parallel {num_shards} x --tensor-parallel {each} needs more than the {len(names)} GPUs here"
        )
    return [",".join(names[i * each : (i + 1) * each]) for i in range(num_shards)]


def _shard(settings: EvalSettings, devices: str | None) -> None:
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    from r1zero.eval.run import run_eval

    assert settings.shard is not None
    label = f"shard {settings.shard[0]} of {settings.shard[1]}"
    try:
        run_eval(settings, say=lambda line: print(f"{label}: {line}", file=sys.stderr))
    except UserError as error:
        print(f"{label}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
