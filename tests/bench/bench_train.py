"""The training phase against the machine: FLOP/s, and time and memory with length and with vocabulary.

    python tests/bench/bench_train.py [--parts flops length vocabulary] [--threads 1]

flops: forward and backward pass of SmolLM2-135M over 4 prompts x 8 completions x 64 tokens, packed and padded. The
figure is the FLOP that have to be done for the tokens that went through the model (6 a weight and token; not counted:
attention, the head's second pass, and padding's share is counted as done) over the rate of a 2048 x 2048 matrix product
measured just before and after. length, vocabulary: 4 layers of that model's shape with random weights.
Peak memory is that of the phase over what was held before it (Linux: the kernel's high-water mark, set back each time).
Times are processor time over all threads divided by the threads, which other programs on the machine hardly change;
run it with one thread there.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import time
from pathlib import Path
from typing import Any

import torch

from r1zero import models
from r1zero.config import ModelConfig
from r1zero.policy import MicroBatch, Policy, Row, load_model, micro_batches

WORDS, WIDTH = 49_152, 576


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="*", default=["flops", "length", "vocabulary"])
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS") or 1))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=40, help="tokens of a prompt in the flops part")
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096, 8192])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {args.threads} threads, {', '.join(f'{x:.2f}' for x in os.getloadavg())} load")
    if "flops" in args.parts:
        flops(args)
    if "length" in args.parts:
        length(args)
    if "vocabulary" in args.parts:
        vocabulary(args)


def flops(args: argparse.Namespace) -> None:
    model = load_model(models.resolve("smollm2:135m-instruct"), ModelConfig())
    policy = Policy(model)
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


def length(args: argparse.Namespace) -> None:
    policy = Policy(small_model(WORDS))
    print(f"\n{'1 completion, bfloat16':22}{'seconds':>9}{'ms a token':>12}{'peak GB':>9}{'KB a token':>12}")
    for tokens in args.lengths:
        batches = policy.micro_batches(make_rows(prompts=1, group=1, prompt=64, tokens=tokens - 64, words=WORDS), 1)
        seconds, peak = measured(policy, batches, torch.bfloat16, args.threads)
        print(
            f"{f'{tokens} tokens':22}{seconds:9.2f}{seconds / tokens * 1e3:12.2f}{peak:9.2f}"
            f"{peak / tokens * 1e6:12.0f}",
            flush=True,
        )


def vocabulary(args: argparse.Namespace) -> None:
    print(f"\n{'2048 tokens, bfloat16':22}{'seconds':>9}{'peak GB':>9}{'logits alone, float32':>24}")
    for words in (8_192, 49_152, 131_072, 262_144):
        policy = Policy(small_model(words))
        batches = policy.micro_batches(make_rows(prompts=4, group=8, prompt=40, tokens=64, words=words), 4096)
        seconds, peak = measured(policy, batches, torch.bfloat16, args.threads)
        print(f"{f'{words} words':22}{seconds:9.2f}{peak:9.2f}{2048 * words * 4 / 1e9:21.2f} GB", flush=True)


def make_rows(*, prompts: int, group: int, prompt: int, tokens: int, words: int) -> list[Row]:
    draw = random.Random(0)
    rows = []
    for _ in range(prompts):
        ids = tuple(draw.randrange(words) for _ in range(prompt))
        for _ in range(group):
            rows.append(Row(prompt_ids=ids, completion_ids=tuple(draw.randrange(words) for _ in range(tokens))))
    return rows


def small_model(words: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words,
            hidden_size=WIDTH,
            intermediate_size=1536,
            num_hidden_layers=4,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
        )
    )


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
    before, began = _kilobytes("VmRSS"), time.process_time()
    train(policy, batches, dtype)
    return (time.process_time() - began) / threads, (_kilobytes("VmHWM") - before) * 1024 / 1e9


def matrix_rate(dtype: torch.dtype, threads: int, size: int = 2048) -> float:
    """GFLOP/s of a matrix product, the best of 5."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        a @ b
        best = min(best, (time.process_time() - began) / threads)
    return float(2 * size**3 / best / 1e9)


def _kilobytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


if __name__ == "__main__":
    main()
