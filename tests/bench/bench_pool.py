"""The verifier pool beside Pebble's ProcessPool: cost of a verdict, lateness of a kill, price of a new worker.

    python tests/bench/bench_pool.py [--verdicts 4000] [--workers 2] [--cases FILE.jsonl]

Both pools start their workers from a fork server that has imported the verifiers. `--cases` adds the `math` verifier on
a labelled file, in this process and in the pool. Pebble is left out, with a note, where it is not installed.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from r1zero.verifiers import Sample, VerifierPool, VerifierSpec, get  # noqa: E402

HOSTILE = "hostile_verifiers:hostile"
DEADLINE_SECONDS = 0.5
Submit = Callable[[str], "Future[Any]"]


def judge(text: str) -> Any:
    """What a Pebble worker runs."""
    return get(HOSTILE)(Sample(completion=text))


@contextlib.contextmanager
def our_pool(workers: int) -> Iterator[Submit]:
    with VerifierPool(workers=workers, deadline_seconds=DEADLINE_SECONDS) as pool:
        yield lambda text: pool.submit(VerifierSpec(name=HOSTILE), Sample(completion=text))


@contextlib.contextmanager
def pebble_pool(workers: int) -> Iterator[Submit]:
    from pebble import ProcessPool

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["r1zero.verifiers.builtin", "hostile_verifiers"])
    pool = ProcessPool(max_workers=workers, context=context)
    try:
        yield lambda text: pool.schedule(judge, args=(text,), timeout=DEADLINE_SECONDS)
    finally:
        pool.stop()
        pool.join()


def seconds_of(future: Future[Any]) -> float:
    """Waits for `future`, whatever it ends with; the seconds that took."""
    began = time.perf_counter()
    future.exception(timeout=60)
    return time.perf_counter() - began


def milliseconds(values: Sequence[float]) -> str:
    ordered = sorted(values)
    return f"{1e3 * statistics.median(ordered):.2f} / {1e3 * ordered[int(0.99 * (len(ordered) - 1))]:.2f}"


def measure(make: Callable[[int], contextlib.AbstractContextManager[Submit]], workers: int, verdicts: int) -> list[str]:
    """The rows of one pool's column."""
    column = []
    began = time.perf_counter()
    with make(workers) as submit:
        submit("ok").result()
        column.append(f"{time.perf_counter() - began:.2f}")
        for future in [submit("ok") for _ in range(50)]:
            future.result()
        began = time.perf_counter()
        for future in [submit("ok") for _ in range(verdicts)]:
            future.result()
        column.append(f"{verdicts / (time.perf_counter() - began):.0f}")
        column.append(milliseconds([seconds_of(submit("ok")) for _ in range(500)]))
        for deed in ("sleep 60", "spin", "spin_in_c"):
            column.append(f"{1e3 * max(seconds_of(submit(deed)) - DEADLINE_SECONDS for _ in range(3)):.0f}")
    with make(1) as submit:
        submit("ok").result()
        column.append(milliseconds([_after_a_kill(submit) for _ in range(10)]))
        # What waits behind a hang: the hang's deadline and the kill, then its own time.
        hang = submit("spin_in_c")
        column.append(f"{seconds_of(submit('ok')) - DEADLINE_SECONDS:.2f}")
        seconds_of(hang)
    column.append(_idle_death(make))
    return column


def _after_a_kill(submit: Submit) -> float:
    seconds_of(submit("exit 1"))
    return seconds_of(submit("ok"))


def _idle_death(make: Callable[[int], contextlib.AbstractContextManager[Submit]]) -> str:
    """Whether the pool still works when its only worker was killed between two tasks."""
    with make(1) as submit:
        pid = int(submit("pid").result().extracted)
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        try:
            return "yes" if submit("ok").result(timeout=10).correct else "no"
        except Exception as error:  # noqa: BLE001  printed in the table
            return f"no: {type(error).__name__}"


def left_behind(column: str) -> str:
    """Workers alive 5 s after their process was killed while both were in C code."""
    script = textwrap.dedent(f"""
        import sys, time
        sys.path[:0] = {sys.path[:2]!r} + [{str(ROOT / "tests" / "bench")!r}]
        if __name__ == "__main__":
            import bench_pool
            bench_pool.DEADLINE_SECONDS = 600
            with bench_pool.{column}(2) as submit:
                pids = set()
                while len(pids) < 2:
                    pids |= {{future.result().extracted for future in [submit("pid") for _ in range(8)]}}
                for _ in range(2):
                    submit("spin_in_c")
                time.sleep(0.5)
                print(*pids, flush=True)
                time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()]
    process.kill()
    process.wait()
    time.sleep(5)
    left = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            left += 1
    return str(left)


def math_rows(path: Path, workers: int) -> list[tuple[str, str, str]]:
    """(where, verdicts a second, median / p99 ms) of `math` on a labelled file, in this process and in the pool."""
    from r1zero.verifiers.running.audit import audit, read_rows

    rows = [row for row in read_rows(path, "kind") if row.group != "hack_dos"]
    spec = VerifierSpec(name="math")
    verifier = get("math")
    verifier(rows[0].sample)
    began = time.perf_counter()
    times = [verifier(row.sample).seconds for row in rows]
    table = [("math in this process", f"{len(rows) / (time.perf_counter() - began):.0f}", milliseconds(times))]
    for count in sorted({1, workers}):
        with VerifierPool(workers=count) as pool:
            result = audit(rows, [spec], pool)
        seconds = [one.verdict.seconds for one in result.judged["math"]]
        rate = f"{len(rows) / result.wall_seconds['math']:.0f}"
        table.append((f"math in the pool, {count} worker(s)", rate, milliseconds(seconds)))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cases", type=Path)
    arguments = parser.parse_args()
    names = [
        "start and first verdict, s",
        "verdicts a second, many at once",
        "one at a time, median / p99 ms",
        "past the deadline, sleep, ms (worst of 3)",
        "past the deadline, Python loop, ms",
        "past the deadline, C call, ms",
        "verdict after a worker died, median / p99 ms",
        "wait behind a C call past its deadline, s",
        "works after its idle worker was killed",
        "workers left when its process was killed",
    ]
    columns = {"ours": [*measure(our_pool, arguments.workers, arguments.verdicts), left_behind("our_pool")]}
    try:
        import pebble

        del pebble
        columns["pebble"] = [
            *measure(pebble_pool, arguments.workers, arguments.verdicts),
            left_behind("pebble_pool"),
        ]
    except ImportError:
        print("pebble is not installed: pip install pebble to compare")
    print(f"{arguments.workers} workers, deadline {DEADLINE_SECONDS} s, load {os.getloadavg()[0]:.1f}")
    print(f"{'':46}" + "".join(f"{name:>18}" for name in columns))
    for index, name in enumerate(names):
        print(f"{name:46}" + "".join(f"{column[index]:>18}" for column in columns.values()))
    if arguments.cases is not None:
        print(f"\n{arguments.cases.name} without hack_dos: verdicts a second, median / p99 ms in the verifier")
        for row in math_rows(arguments.cases, arguments.workers):
            print(f"{row[0]:46}{row[1]:>18}{row[2]:>18}")


if __name__ == "__main__":
    main()
