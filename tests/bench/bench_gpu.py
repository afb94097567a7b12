"""What the training phase costs on a GPU: FLOP utilisation, memory, packed against padded, and where a step goes.

    python tests/bench/bench_gpu.py [--out FILE.json]    # one GPU with 80 GB or more
    python tests/bench/bench_gpu.py --tiny               # the same code on a CPU, in seconds

Qwen2.5-1.5B's configuration with random weights: float32 masters, bfloat16 compute, the transformers engine. So far no
GPU has run it.

training phase: forward and backward pass over 8 prompts x 4 completions, 128 + 896 tokens each, in micro-batches of at
most 8,192 tokens. What is counted is the FLOP that have to be done: 6 a layer's weight and token, 6 a head's weight and
completion token, and 12 a layer, unit of width and pair of tokens of which one sees the other (attention). Not counted:
padding, a prompt again for each completion where it is packed, what is computed twice (the head's logits). Utilisation
is that rate over the GPU's dense bfloat16 peak by its maker's data sheet, and over a matrix product measured here.
packed against padded: the same 8 rows through both in either type; difference of log-probabilities, and of the
gradient as a share of its norm. step: GRPO on completions it samples (64 tokens), beta 0.04, the second of two steps.
Seconds are by the wall clock, the best of two after one that warms up.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from r1zero import prompts
from r1zero.algorithms.rewards import Reward
from r1zero.config import AlgorithmConfig, GRPOConfig, ModelConfig, OptimizerConfig, SamplingConfig
from r1zero.data.records import Completion, Problem
from r1zero.models.packing import Packed
from r1zero.models.policy import MicroBatch, Policy, Row, micro_batches
from r1zero.rollout.hf import TransformersEngine
from r1zero.training.grpo import GRPO
from tests.tiny_models import char_tokenizer

PEAK_TFLOPS = {
    **{"B200": 2250, "GH200": 989, "H200": 989, "H100": 989, "A100": 312, "L40S": 362, "RTX 4090": 165, "L4": 121},
    **{"RTX 3090": 71, "A10": 125},
}
"""Dense bfloat16 products by part of the device's name; the first that fits is taken. H100 and H200: the SXM form."""


@dataclass(frozen=True, kw_only=True)
class Size:
    model: dict[str, int]
    prompts: int = 8
    group: int = 4
    prompt_tokens: int = 128
    completion_tokens: int = 896
    micro_batch_tokens: int = 8192
    sampled_tokens: int = 64
    matrix: int = 8192


