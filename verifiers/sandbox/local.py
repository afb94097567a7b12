"""Jobs on this machine: a fresh process for each program, started one ahead, and one warm tester for each thread."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from r1zero.verifiers.sandbox.base import InputTest, Job, Report, Status, TestResult
from r1zero.verifiers.sandbox.inside import codec
from r1zero.verifiers.sandbox.launch import Launcher, Limits, Process, program_limits, start
from r1zero.verifiers.sandbox.script import (
    Ran,
    checked,
    checker_message,
    execute,
    failed,
    judged,
    not_run,
    output_limit,
    receive_by,
)

_TESTER_MEMORY_BYTES = 1 << 30
_TESTER_START_SECONDS = 20.0  # a cold disk; paid once, and not from a program's time
_LATE_SECONDS = 0.2

_COMPILER = Limits(memory_bytes=2 << 30, cpu_seconds=10, disk_bytes=64 << 20, compiler=True)
_COMPILE_SECONDS = 25.0
"""Besides the program's own time: a second is usual, and a busy machine may take many. Its processor time is the limit
that a program made to compile without end meets."""
_MAX_BINARY_BYTES = 16 << 20
_COMPILE = """d=$(mktemp -d) && g++ -x c++ -std=c++17 -O2 -o "$d/program" - >&2 && cat "$d/program"
code=$?; rm -rf "$d"; exit $code"""


class LocalSandbox:
    """A `Sandbox` whose processes a `Launcher` starts on this machine."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self._own = _Own()
        self._seen_working = False

    def status(self) -> str | None:
        if not self._seen_working:
            problem = self.launcher.status()
            if problem is not None:
                return problem
            self._seen_working = True
        return None

    def close(self) -> None:
        """End what this thread keeps warm; otherwise it ends with the thread, or with this process."""
        self._own.clear()

    def run(self, job: Job) -> Report:
        """See `Sandbox.run`. A program past the deadline is killed with its whole namespace."""
        report = self._attempt(job)
        if report.status is Status.NO_SANDBOX:
            # A process kept warm may have died meanwhile (the machine short of memory): once more, with fresh ones.
            self._own.clear()
            report = self._attempt(job)
        if report.status is not Status.NO_SANDBOX:
            return report
        self._seen_working = False
        reason = self.status() or "a process died before it was inside the sandbox: is the machine out of memory?"
        return Report(status=Status.NO_SANDBOX, reason=reason)

    def _attempt(self, job: Job) -> Report:
        try:
            tester = self._tester() if job.tests else None  # a cold one takes no time of the program's
            deadline = time.monotonic() + job.timeout_seconds
            report = Report(status=Status.RAN)
            if tester is not None:
                report = self._run_tests(job, tester, deadline)
            if (
                job.input_tests
                and report.status is Status.RAN
                and (job.all_tests or not job.tests or report.all_passed)
            ):
                report = self._run_inputs(job, report, deadline)
        except OSError:  # a process cannot be started, or has gone
            return Report(status=Status.NO_SANDBOX)
        return report

    def _tester(self) -> Process:
        """This thread's tester, started if need be. Raises OSError when it cannot be."""
        tester = self._own.tester
        if tester is None or not tester.ours:
            limits = Limits(memory_bytes=_TESTER_MEMORY_BYTES)
            tester = start(self.launcher, "tester", limits)
            if receive_by(tester.channel, time.monotonic() + _TESTER_START_SECONDS) != b"ready":
                tester.kill()
                raise ConnectionError("the tester never started")
            self._own.tester = tester
        return tester

    def _program(self, limits: Limits) -> Process:
        """A fresh process for one program: the one started ahead if there is one that fits."""
        program, self._own.standby = self._own.standby, None
        if program is not None and program.ours and self._own.standby_packages == limits.packages:
            return program
        if program is not None:
            program.kill()
        return start(self.launcher, "program", Limits(packages=limits.packages))

    def _start_ahead(self, job: Job) -> None:
        """Start the next program's process, while this one's runs: most of a start is waiting for the kernel."""
        with contextlib.suppress(OSError):
            self._own.standby = start(self.launcher, "program", Limits(packages=job.packages))
            self._own.standby_packages = job.packages

    def _run_tests(self, job: Job, tester: Process, deadline: float) -> Report:
        program = self._program(program_limits(job))
        try:
            _ask(tester.channel, job, self.launcher.package_folders(job.packages), program.channel)
            self._start_ahead(job)
            answer = _answer_by(tester.channel, deadline)
        finally:
            program.kill()
        late = answer is None
        if late and time.monotonic() < deadline:
            raise ConnectionError("the tester died")
        if late:
            # With the program gone, a tester that waited for it ends at once and says how far it came. One that does
            # not is caught in the tests themselves: the next job gets another.
            answer = _answer_by(tester.channel, time.monotonic() + _LATE_SECONDS)
            if answer is None:
                tester.kill()
        results = tuple(_test_result(test) for test in (answer or {}).get("tests", ()))
        if answer is None or late:
            return Report(status=Status.TIMEOUT, tests=results, reason=f"over {job.timeout_seconds:g} s")
        return Report(status=_STATUSES[answer["status"]], tests=results, reason=answer.get("reason", ""))

    def _run_inputs(self, job: Job, report: Report, deadline: float) -> Report:
        rlimits = program_limits(job).rlimits()
        body: list[Any] = ["script", job.source, job.library, {}]
        if job.language == "cpp":
            binary = self._compile(job)
            if isinstance(binary, Report):
                return binary
            deadline = time.monotonic() + job.timeout_seconds
            body = ["binary", binary]
        message = [body[0], rlimits, self.launcher.package_folders(job.packages), *body[1:]]
        results = list(report.tests)
        for index, test in enumerate(job.input_tests):
            outcome = self._run_input(job, test, message, deadline)
            left = [not_run(test) for test in job.input_tests[index + 1 :]]
            if isinstance(outcome, Status):
                reason = f"over {job.timeout_seconds:g} s in input {index + 1}" if outcome is Status.TIMEOUT else ""
                return Report(status=outcome, tests=(*results, not_run(test), *left), reason=reason)
            results.append(outcome)
            if outcome.status == "failed" and not job.all_tests:
                results += left
                break
        return dataclasses.replace(report, tests=tuple(results))

    def _run_input(self, job: Job, test: InputTest, message: list[Any], deadline: float) -> TestResult | Status:
        ran = self._execute(job, message, test.input, output_limit(test), deadline)
        if isinstance(ran, Status):
            return ran
        if isinstance(ran, str):
            return failed(test, ran)
        result = judged(job, test, ran)
        if result is not None:
            return result
        limits = Limits(memory_bytes=_TESTER_MEMORY_BYTES, cpu_seconds=int(job.timeout_seconds) + 2)
        asked = checker_message(limits.rlimits(), job.checker, test, ran)
        checker = self._execute(job, asked, "", output_limit(test), deadline)
        return checker if isinstance(checker, Status) else checked(test, ran, checker)

    def _execute(self, job: Job, message: list[Any], given: str, max_bytes: int, deadline: float) -> Ran | Status | str:
        program = self._program(program_limits(job))
        try:
            return execute(program, message, given, max_bytes, deadline, meanwhile=lambda: self._start_ahead(job))
        finally:
            program.kill()

    def _compile(self, job: Job) -> bytes | Report:
        """The program's machine code; or the report that says why there is none."""
        if not Path("/usr/bin/g++").exists():
            return Report(status=Status.BAD_TESTS, reason="language cpp needs g++ in /usr/bin: `apt-get install g++`")
        process = start(self.launcher, "program", _COMPILER)
        deadline = time.monotonic() + _COMPILE_SECONDS
        message: list[object] = ["compile", _COMPILER.rlimits(), [], _COMPILE]
        try:
            ran = execute(process, message, job.source, _MAX_BINARY_BYTES, deadline, meanwhile=lambda: None)
        finally:
            process.kill()
        if isinstance(ran, Ran) and ran.code == 0:
            return ran.output
        if isinstance(ran, Status):
            reason = f"over {_COMPILE_SECONDS:g} s to compile" if ran is Status.TIMEOUT else ""
            return Report(status=ran, reason=reason)
        if isinstance(ran, Ran):
            lines = ran.errors.decode(errors="replace").splitlines()
            reason = next((line for line in lines if "error" in line), ran.last_error or f"exit status {ran.code}")
            return Report(status=Status.NOT_LOADED, reason=f"it does not compile: {reason[:300]}")
        return Report(status=Status.NOT_LOADED, reason=f"it does not compile: {ran}")


