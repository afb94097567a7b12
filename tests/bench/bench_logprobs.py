"""Log-probabilities without logits against the plain way, forward and backward: time and largest tensor.

    python tests/bench/bench_logprobs.py [--tokens 2048] [--hidden 576] [--words 49152] [--threads 2] [--rounds 5]

The settings take turns, so that they meet the same machine; figures are medians over rounds. `cpu s` is processor time
over all threads, which says more than wall time where other programs run. The plain way is one linear layer and
`cross_entropy`, which computes no entropy; ours computes it.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from r1zero.models.logprobs import CPU_BLOCK_ELEMENTS, token_logprobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--words", type=int, default=49152)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, nargs="*", default=[19, 20, 21, 22, 23, 24], help="log2 of elements")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], nargs="*", default=["bfloat16", "float32"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    hidden = torch.randn(options.tokens, options.hidden, requires_grad=True)
    weight = (torch.randn(options.words, options.hidden) * 0.05).requires_grad_()
    targets = torch.randint(0, options.words, (options.tokens,))

    def plain() -> Tensor:
        logits = torch.nn.functional.linear(hidden, weight)
        return -torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")

    ways: dict[str, Callable[[], Tensor]] = {"plain": plain}
    for log2 in options.blocks:
        size = 2**log2
        name = f"blocks of 2^{log2}" + (" (default)" if size == CPU_BLOCK_ELEMENTS else "")
        ways[name] = lambda size=size: token_logprobs(hidden, weight, targets, block_elements=size)[0]  # type: ignore[misc]
    print(f"{options.tokens} tokens, {options.hidden} wide, {options.words} words, {options.threads} threads")
    print(f"{'':27}{'forward s':>10}{'backward s':>11}{'cpu s':>8}   of plain (wall, cpu)")
    for dtype in options.dtype:
        seconds: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
        for round_ in range(options.rounds + 1):
            for name, way in ways.items():
                took = run(way, hidden, weight, getattr(torch, dtype))
                if round_:  # the first warms up
                    seconds[name].append(took)
        middle = {name: [statistics.median(x) for x in zip(*took, strict=True)] for name, took in seconds.items()}
        base_forward, base_backward, base_cpu = middle["plain"]
        for name, (forward, backward, cpu) in middle.items():
            wall = (forward + backward) / (base_forward + base_backward)
            print(
                f"{dtype:9}{name:18}{forward:10.3f}{backward:11.3f}{cpu:8.2f}   {wall:.2f}, {cpu / base_cpu:.2f}",
                flush=True,
            )
    print(
        f"peak memory of the process, the plain way's: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB"
    )


def run(way: Callable[[], Tensor], hidden: Tensor, weight: Tensor, dtype: torch.dtype) -> tuple[float, float, float]:
    """Seconds of the forward pass, of the backward pass, and of processor time for both."""
    hidden.grad = weight.grad = None
    began, cpu = time.perf_counter(), time.process_time()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        logprobs = way()
    middle = time.perf_counter()
    logprobs.mean().backward()  # type: ignore[no-untyped-call]
    return middle - began, time.perf_counter() - middle, time.process_time() - cpu


if __name__ == "__main__":
    main()
