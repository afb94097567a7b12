"""Attention of a packed micro-batch by prompt and joined (`model.packed_attention`): processor time side by side.

    python tests/bench/bench_packing.py [--model tiny:arithmetic] [--rounds 5]

A forward and a backward pass over groups of random prompts and completions, on one thread. The two ways take turns; the
ratio is the median over the pairs, which other programs on the machine hardly change. Also: how far the two are apart.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time

import torch

from r1zero import models
from r1zero.config import ModelConfig
from r1zero.models.packed_layout import Packed
from r1zero.models.policy import Policy, Row, load_model

SHAPES = [(24, 16, 32, 60), (24, 8, 64, 20), (16, 8, 64, 8)]
"""Tokens of a prompt, completions of each, prompts, most tokens of a completion."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny:arithmetic")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = load_model(models.resolve(args.model), ModelConfig(path=args.model))
    policy = Policy(model, trained=True)
    print(
        f"{'prompt x group x prompts x tokens':34}{'blocks':>12}{'by prompt s':>13}{'joined s':>10}{'ratio':>7}  apart"
    )
    for shape in SHAPES:
        rows = make_rows(*shape, words=model.config.vocab_size)
        seconds: dict[str, list[float]] = {"by_prompt": [], "joined": []}
        blocks, gradients = {}, {}
        for i in range(args.rounds + 1):
            for kind in seconds:
                model.packed_attention = kind
                batches = policy.micro_batches(rows, 16384)
                blocks[kind] = sum(len(b.inputs.layout.blocks) for b in batches if isinstance(b.inputs, Packed))
                policy.zero_grad()
                began = time.process_time()
                for batch in batches:
                    policy(batch)[0].sum().backward()
                if i:  # the first warms up
                    seconds[kind].append(time.process_time() - began)
                gradients[kind] = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
        ratio = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
        apart = (gradients["joined"] - gradients["by_prompt"]).norm() / gradients["by_prompt"].norm()
        one, two = (statistics.median(x) for x in seconds.values())
        turns = f"{blocks['by_prompt']} -> {blocks['joined']}"
        print(f"{' x '.join(map(str, shape)):34}{turns:>12}{one:13.3f}{two:10.3f}{ratio:7.2f}  {apart:.0e}", flush=True)


def make_rows(prompt: int, group: int, prompts: int, tokens: int, words: int) -> list[Row]:
    draw = random.Random(0)
    rows = []
    for _ in range(prompts):
        ids = tuple(draw.randrange(words) for _ in range(prompt + draw.randint(-prompt // 4, prompt // 4)))
        for _ in range(group):
            length = draw.randint(tokens // 3, tokens)
            rows.append(Row(prompt_ids=ids, completion_ids=tuple(draw.randrange(words) for _ in range(length))))
    return rows


if __name__ == "__main__":
    main()