class _Own(threading.local):
    """The warm processes of one thread: bubblewrap dies with the thread that started it."""

    tester: Process | None = None
    standby: Process | None = None
    standby_packages: tuple[str, ...] = ()

    def clear(self) -> None:
        for process in (self.tester, self.standby):
            if process is not None:
                process.kill()
        self.tester = self.standby = None


_STATUSES = {
    "ran": Status.RAN,
    "program": Status.NOT_LOADED,
    "sandbox": Status.NO_SANDBOX,
    "tests": Status.BAD_TESTS,
}


def _ask(tester: socket.socket, job: Job, paths: list[str], program: socket.socket) -> None:
    """Send the tester a job and the channel to its program. Raises OSError when the tester has gone."""
    request = {
        "source": job.source,
        "program_limits": program_limits(job).rlimits(),
        "paths": paths,
        "library": job.library,
        "tests": job.tests,
        "entry_point": job.entry_point,
        "prelude": job.prelude,
        "all_tests": job.all_tests,
        "limits": {"AS": _TESTER_MEMORY_BYTES, "CPU": int(job.timeout_seconds) + 2, "CORE": 0},
    }
    socket.send_fds(tester, [b"\0"], [program.fileno()])
    codec.send(tester.fileno(), json.dumps(request).encode())


def _answer_by(tester: socket.socket, deadline: float) -> dict[str, Any] | None:
    """The tester's report; None when it is not there by `deadline`."""
    answer = receive_by(tester, deadline)
    if answer is None:
        return None
    report: dict[str, Any] = json.loads(answer)
    return report


def _test_result(test: dict[str, Any]) -> TestResult:
    status = "failed" if test["failed"] else "passed" if test["passed"] else "not run"
    return TestResult(test=test["test"], status=status, reason=test["reason"])
