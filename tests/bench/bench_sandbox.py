"""What the sandbox costs: each HumanEval reference program run bare and in the sandbox, turn by turn.

    python tests/bench/bench_sandbox.py [--problems 164] [--rounds 3] [--data FILE]

Rows: `fork`, the program and its tests in a forked child of a warm interpreter (the program's own time, and as cheap as
running it without any protection gets); `spawn`, in a fresh `python -I -S`; `sandbox`, the tests in our sandbox;
`verifier`, the `code` verifier from a completion's text on. The three last columns are the medians over problems of the
differences to `fork` and to `spawn`, problem by problem, and the processor time of all processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from r1zero.records import Problem
from r1zero.verifiers import Sample, get
from r1zero.verifiers.sandbox import Job, get_sandbox, sandbox_status

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


def by_fork(source: str) -> None:
    pid = os.fork()
    if pid == 0:
        exec(compile(source, "bare", "exec"), {"__name__": "bare"})  # noqa: S102  reference programs of a data set
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def by_spawn(source: str) -> None:
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    subprocess.run([python, "-I", "-S", "-B", "-c", source], check=True, env={}, stdin=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=164)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=SHARED / "data" / "code" / "humaneval.jsonl")
    args = parser.parse_args()
    if (problem := sandbox_status()) is not None:
        sys.exit(problem)
    rows = [json.loads(line) for line in args.data.read_text(encoding="utf-8").splitlines()][: args.problems]
    sandbox, verifier = get_sandbox("bubblewrap"), get("code")

    def in_sandbox(row: dict[str, str]) -> None:
        source = row["prompt"] + row["canonical_solution"]
        job = Job(
            source=source, tests=row["tests"], entry_point=row["entry_point"], prelude=row["prompt"], timeout_seconds=30
        )
        report = sandbox.run(job)
        assert report.all_passed, (row["id"], report)

    def by_verifier(row: dict[str, str]) -> None:
        data = {"tests": row["tests"], "entry_point": row["entry_point"]}
        problem = Problem(id=row["id"], prompt=row["prompt"], data=data)
        assert verifier(
            Sample(completion=row["canonical_solution"], problem=problem), {"timeout_seconds": 30}
        ).correct, row["id"]

    def whole(row: dict[str, str]) -> str:
        return f"{row['prompt']}{row['canonical_solution']}\n{row['tests']}"

    ways: dict[str, Callable[[dict[str, str]], None]] = {
        "fork": lambda row: by_fork(whole(row)),
        "spawn": lambda row: by_spawn(whole(row)),
        "sandbox": in_sandbox,
        "verifier": by_verifier,
    }
    for way in ways.values():
        way(rows[0])  # start what stays warm
    best: dict[str, list[float]] = {name: [float("inf")] * len(rows) for name in ways}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for index, row in enumerate(rows):
            for name, way in ways.items():
                began = time.perf_counter()
                way(row)
                seconds = time.perf_counter() - began
                times[name].append(seconds)
                best[name][index] = min(best[name][index], seconds)
    print(f"{len(rows)} programs, {args.rounds} rounds, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; ms")
    print(f"{'':10}{'median':>8}{'p90':>8}{'p99':>8}{'over fork':>11}{'over spawn':>11}")
    for name, values in times.items():
        ordered = sorted(values)
        over = [
            statistics.median(mine - bare for mine, bare in zip(best[name], best[base], strict=True))
            for base in ("fork", "spawn")
        ]
        cells = [ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10], ordered[len(ordered) * 99 // 100]]
        print(f"{name:10}" + "".join(f"{1e3 * c:8.1f}" for c in cells) + "".join(f"{1e3 * c:11.1f}" for c in over))
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"processor time of reaped children: {usage.ru_utime + usage.ru_stime:.1f} s")


if __name__ == "__main__":
    main()
