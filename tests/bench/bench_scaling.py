"""How time and memory of the training phase grow with length and with vocabulary.

    python tests/bench/bench_scaling.py [--lengths 256 ... 8192] [--words 1024 ... 131072] [--threads 1]

One forward and backward pass of 4 layers of SmolLM2-135M's shape with random weights, bfloat16, weights and gradients
held before it (as in every micro-batch of a step but the first). Beside it `activations alone`: the same tokens through
the same layers with the sum of the last states for a loss, no head. length: one completion, 8,192 words. vocabulary: 4
prompts x 8 completions, 2,048 tokens predicted.

Every figure comes from a process of its own, forked before torch has computed anything. Peak memory is the kernel's
high-water mark of resident memory (set back before the pass, Linux only) over what was resident then. In that process
malloc maps and unmaps everything over 64 KiB, so the mark is of living tensors and of the libraries' buffers, not of
freed memory kept for later; mapping takes time, so the seconds are of another process, as users run it: processor time
over all threads divided by the threads, which other programs on the machine hardly change.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from r1zero.models.policy import MicroBatch, Policy, Row, states_before

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.bench.bench_train import kilobytes, make_rows

WIDTH, FEW_WORDS = 576, 8192
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""malloc's names for its settings (malloc.h); setting either keeps glibc from moving them."""
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--words", type=int, nargs="*", default=[1024, 16_384, 65_536, 131_072])
    parser.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS") or 1))
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {args.threads} threads, {', '.join(f'{x:.2f}' for x in os.getloadavg())} load")
    if args.lengths:
        length(args.lengths, args.threads)
    if args.words:
        vocabulary(args.words, args.threads)


def length(lengths: Sequence[int], threads: int) -> None:
    print(f"\n{'':14}{'training phase':>36}{'activations alone':>20}{'more':>12}")
    print(f"{'tokens':14}{'seconds':>12}{'ms a token':>12}{'peak MiB':>12}{'peak MiB':>20}{'MiB':>12}")
    peaks: list[tuple[int, float, float]] = []
    for tokens in lengths:
        rows = make_rows(prompts=1, group=1, prompt=64, tokens=tokens - 64, words=FEW_WORDS)
        seconds, peak, alone = figures(FEW_WORDS, rows, threads)
        line = f"{tokens:<14}{seconds:12.2f}{seconds / tokens * 1e3:12.2f}{peak:12.0f}{alone:20.0f}{peak - alone:12.0f}"
        print(line, flush=True)
        peaks.append((tokens, peak, alone))
    (first, *low), (last, *high) = peaks[0], peaks[-1]
    if last > first:
        phase, alone = ((now - then) * 1024 / (last - first) for now, then in zip(high, low, strict=True))
        ratio = f"{phase:.1f} and {alone:.1f} KiB a token, ratio {phase / alone:.3f} (bar: 1.3)"
        print(f"slope from {first} to {last} tokens: {ratio}")


def vocabulary(sizes: Sequence[int], threads: int) -> None:
    print(f"\n{'':14}{'training phase':>24}{'activations alone':>20}{'held before':>24}{'never held':>12}")
    print(f"{'words':14}{'seconds':>12}{'peak MiB':>12}{'peak MiB':>20}{'head and gradient':>24}{'logits':>12}")
    rows = make_rows(prompts=4, group=8, prompt=40, tokens=64, words=min(sizes))
    for words in sizes:
        seconds, peak, alone = figures(words, rows, threads)
        held, logits = words * WIDTH * 4 * 2 / MIB, 2048 * words * 4 / MIB
        print(f"{words:<14}{seconds:12.2f}{peak:12.0f}{alone:20.0f}{held:24.0f}{logits:12.0f}", flush=True)


def figures(words: int, rows: Sequence[Row], threads: int) -> tuple[float, float, float]:
    """(seconds, peak MiB) of the training phase, and the peak MiB of its activations alone."""
    seconds, _ = apart(words, rows, threads, head=True, exact=False)
    _, peak = apart(words, rows, threads, head=True, exact=True)
    _, alone = apart(words, rows, threads, head=False, exact=True)
    return seconds, peak, alone


def apart(words: int, rows: Sequence[Row], threads: int, *, head: bool, exact: bool) -> tuple[float, float]:
    """`measured` in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(measured(words, rows, threads, head=head, exact=exact)))
    child.start()
    sender.close()
    result: tuple[float, float] = receiver.recv()
    child.join()
    return result


def measured(words: int, rows: Sequence[Row], threads: int, *, head: bool, exact: bool) -> tuple[float, float]:
    """(seconds, peak MiB over what was held before) of one pass, after one over a few tokens that warms up.

    exact: malloc keeps nothing.
    """
    libc = ctypes.CDLL(None)
    if exact:
        libc.mallopt(M_MMAP_THRESHOLD, 1 << 16)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 16)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    policy = Policy(small_model(words), trained=True)
    for parameter in policy.parameters():
        parameter.grad = torch.ones_like(parameter)  # and not zeros, whose pages need not be there
    few = make_rows(prompts=1, group=1, prompt=8, tokens=8, words=words)
    one_pass(policy, policy.micro_batches(few, 1)[0], head=head)
    (batch,) = policy.micro_batches(rows, 1 << 20)
    gc.collect()
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, began = kilobytes("VmRSS"), time.process_time()
    one_pass(policy, batch, head=head)
    return (time.process_time() - began) / threads, (kilobytes("VmHWM") - before) / 1024


def one_pass(policy: Policy, batch: MicroBatch, *, head: bool) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        if head:
            logprobs, _ = policy(batch)
            loss = logprobs.mean()
        else:
            loss = states_before(policy.backbone, batch).sum()
    loss.backward()


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


if __name__ == "__main__":
    main()
