"""Fuzz the `math` verifier: mutated golds and answers, random LaTeX, no exception out and no verdict past a deadline.

    python tests/bench/fuzz_math.py [--answers 100000] [--deadline-seconds 1] [--seed 0] [--data FOLDER]

The corpus is the hand-labelled answers of the tests and, where they are given or found beside the project, the golds
and cases of real data. Prints one line per broken promise and a summary; exits 1 if there was any.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from r1zero.verifiers.math import math

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from math_variants import VARIANTS

_LATEX = r"""
\frac{ \sqrt{ \boxed{ } { ( ) [ ] \{ \} ^ _ ^{ _{ \left( \right) \pm \mp , ; : ! % \% $ & \\ | ' = < > \le \cup \cap
\in \infty \emptyset \pi e i x n 0 1 7 12 999999 0.5 1e9 1e99999 \sin \log_2 \log \arcsin \cdot \begin{pmatrix}
\end{pmatrix} \begin{cases} \end{cases} \text{ \mathrm{ \text{cm} \text{or} or and \sum_{k=1}^{n} \binom{n}{2} \lfloor
\rfloor ^\circ ^{-1} \overline{3} <think> </think> <answer> </answer> #### \ // ** \int 9^9^9^9 10^{10^{10}} (10^9)!
__import__ lambda eval( é √ ½ ² ∞ ≤ − π 🙂 １
"""
PIECES = (*_LATEX.split(), " ", "\n", "\x00", "\u200b", "The answer is ", "\n\n**Answer:** ")


def mutate(text: str, other: str, rng: random.Random) -> str:
    """One to six edits: delete, duplicate, swap, splice with another text, insert a piece, repeat many times."""
    for _ in range(rng.randrange(1, 7)):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        match rng.randrange(8):
            case 0:
                text = text[:at] + text[to:]
            case 1:
                text = text[:to] + text[at:to] * rng.randrange(1, 4) + text[to:]
            case 2:
                text = text[to:] + text[at:to] + text[:at]
            case 3:
                cut = rng.randrange(len(other) + 1)
                text = text[:at] + other[cut:] + text[at:]
            case 4 | 5:
                text = text[:at] + rng.choice(PIECES) + text[at:]
            case 6:
                text = text[:at] + rng.choice(PIECES) + text[at:to] + rng.choice(PIECES) + text[to:]
            case _:
                text = text[:at] + rng.choice(PIECES) * rng.choice((2, 5, 60, 900)) + text[at:]
        text = text[:20_000]
    return text


def corpus(folder: Path | None) -> list[tuple[str, str]]:
    """(answer, gold) pairs to start from."""
    pairs = [(text, gold) for _, gold, text, _ in VARIANTS]
    if folder is None or not folder.exists():
        return pairs
    for path in sorted([*folder.glob("data/math/*.jsonl*"), *folder.glob("cases/*.jsonl")]):
        data = path.read_bytes()
        for line in (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()[:700]:
            row = json.loads(line)
            gold = row.get("gold", row.get("answer"))
            pred = row.get("pred", f"\\boxed{{{gold}}}")
            if len(pred) < 2000:
                pairs.append((pred, gold))
    return pairs


def fuzz(
    pairs: list[tuple[str, str]], answers: int, deadline_seconds: float, seed: int
) -> tuple[list[str], Counter[str]]:
    """What broke (an exception, or a verdict past the deadline), and how the verdicts came out."""
    rng = random.Random(seed)
    broken: list[str] = []
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for _ in range(answers):
        (text, gold), (other, _) = rng.choice(pairs), rng.choice(pairs)
        answer = mutate(text, other, rng)
        if rng.random() < 0.5 and "boxed" not in answer:
            answer = f"\\boxed{{{answer}}}"
        if rng.random() < 0.1:  # golds are read by the same parser
            gold = mutate(gold, other, rng)
        began = time.process_time()  # not the wall: other programs on the machine are not the verifier's
        try:
            outcomes[str(math(answer, gold).outcome)] += 1
        except Exception as error:  # noqa: BLE001  any exception is what this looks for
            broken.append(f"{type(error).__name__}: {error}: gold {gold!r} answer {answer!r}")
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        if seconds > deadline_seconds:
            broken.append(f"{seconds:.2f} s: gold {gold!r} answer {answer[:3000]!r}")
    outcomes["slowest, ms"] = round(slowest * 1000)
    return broken, outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--deadline-seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[3] / "shared")
    args = parser.parse_args()
    began = time.perf_counter()
    broken, outcomes = fuzz(corpus(args.data), args.answers, args.deadline_seconds, args.seed)
    for line in broken[:50]:
        print(line)
    print(f"{args.answers} answers in {time.perf_counter() - began:.0f} s, {len(broken)} broken; {dict(outcomes)}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