QWEN_1_5B = Size(
    model={
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
    }
)
TINY = Size(
    model={
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    },
    prompts=2,
    group=2,
    prompt_tokens=8,
    completion_tokens=24,
    micro_batch_tokens=64,
    sampled_tokens=4,
    matrix=256,
)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a model of 0.1 M parameters")
    parser.add_argument("--out", help="write the figures to this JSON file too")
    args = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.tiny:
        parser.error("no GPU here: --tiny runs the same code on a CPU")
    began = time.perf_counter()
    torch.manual_seed(0)
    size = TINY if args.tiny else QWEN_1_5B
    with device:
        policy = Policy(Qwen2ForCausalLM(Qwen2Config(**size.model, tie_word_embeddings=True)), trained=True)
    rows = make_rows(size)
    found: dict[str, Any] = machine(device, size)
    found["phase"] = [phase(policy, rows, size, device, packed, found) for packed in (True, False)]
    found["difference"] = [
        difference(policy, rows[:8], size, device, dtype) for dtype in (torch.float32, torch.bfloat16)
    ]
    found["step"] = step(policy, size, device)
    found["seconds"] = time.perf_counter() - began
    print(f"\n{found['seconds']:.0f} s in all")
    if args.out:
        Path(args.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def machine(device: torch.device, size: Size) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    peak = next((tflops for part, tflops in PEAK_TFLOPS.items() if part in name), None)
    a, b = (torch.randn(size.matrix, size.matrix, device=device, dtype=torch.bfloat16) for _ in range(2))

    def products() -> None:
        for _ in range(10):
            a @ b

    measured = 10 * 2 * size.matrix**3 / best_seconds(products, device) / 1e12
    print(f"{name}, torch {torch.__version__}; bfloat16 TFLOP/s: {peak or 'unknown'} by its data sheet, {measured:.4g}")
    return {"device": name, "torch": torch.__version__, "peak_tflops": peak, "matrix_tflops": measured}


def phase(
    policy: Policy, rows: Sequence[Row], size: Size, device: torch.device, packed: bool, of: dict[str, Any]
) -> dict[str, Any]:
    """Time, FLOP/s and peak memory of the forward and backward pass over all rows."""
    batches = micro_batches(rows, size.micro_batch_tokens, device, packed=packed)
    needed = sum(flops(policy, rows, batch) for batch in batches)
    computed = sum(batch.inputs.input_ids.numel() for batch in batches)
    policy.zero_grad()

    def once() -> None:
        for batch in batches:
            backward(policy, batch, torch.bfloat16)

    seconds = best_seconds(once, device)
    rate = needed / seconds / 1e12
    result = {
        "way": "packed" if packed else "padded",
        "micro_batches": len(batches),
        "tokens": computed,
        "seconds": seconds,
        "tflops": rate,
        "of_peak": rate / of["peak_tflops"] if of["peak_tflops"] else None,
        "of_matrix": rate / of["matrix_tflops"],
        "peak_gb": peak_gb(device),
    }
    if packed:
        columns = f"{'seconds':>9}{'TFLOP/s':>9}{'of peak':>9}{'of matrix':>10}{'peak GB':>9}"
        print(f"\n{'training phase':16}{'tokens':>8}{columns}")
    share = f"{result['of_peak']:.1%}" if result["of_peak"] else "?"
    print(
        f"{result['way']:16}{computed:8}{seconds:9.3f}{rate:9.4g}{share:>9}{result['of_matrix']:10.1%}"
        f"{result['peak_gb']:9.2f}",
        flush=True,
    )
    return result


def flops(policy: Policy, rows: Sequence[Row], batch: MicroBatch) -> float:
    """FLOP of a forward and backward pass that have to be done: see the top."""
    config = policy.model.config
    layers: int = sum(p.numel() for p in policy.backbone.parameters() if p.dim() == 2) - policy.head.weight.numel()
    packed = isinstance(batch.inputs, Packed)
    tokens = pairs = 0.0
    seen: set[tuple[int, ...]] = set()
    for row in (rows[i] for i in batch.indices):
        prompt, own = len(row.prompt_ids), len(row.completion_ids) - 1
        tokens += own
        pairs += prompt * own + own**2 / 2
        if not packed or row.prompt_ids not in seen:
            tokens += prompt
            pairs += prompt**2 / 2
        seen.add(row.prompt_ids)
    attention = 12 * config.num_hidden_layers * config.hidden_size * pairs
    return float(6 * (layers * tokens + policy.head.weight.numel() * len(batch.targets)) + attention)


def difference(
    policy: Policy, rows: Sequence[Row], size: Size, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Packed against padded: log-probabilities, and the gradient of their mean."""
    both: list[tuple[Tensor, list[Tensor]]] = []
    for packed in (True, False):
        policy.zero_grad()
        logprobs = torch.zeros(len(rows), size.completion_tokens, device=device)
        for batch in micro_batches(rows, size.micro_batch_tokens, device, packed=packed):
            logprobs[torch.tensor(batch.indices)] = backward(policy, batch, dtype)
        both.append((logprobs, [p.grad.clone() for p in policy.parameters() if p.grad is not None]))
    policy.zero_grad()
    (ours, grads), (theirs, wanted) = both
    norm = sum(float(g.double().square().sum()) for g in wanted) ** 0.5
    apart = sum(float((a - b).double().square().sum()) for a, b in zip(grads, wanted, strict=True)) ** 0.5
    result = {
        "dtype": str(dtype).removeprefix("torch."),
        "logprobs_max": float((ours - theirs).abs().max()),
        "logprobs_mean": float((ours - theirs).abs().mean()),
        "gradient_share": apart / norm,
    }
    print(
        f"packed against padded, {result['dtype']}: log-probabilities differ by at most {result['logprobs_max']:.2e} "
        f"(mean {result['logprobs_mean']:.2e}), the gradient by {result['gradient_share']:.2e} of its norm",
        flush=True,
    )
    return result


def backward(policy: Policy, batch: MicroBatch, dtype: torch.dtype) -> Tensor:
    """Add the gradient of the log-probabilities' mean; returns them, (B, T)."""
    with torch.autocast(batch.mask.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        logprobs: Tensor = policy(batch)[0]
    (logprobs.sum() / len(batch.targets)).backward()  # type: ignore[no-untyped-call]
    return logprobs.detach()


def step(policy: Policy, size: Size, device: torch.device) -> dict[str, Any]:
    """Seconds of each part of a GRPO step, and its peak memory."""

    class Rewards:
        def submit(self, problem: Problem, prompt: str, completion: Completion, prefill: str = "") -> float:
            return float(sum(completion.token_ids) % 2)

        def collect(self, pending: Sequence[float]) -> list[Reward]:
            return [Reward(value=value, keep=True, parts={}, correct=value > 0) for value in pending]

    config = GRPOConfig(
        model=ModelConfig(path="random", dtype="bfloat16"),
        sampling=SamplingConfig(max_tokens=size.sampled_tokens),
        algorithm=AlgorithmConfig(group_size=size.group, prompts_per_step=size.prompts, beta=0.04),
        optimizer=OptimizerConfig(micro_batch_tokens=size.micro_batch_tokens),
    )
    tokenizer = char_tokenizer()
    with device:
        reference = Qwen2ForCausalLM(policy.model.config)
    reference.load_state_dict(policy.model.state_dict())
    grpo = GRPO(
        config,
        accelerator=Accelerator(cpu=device.type == "cpu", mixed_precision="bf16"),
        policy=policy,
        reference=Policy(reference),
        tokenizer=tokenizer,
        template=prompts.load("plain"),
        problems=[Problem(id=str(i), prompt=f"What is {i} + {7 * i}?") for i in range(size.prompts)],
        engine=TransformersEngine(
            policy.model, tokenizer=tokenizer, compute_dtype=torch.bfloat16, max_context=128 + size.sampled_tokens
        ),
        rewarder=Rewards(),  # type: ignore[arg-type]
    )
    for number in (1, 2):
        peak_gb(device)
        grpo.step(number)
    result = {**grpo.seconds, "peak_gb": peak_gb(device)}
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in grpo.seconds.items() if name != "step")
    print(
        f"\nGRPO step, {size.prompts} x {size.group} completions of {size.sampled_tokens} tokens: "
        f"{result['step']:.2f} s, of it {parts}; peak {result['peak_gb']:.2f} GB",
        flush=True,
    )
    return result


def make_rows(size: Size) -> list[Row]:
    draw = random.Random(0)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(size.model["vocab_size"]) for _ in range(count))

    groups = [ids(size.prompt_tokens) for _ in range(size.prompts)]
    return [Row(prompt_ids=p, completion_ids=ids(size.completion_tokens)) for p in groups for _ in range(size.group)]


def best_seconds(work: Callable[[], None], device: torch.device) -> float:
    """The best of two, after one that warms up; the peak of memory is that of the last."""
    took = []
    for _ in range(3):
        peak_gb(device)
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return min(took[1:])


def peak_gb(device: torch.device) -> float:
    """Most memory that tensors had on the GPU since the last call, GB; 0 on a CPU (see bench_scaling.py)."""
    if device.type == "cpu":
        return 0.0
    peak = torch.cuda.max_memory_allocated() / 1e9
    torch.cuda.reset_peak_memory_stats()
    return peak


if __name__ == "__main__":
    main()
