"""What a report of a long run costs: seconds and bytes for 1,000 steps and 100,000 completions.

python tests/bench/bench_report.py [--steps 1000] [--completions 100]
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from r1zero.report.build import write
from tests.report.made import completion, run_folder

WORDS = ("the", "sum", "of", "these", "numbers", "is", "so", "we", "take", "first", "then", "add", "wait", "however")
OTHER_METRICS = 70
"""As many as a GRPO step logs."""


def main() -> None:
    """Make the run in a temporary folder, report on it, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--completions", type=int, default=100, help="a step")
    arguments = parser.parse_args()
    rng = random.Random(0)

    def row(i: int) -> dict[str, object]:
        text = f"<think>{' '.join(rng.choices(WORDS, k=rng.randint(60, 140)))}</think><answer>3</answer>"
        return completion(text, paid=rng.random() < 0.5, truth=rng.random() < 0.5, problem=f"p{rng.randrange(4096)}")

    with tempfile.TemporaryDirectory() as folder:
        run = run_folder(
            Path(folder),
            "long",
            {step: [row(i) for i in range(arguments.completions)] for step in range(1, arguments.steps + 1)},
            lambda step: {f"policy/other_{k}": rng.random() for k in range(OTHER_METRICS)},
        )
        start = time.perf_counter()
        size = write([run], Path(folder) / "report.html")
        seconds = time.perf_counter() - start
    count = arguments.steps * arguments.completions
    print(f"{arguments.steps} steps, {count} completions: {seconds:.1f} s, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
