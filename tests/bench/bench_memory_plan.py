"""The memory plan against measured peaks: two steps of training on a CPU, each case in a process of its own.

    python tests/bench/bench_memory_plan.py

Measured is the highest resident size of a second step over what the process held before the model was loaded. Blocks of
64 KiB and more come straight from the system here (MALLOC_MMAP_THRESHOLD_): by itself glibc's heap keeps a fifth to a
quarter more than is in use, which is its own and no part of the plan (second column: with the heap as it is).
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from r1zero import models
from r1zero.config import ModelConfig
from r1zero.models.memory_plan import read_shape, training_bytes
from r1zero.models.policy import Policy, load_model

sys.path.insert(0, str(Path(__file__).parent))
from bench_train import kilobytes, make_rows, train

CASES = [
    ("tiny:arithmetic", "float32", 8192, False),
    ("smollm2:135m-instruct", "float32", 1024, False),
    ("smollm2:135m-instruct", "bfloat16", 1024, False),
    ("smollm2:135m-instruct", "bfloat16", 1024, True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case is not None:
        print("RESULT " + json.dumps(measure(*CASES[args.case])))
        return
    print(f"{'model':22} {'type':9} {'recomputed':11}{'planned MB':>11}{'measured':>10}{'share':>7}{'as it is':>10}")
    for i, (name, dtype, _, checkpointing) in enumerate(CASES):
        found = []
        for extra in ({"MALLOC_MMAP_THRESHOLD_": "65536"}, {}):
            command = [sys.executable, __file__, "--case", str(i)]
            done = subprocess.run(command, env={**os.environ, **extra}, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.partition("RESULT ")[2]))
        (planned, measured), (_, heap) = found
        print(f"{name:22} {dtype:9} {checkpointing!s:11}{planned:11}{measured:10}{planned / measured:7.0%}{heap:10}")


def measure(name: str, dtype: str, budget: int, checkpointing: bool) -> tuple[int, int]:
    """`(planned, measured)` MB."""
    from transformers.models.llama import modeling_llama  # noqa: F401  what is imported later would be counted

    torch.set_num_threads(1)
    folder = models.resolve(name)
    shape = read_shape(json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")))
    before = kilobytes("VmRSS")
    model = load_model(folder, ModelConfig(path=name, gradient_checkpointing=checkpointing))
    policy = Policy(model, trained=True)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    rows = make_rows(prompts=64, group=8, prompt=40, tokens=64, words=shape.vocab)
    batches = policy.micro_batches(rows, budget)[:2]
    for _ in range(2):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        train(policy, batches, getattr(torch, dtype))
        optimizer.step()
        optimizer.zero_grad()
    parts = training_bytes(
        shape,
        compute=2 if dtype == "bfloat16" else 4,
        tokens=max(batch.inputs.input_ids.numel() for batch in batches),
        checkpointing=checkpointing,
    )
    return sum(parts.values()) // 2**20, (kilobytes("VmHWM") - before) // 1024


if __name__ == "__main__":
    main()
