"""Speed of `math` beside math-verify, on the same pairs: one process, then the pool.

    python tests/bench/bench_math.py FILE [FILE ...] [--limit 2000] [--pool] [--skip-kind hack_dos]

FILE: JSON Lines with `gold` and `output` or `pred` (gzip too). Without one: the hand-labelled answers of the tests, and
plain integers, fractions and identical strings. math-verify runs with the wrapper that suits it best: text after
`</think>`, the last box or tag boxed again, the gold boxed, its own timeouts off (they are SIGALRM) and a row that it
would hang on (`hack_dos`) left out. Prints rows a second, median and 99th percentile, and the ratios.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path

from r1zero.verifiers import Sample, VerifierPool, VerifierSpec
from r1zero.verifiers.math import math
from r1zero.verifiers.text.extract import extract

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from math_variants import VARIANTS

Pairs = list[tuple[str, str]]


def load(path: Path, skip_kind: str, limit: int) -> Pairs:
    """(completion, gold) pairs of a labelled file."""
    data = path.read_bytes()
    pairs = []
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines():
        row = json.loads(line)
        if row.get("kind") != skip_kind:
            pairs.append((row["output"] if "output" in row else row["pred"], row["gold"]))
    return pairs[:: max(1, len(pairs) // limit)] if limit else pairs


def built_in() -> dict[str, Pairs]:
    work = "We add the two numbers and check the sum. " * 5
    return {
        "hand-labelled": [(text, gold) for kind, gold, text, _ in VARIANTS if kind != "hack_dos"],
        "integers": [(f"{work}\\boxed{{{k}}}", str(k + k % 2)) for k in range(2000)],
        "fractions": [(f"{work}\\boxed{{{k}/{k + 1}}}", f"\\frac{{{k}}}{{{k + 1 + k % 2}}}") for k in range(2000)],
        "identical": [(f"{work}\\boxed{{\\sqrt{{{k}}}+x}}", f"\\sqrt{{{k}}}+x") for k in range(2000)],
    }


def math_verify() -> Callable[[str, str], bool]:
    """math-verify 0.9 with its best wrapper."""
    logging.disable(logging.CRITICAL)
    from math_verify import parse, verify

    def judge(completion: str, gold: str) -> bool:
        found = extract(completion, ("boxed", "answer_tag"))
        text = f"\\boxed{{{found.text}}}" if found.text is not None else completion.rsplit("</think>", 1)[-1]
        reference = parse(f"\\boxed{{{gold}}}", parsing_timeout=None)
        answer = parse(text, parsing_timeout=None)
        return bool(verify(reference, answer, timeout_seconds=None, allow_set_relation_comp=True))

    return judge


def ours(completion: str, gold: str) -> bool:
    return math(completion, gold).correct


def timed(judge: Callable[[str, str], bool], pairs: Pairs) -> list[float]:
    """Seconds of each row, after a few to warm up (imports, caches of compiled patterns)."""
    for completion, gold in pairs[:20]:
        judge(completion, gold)
    seconds = []
    for completion, gold in pairs:
        began = time.perf_counter()
        judge(completion, gold)
        seconds.append(time.perf_counter() - began)
    return seconds


def row(name: str, seconds: list[float]) -> str:
    ordered = sorted(seconds)
    median, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    return f"{name:<44}{len(seconds) / sum(seconds):>10.0f}/s{median * 1e3:>11.3f} ms{p99 * 1e3:>11.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--limit", type=int, default=2000, help="rows of each file, evenly spaced (0: all)")
    parser.add_argument("--skip-kind", default="hack_dos")
    parser.add_argument("--pool", action="store_true", help="also measure ours through the pool, two workers")
    args = parser.parse_args()
    sets = {path.name: load(path, args.skip_kind, args.limit) for path in args.files} or built_in()
    peer = math_verify()
    print(f"{'':<44}{'rows':>12}{'median':>14}{'p99':>14}")
    for name, pairs in sets.items():
        mine, theirs = timed(ours, pairs), timed(peer, pairs)
        print(row(f"{name[:30]} math", mine))
        print(row(f"{name[:30]} math-verify", theirs))
        print(f"{'':<32}ratio of throughput{sum(theirs) / sum(mine):>6.1f}")
        if args.pool:
            spec = VerifierSpec(name="math")
            with VerifierPool(workers=2) as pool:
                pool.verify([(spec, Sample(completion=c, answer=g)) for c, g in pairs[:20]])
                began = time.perf_counter()
                pool.verify([(spec, Sample(completion=c, answer=g)) for c, g in pairs])
                print(f"{name[:30]:<30} math, pool of 2{len(pairs) / (time.perf_counter() - began):>9.0f}/s")


if __name__ == "__main__":
    main()
