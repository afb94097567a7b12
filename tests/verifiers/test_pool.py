"""The pool: every way a verifier can misbehave costs one verdict and nothing else."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from r1zero.data.records import Problem
from r1zero.data.verdict import Step
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, Verdict, VerifierPool, VerifierSpec
from tests import TESTS

HOSTILE = VerifierSpec(name="hostile_verifiers:hostile")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))


@pytest.fixture
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=1, deadline_seconds=2.0, memory_bytes=1 << 30) as pool:
        yield pool


def ask(pool: VerifierPool, text: str, seconds: float | None = None) -> Verdict:
    return pool.submit(HOSTILE, Sample(completion=text), seconds).result(timeout=30)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids: list[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("deed", ["sleep 60", "spin", "spin_in_c", "power"])
def test_a_verifier_over_its_deadline_is_killed_and_the_next_verdict_is_right(pool: VerifierPool, deed: str) -> None:
    ask(pool, "ok")
    verdict = ask(pool, deed, seconds=0.5)
    assert verdict.outcome is Outcome.TIMEOUT
    assert verdict.score == 0.0
    assert "over 0.5 s: killed" in verdict.reason
    assert verdict.seconds >= 0.5
    assert ask(pool, "ok").correct


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("raise the roof", "raised ValueError: the roof (in hostile, hostile_verifiers.py"),
        ("crash", "SIGSEGV"),
        ("exit 0", "exited with 0"),
        ("exit 3", "exited with 3"),
        ("sys_exit", "raised SystemExit"),
        ("interrupt", "exited with 1"),
        ("recurse", "RecursionError"),
        ("memory 4000000000", "ran out of memory"),
        ("none", "returned NoneType, not a Verdict"),
        ("nan", "a score lies in [-1, 1], got nan"),
        ("object", "cannot be written as JSON"),
    ],
)
def test_a_verifier_that_fails_costs_one_error_that_names_the_cause(pool: VerifierPool, deed: str, reason: str) -> None:
    verdict = ask(pool, deed)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.score is None
    assert reason in verdict.reason
    assert len(verdict.reason) < 3000
    assert ask(pool, "ok").correct


def test_what_a_verifier_started_is_killed_with_it(pool: VerifierPool) -> None:
    assert ask(pool, "child 61.25").outcome is Outcome.TIMEOUT
    until = time.monotonic() + 10
    while (left := subprocess.run(["pgrep", "-f", "sleep 61.25"], capture_output=True, check=False).stdout) != b"":
        assert time.monotonic() < until, left
        time.sleep(0.02)


def test_a_worker_killed_while_idle_costs_nothing(pool: VerifierPool) -> None:
    pid = int(ask(pool, "pid").extracted or "")
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    assert ask(pool, "ok").correct


def test_a_fork_server_that_died_is_started_again_and_costs_a_worker_one_verdict_at_most(pool: VerifierPool) -> None:
    ask(pool, "ok")
    server = pool._server._process
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    assert ask(pool, "ok").outcome in (Outcome.CORRECT, Outcome.ERROR)  # its worker may or may not be dead by now
    assert ask(pool, "ok").correct


def test_a_module_whose_import_hangs_or_exits_costs_its_own_verdicts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import os, sys, time
from r1zero.verifiers import Outcome, Verdict
if os.environ["OWNER"] != str(os.getpid()):
    FAULT
def f(completion: str) -> Verdict:
    return Verdict(Outcome.CORRECT)
"""
    for name, fault in (("hanging_module", "time.sleep(600)"), ("exiting_module", "sys.exit(3)")):
        (tmp_path / f"{name}.py").write_text(source.replace("FAULT", fault))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OWNER", str(os.getpid()))
    monkeypatch.setattr("r1zero.verifiers.running.pool.SERVER_SECONDS", 5.0)
    with VerifierPool(workers=1, deadline_seconds=0.5) as pool:
        for name in ("hanging_module", "exiting_module"):
            verdicts = pool.verify([(VerifierSpec(name=f"{name}:f"), Sample(completion=""))] * 2)
            assert {verdict.outcome for verdict in verdicts} <= {Outcome.ERROR, Outcome.TIMEOUT}
            assert ask(pool, "ok").correct


