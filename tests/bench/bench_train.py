"""The training phase against the machine: FLOP/s and peak memory.

    python tests/bench/bench_train.py [--threads 1]

Forward and backward pass of SmolLM2-135M over 4 prompts x 8 completions x 64 tokens, packed and padded. The figure is
the FLOP that have to be done for the tokens that went through the model (6 a weight and token; not counted: attention,
the head's second pass, and padding's share is counted as done) over the rate of a 2048 x 2048 matrix product measured
just before and after. Peak memory is that of the phase over what was held before it (Linux: the kernel's high-water
mark, set back each time). Times are processor time over all threads divided by the threads, which other programs on the
machine hardly change; run it with one thread there. How both grow: bench_scaling.py.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import time
from pathlib import Path

import torch

from r1zero import models
from r1zero.config import ModelConfig
from r1zero.models.policy import MicroBatch, Policy, Row, load_model, micro_batches

WORDS = 49_152


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS") or 1))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=40, help="tokens of a prompt")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {args.threads} threads, {', '.join(f'{x:.2f}' for x in os.getloadavg())} load")
    flops(args)


def flops(args: argparse.Namespace) -> None:
    model = load_model(models.resolve("smollm2:135m-instruct"), ModelConfig())
    policy = Policy(model, trained=True)
    head = policy.head.weight.numel()
    layers = sum(p.numel() for p in policy.backbone.parameters() if p.dim() == 2) - head
    rows = make_rows(prompts=4, group=8, prompt=args.prompt, tokens=64, words=WORDS)
    print(f"\n{'training phase':22}{'tokens':>8}{'seconds':>9}{'GFLOP/s':>9}{'matrix':>8}{'share':>7}{'peak GB':>9}")
    for dtype in (torch.bfloat16, torch.float32):
        for packed in (True, False):
            batches = micro_batches(rows, 4096, packed=packed)
            tokens = sum(batch.inputs.input_ids.numel() for batch in batches)
            done = 6 * (layers * tokens + head * sum(len(batch.targets) for batch in batches)) / 1e9
            train(policy, batches, dtype)  # warm
            rates, results = [matrix_rate(dtype, args.threads)], []
            for _ in range(args.rounds):
                results.append(measured(policy, batches, dtype, args.threads))
                rates.append(matrix_rate(dtype, args.threads))
            seconds, peak = min(results)
            name = f"{str(dtype).removeprefix('torch.')} {'packed' if packed else 'padded'}"
            rate = done / seconds
            print(
                f"{name:22}{tokens:8}{seconds:9.2f}{rate:9.0f}{max(rates):8.0f}{rate / max(rates):7.0%}{peak:9.2f}",
                flush=True,
            )


def make_rows(*, prompts: int, group: int, prompt: int, tokens: int, words: int) -> list[Row]:
    draw = random.Random(0)
    rows = []
    for _ in range(prompts):
        ids = tuple(draw.randrange(words) for _ in range(prompt))
        for _ in range(group):
            rows.append(Row(prompt_ids=ids, completion_ids=tuple(draw.randrange(words) for _ in range(tokens))))
    return rows


def train(policy: Policy, batches: list[MicroBatch], dtype: torch.dtype) -> None:
    for batch in batches:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            logprobs, _ = policy(batch)
        logprobs.mean().backward()


def measured(policy: Policy, batches: list[MicroBatch], dtype: torch.dtype, threads: int) -> tuple[float, float]:
    """(seconds, GB over what was held before, gradients included in both) of one forward and backward pass."""
    for parameter in policy.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps would be used again, and not show
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, began = kilobytes("VmRSS"), time.process_time()
    train(policy, batches, dtype)
    return (time.process_time() - began) / threads, (kilobytes("VmHWM") - before) * 1024 / 1e9


def matrix_rate(dtype: torch.dtype, threads: int, size: int = 2048) -> float:
    """GFLOP/s of a matrix product, the best of 5."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        a @ b
        best = min(best, (time.process_time() - began) / threads)
    return float(2 * size**3 / best / 1e9)


def kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
