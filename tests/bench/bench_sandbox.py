"""What the sandbox costs: HumanEval's reference programs one after the other, bare and in the sandbox; and how it ends
attacks.

    python tests/bench/bench_sandbox.py [--problems 164] [--rounds 3] [--data FILE]

Rows: `fork`, the program and its tests in a forked child of a warm interpreter (the program's own time, and as cheap as
running it without any protection gets); `spawn`, in a fresh `python -I -S`; `sandbox`, the tests in our sandbox;
`verifier`, the `code` verifier from a completion's text on. The two last columns are the medians over problems of the
differences to `fork` and to `spawn`, of each problem's best rounds.
Attacks (tests/attack_programs.py): how long past its deadline each was ended, and how long a right program took next.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from r1zero.data.records import Problem  # noqa: E402
from r1zero.verifiers import Sample, get  # noqa: E402
from r1zero.verifiers.sandbox import InputTest, Job, Report, Sandbox, get_sandbox, sandbox_status  # noqa: E402
from tests.attack_programs import (  # noqa: E402
    BREACHES,
    FORGERIES,
    HOGS,
    SCRIPT_INPUT,
    SCRIPT_OUTPUT,
    SCRIPTS,
    TESTS,
    fill,
)


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
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "code" / "humaneval.jsonl")
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
        for name, way in ways.items():
            for index, row in enumerate(rows):
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
    attacks()


def attacks(seconds: float = 1.0) -> None:
    """Run every attack with a deadline of `seconds` and print what was latest."""
    sandbox = get_sandbox("bubblewrap")
    right = Job(source="def square(x):\n    return x * x", tests=TESTS, entry_point="square", timeout_seconds=30)
    late, after, fooled = [], [], []
    before = [timed(sandbox, right)[1] for _ in range(20)]
    script = (InputTest(input=SCRIPT_INPUT, output=SCRIPT_OUTPUT),)
    jobs = {}
    for name, source in (FORGERIES | BREACHES | HOGS).items():
        source = fill(source, secret=__file__, outside=f"{__file__}.outside", home=str(Path.home()), port=22)
        jobs[name] = Job(source=source, tests=TESTS, timeout_seconds=seconds)
    jobs |= {name: Job(source=s, input_tests=script, timeout_seconds=seconds) for name, s in SCRIPTS.items()}
    for name, job in jobs.items():
        report, taken = timed(sandbox, job)
        late.append((max(0.0, taken - seconds), name))
        fooled += [name] if report.all_passed else []
        after.append((timed(sandbox, right)[1], name))
    print(f"{len(jobs)} attacks, deadline {seconds:g} s: {len(fooled)} judged right {fooled or ''}")
    print(f"latest end past the deadline {1e3 * max(late)[0]:.0f} ms ({max(late)[1]})")
    ordinary, next_one = statistics.median(before), statistics.median(seconds for seconds, _ in after)
    slowest = max(after)
    print(f"a right program: {1e3 * ordinary:.1f} ms before, {1e3 * next_one:.1f} ms after an attack, ", end="")
    print(f"at most {1e3 * slowest[0]:.1f} ms ({slowest[1]})")


def timed(sandbox: Sandbox, job: Job) -> tuple[Report, float]:
    began = time.perf_counter()
    report = sandbox.run(job)
    return report, time.perf_counter() - began


if __name__ == "__main__":
    main()