def test_time_in_the_queue_does_not_count_against_the_deadline(pool: VerifierPool) -> None:
    futures = [pool.submit(HOSTILE, Sample(completion="sleep 0.4")) for _ in range(7)]  # the last waits 2.4 s
    assert [future.result(timeout=30).outcome for future in futures] == [Outcome.CORRECT] * 7


def test_large_texts_of_any_characters_go_there_and_back(pool: VerifierPool) -> None:
    text = "né\x00\ud800😀\u2028" * 200_000
    assert ask(pool, text).extracted == text
    assert len(ask(pool, "long 5000000").extracted or "") == 5_000_000


def test_what_a_verifier_prints_is_kept_out_of_stdout(pool: VerifierPool, capfd: pytest.CaptureFixture[str]) -> None:
    with VerifierPool(workers=1) as other:
        assert ask(other, "print").correct
    assert "CORRECT" not in capfd.readouterr().out


def test_many_threads_get_their_own_verdicts() -> None:
    with VerifierPool(workers=2) as pool, ThreadPoolExecutor(8) as threads:
        texts = [f"text {n}" for n in range(400)]
        verdicts = list(threads.map(lambda text: ask(pool, text), texts))
    assert [verdict.extracted for verdict in verdicts] == texts


def test_verdicts_can_be_awaited(pool: VerifierPool) -> None:
    async def gather() -> list[Verdict]:
        futures = [pool.submit(HOSTILE, Sample(completion=text)) for text in ("a", "sleep 60", "b")]
        return await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))

    assert [verdict.outcome for verdict in asyncio.run(gather())] == ["correct", "timeout", "correct"]


def _in_a_child(queue: multiprocessing.Queue[str]) -> None:
    with VerifierPool(workers=1, deadline_seconds=0.5) as pool:
        spec = VerifierSpec(name="answer_tags")
        queue.put(pool.submit(spec, Sample(completion="<think>a</think><answer>b</answer>")).result().outcome)


@pytest.mark.parametrize("daemon", [False, True])
def test_a_spawned_process_can_have_a_pool_even_a_daemonic_one(daemon: bool) -> None:
    # As a script: pytest's own modules are not importable in a spawned child.
    script = textwrap.dedent(f"""
        import multiprocessing, sys
        sys.path.insert(0, {str(TESTS.parent)!r})
        from tests.verifiers.test_pool import _in_a_child
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=_in_a_child, args=(queue,), daemon={daemon})
            process.start()
            print(queue.get(timeout=60))
            process.join()
    """)
    path = TESTS.parent / "nothing.py"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False, cwd=path.parent
    )
    assert result.stdout == "correct\n", result.stderr


def test_a_verdict_of_steps_comes_back_with_its_steps(pool: VerifierPool) -> None:
    spec = VerifierSpec(name="r1zero.data.miniature.preferences:judge_steps")
    said = "<think>1+2=3,3+4=8</think><answer>7</answer>"
    sample = Sample(completion=said, problem=Problem(id="sum", prompt="1+2+4="))
    verdict = pool.submit(spec, sample).result()
    assert verdict.outcome is Outcome.CORRECT
    assert verdict.steps == (Step(12, 1.0), Step(18, 0.0), Step(len(said) + 1, 1.0))


def test_a_process_forked_from_the_owner_is_told_to_make_its_own(pool: VerifierPool) -> None:
    pool._owner += 1
    with pytest.raises(UserError, match="make one in this process"):
        ask(pool, "ok")


def test_a_script_without_a_main_guard_works_and_its_workers_do_not_run_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        print("once")
        from r1zero.verifiers import Sample, VerifierPool, VerifierSpec
        pool = VerifierPool(workers=1)
        print(pool.submit(VerifierSpec(name="hostile_verifiers:hostile"), Sample(completion="main")).result())
        """)
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.count("once") == 1
    assert "extracted='False'" in result.stdout, result.stderr  # and no worker has torch in it


def test_a_verifier_defined_in_the_running_script_is_refused_with_the_way_out(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
        from r1zero.verifiers import Outcome, Sample, Verdict, VerifierPool, VerifierSpec, register
        @register("mine")
        def mine(completion: str) -> Verdict:
            return Verdict(Outcome.CORRECT)
        VerifierPool(workers=1).submit(VerifierSpec(name="mine"), Sample(completion="x"))
        """)
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert "move it into a module" in result.stderr


def test_options_that_cannot_be_pickled_fail_at_submit(pool: VerifierPool) -> None:
    from r1zero.data.records import Problem

    problem = Problem(id="1", prompt="", data={"f": lambda: None})
    with pytest.raises(UserError, match="cannot be pickled"):
        pool.submit(HOSTILE, Sample(completion="ok", problem=problem))


def test_closing_ends_every_process_and_every_open_verdict() -> None:
    pool = VerifierPool(workers=2, deadline_seconds=60)
    pids = [int(ask(pool, "pid").extracted or "") for _ in range(4)]
    running = [pool.submit(HOSTILE, Sample(completion="spin_in_c")) for _ in range(2)]
    waiting = [pool.submit(HOSTILE, Sample(completion="ok")) for _ in range(50)]
    time.sleep(0.3)
    pool.close()
    pool.close()
    assert gone([*pids, pool._server._process.pid])
    for future in [*running, *waiting, pool.submit(HOSTILE, Sample(completion="ok"))]:
        verdict = future.result(timeout=5)
        assert (verdict.outcome, verdict.reason) == (Outcome.ERROR, "the pool was closed")


def test_workers_die_with_a_process_that_is_killed_even_in_c_code(tmp_path: Path) -> None:
    script = textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(TESTS)!r})
        from r1zero.verifiers import Sample, VerifierPool, VerifierSpec
        pool = VerifierPool(workers=2, deadline_seconds=600)
        spec = VerifierSpec(name="hostile_verifiers:hostile")
        pids = set()
        while len(pids) < 2:
            pids |= {{f.result().extracted for f in [pool.submit(spec, Sample(completion="pid")) for _ in range(8)]}}
        for _ in range(2):
            pool.submit(spec, Sample(completion="spin_in_c"))
        time.sleep(0.3)
        print(*pids, pool._server._process.pid, flush=True)
        time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 3
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.wait()
    assert gone(pids)


def test_forty_kills_in_a_row_leave_the_pool_as_it_was() -> None:
    with VerifierPool(workers=2, deadline_seconds=0.05) as pool:
        deeds = [("spin_in_c", "exit 1", "crash", "spin")[n % 4] for n in range(40)]
        outcomes = [f.result(60).outcome for f in [pool.submit(HOSTILE, Sample(completion=deed)) for deed in deeds]]
        assert ask(pool, "ok", seconds=10).correct
    assert all(outcome is Outcome.TIMEOUT for outcome, deed in zip(outcomes, deeds, strict=True) if "spin" in deed)
    # On a busy machine even a crash may take longer than this deadline.
    assert set(outcomes) <= {Outcome.TIMEOUT, Outcome.ERROR}


@pytest.mark.slow
def test_a_thousand_kills_in_a_row_leave_the_pool_as_it_was() -> None:
    with VerifierPool(workers=2, deadline_seconds=0.05) as pool:
        descriptors = open_files()
        futures = [pool.submit(HOSTILE, Sample(completion="spin_in_c")) for _ in range(1000)]
        assert {future.result(timeout=300).outcome for future in futures} == {Outcome.TIMEOUT}
        assert all(ask(pool, "ok", seconds=10).correct for _ in range(10))
        assert open_files() <= descriptors + 4
