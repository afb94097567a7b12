"""Jobs on this machine: one fresh process for each program, one warm tester for each of our threads."""

from __future__ import annotations

import dataclasses
import json
import marshal
import os
import select
import socket
import subprocess
import threading
import time
import weakref
from typing import Any

from r1zero.verifiers.sandbox.base import InputTest, Job, Report, Status, TestResult
from r1zero.verifiers.sandbox.inside import codec
from r1zero.verifiers.sandbox.launch import Launcher, Limits, Process, start

_TESTER_MEMORY_BYTES = 1 << 30
_TESTER_START_SECONDS = 20.0  # a cold disk; paid once, and not from a program's time
_LATE_SECONDS = 0.2
_MAX_ERROR_BYTES = 4096
_MIN_OUTPUT_BYTES = 1 << 20


class LocalSandbox:
    """A `Sandbox` whose processes a `Launcher` starts on this machine."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher = launcher
        self._own = threading.local()
        self._seen_working = False

    def status(self) -> str | None:
        if not self._seen_working:
            problem = self.launcher.status()
            if problem is not None:
                return problem
            self._seen_working = True
        return None

    def run(self, job: Job) -> Report:
        """See `Sandbox.run`. A program past the deadline is killed with its whole namespace."""
        report = Report(status=Status.RAN)
        if job.tests:
            # A missing tester costs no program time: start it before the clock.
            tester = self._tester()
            if tester is None:
                return self._no_sandbox()
            deadline = time.monotonic() + job.timeout_seconds
            report = self._run_tests(job, tester, deadline)
        else:
            deadline = time.monotonic() + job.timeout_seconds
        if job.input_tests and report.status is Status.RAN and (job.all_tests or not report.reason):
            report = self._run_inputs(job, report, deadline)
        return self._no_sandbox() if report.status is Status.NO_SANDBOX else report

    def _no_sandbox(self) -> Report:
        self._seen_working = False
        reason = self.status() or "a process died before it was inside the sandbox: is the machine out of memory?"
        return Report(status=Status.NO_SANDBOX, reason=reason)

    # Tests that call functions

    def _run_tests(self, job: Job, tester: Tester, deadline: float) -> Report:
        try:
            program = start(self.launcher, "program", _limits(job))
        except OSError:
            return Report(status=Status.NO_SANDBOX)
        try:
            answer = tester.ask(job, program.channel, deadline)
        finally:
            program.kill()
        late = answer is None
        if answer is None:
            # With the program gone, a tester that waited for it ends at once and says how far it came.
            answer = tester.answer_by(time.monotonic() + _LATE_SECONDS)
        if answer is None:  # caught in the tests themselves: the next job gets another
            tester.close()
            answer = {"status": "ran"}
        results = tuple(_test_result(test) for test in answer.get("tests", ()))
        if late:
            return Report(status=Status.TIMEOUT, tests=results, reason=f"over {job.timeout_seconds:g} s")
        statuses = {"ran": Status.RAN, "program": Status.NOT_LOADED, "sandbox": Status.NO_SANDBOX}
        return Report(
            status=statuses.get(answer["status"], Status.BAD_TESTS), tests=results, reason=answer.get("reason", "")
        )

    def _tester(self) -> Tester | None:
        """This thread's tester, started if need be; None when it cannot be.

        One for each thread because bubblewrap dies with the thread that started it, and for each process because a
        fork shares its socket.
        """
        tester: Tester | None = getattr(self._own, "tester", None)
        if tester is None or tester.closed or tester.pid != os.getpid():
            tester = self._own.tester = Tester.start(self.launcher)
        return tester

    # Tests that run the program as a script

    def _run_inputs(self, job: Job, report: Report, deadline: float) -> Report:
        results = list(report.tests)
        for index, test in enumerate(job.input_tests):
            if time.monotonic() >= deadline:
                outcome: TestResult | Status = Status.TIMEOUT
            else:
                outcome = _run_input(self.launcher, job, test, deadline)
            if isinstance(outcome, Status):
                reason = f"over {job.timeout_seconds:g} s in input {index + 1}" if outcome is Status.TIMEOUT else ""
                results += [_not_run(rest) for rest in job.input_tests[index:]]
                return Report(status=outcome, tests=tuple(results), reason=reason)
            results.append(outcome)
            if outcome.status == "failed" and not job.all_tests:
                results += [_not_run(rest) for rest in job.input_tests[index + 1 :]]
                break
        return dataclasses.replace(report, tests=tuple(results))


class Tester:
    """Our side of a warm tester process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.pid = os.getpid()
        # Ends with this object, hence with its thread; also at exit.
        self._finalizer = weakref.finalize(self, _kill_in_its_process, process, self.pid)

    @classmethod
    def start(cls, launcher: Launcher) -> Tester | None:
        """None where it cannot be started."""
        try:
            limits = Limits(memory_bytes=_TESTER_MEMORY_BYTES, cpu_seconds=1 << 30)
            process = start(launcher, "tester", limits)
        except OSError:
            return None
        tester = cls(process)
        if _receive_by(process.channel, time.monotonic() + _TESTER_START_SECONDS) != b"ready":
            tester.close()
            return None
        return tester

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self) -> None:
        self._finalizer()

    def ask(self, job: Job, program: socket.socket, deadline: float) -> dict[str, Any] | None:
        """The tester's report on `job`, whose program listens at `program`; None when it is not there by `deadline`."""
        request = {
            "source": job.source,
            "tests": job.tests,
            "entry_point": job.entry_point,
            "prelude": job.prelude,
            "all_tests": job.all_tests,
            "limits": {"AS": _TESTER_MEMORY_BYTES, "CPU": int(job.timeout_seconds) + 2},
        }
        try:
            socket.send_fds(self.process.channel, [b"\0"], [program.fileno()])
            codec.send(self.process.channel.fileno(), json.dumps(request).encode())
        except OSError:
            self.close()
            return {"status": "sandbox"}
        return self.answer_by(deadline)

    def answer_by(self, deadline: float) -> dict[str, Any] | None:
        """The report of the job asked for; None when it is not there by `deadline`."""
        answer = _receive_by(self.process.channel, deadline)
        if answer is None:
            return None
        report: dict[str, Any] = json.loads(answer)
        return report


def _kill_in_its_process(process: Process, pid: int) -> None:
    if os.getpid() == pid:
        process.kill()


def _receive_by(channel: socket.socket, deadline: float) -> bytes | None:
    """One message, or None when it has not come by `deadline` or never will."""
    if not _readable(channel.fileno(), deadline):
        return None
    return codec.receive(channel.fileno())


def _limits(job: Job) -> Limits:
    return Limits(memory_bytes=job.memory_bytes, cpu_seconds=int(job.timeout_seconds) + 2)


def _test_result(test: dict[str, Any]) -> TestResult:
    status = "failed" if test["failed"] else "passed" if test["passed"] else "not run"
    return TestResult(test=test["test"], status=status, reason=test["reason"])


def _not_run(test: InputTest) -> TestResult:
    return TestResult(test=_shorten(test.input), status="not run")


def _run_input(launcher: Launcher, job: Job, test: InputTest, deadline: float) -> TestResult | Status:
    """The result of one run, or the status that ends the job."""
    input_fd = os.memfd_create("input")
    try:
        with os.fdopen(os.dup(input_fd), "wb") as file:
            file.write(test.input.encode(errors="surrogatepass"))
        os.lseek(input_fd, 0, os.SEEK_SET)
        process = start(launcher, "program", _limits(job), stdin=input_fd, capture=True)
    except OSError:
        return Status.NO_SANDBOX
    finally:
        os.close(input_fd)
    try:
        return _watch_input(process, job, test, deadline)
    finally:
        process.kill()


def _watch_input(process: Process, job: Job, test: InputTest, deadline: float) -> TestResult | Status:
    if not _readable(process.channel.fileno(), deadline):
        return Status.TIMEOUT
    if codec.receive(process.channel.fileno()) != b"ready":
        return Status.NO_SANDBOX
    source = marshal.dumps(["script", job.source])
    process.channel.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        process.channel.sendall(len(source).to_bytes(4, "little") + source)
        output, errors = _read_output(process, max(_MIN_OUTPUT_BYTES, 2 * len(test.output)), deadline)
        code = process.popen.wait(timeout=max(0.001, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        return Status.TIMEOUT
    except _TooMuchOutputError as error:
        return TestResult(test=_shorten(test.input), status="failed", reason=str(error))
    except ConnectionError:
        return Status.NO_SANDBOX
    shown = _shorten(test.input)
    if code != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = f"exit status {code}" + (f": {_shorten(lines[-1])}" if lines else "")
        return TestResult(test=shown, status="failed", reason=reason)
    printed = output.decode(errors="replace")
    if same_output(printed, test.output):
        return TestResult(test=shown, status="passed")
    return TestResult(
        test=shown, status="failed", reason=f"printed {_shorten(printed)!r}, not {_shorten(test.output)!r}"
    )


def same_output(printed: str, expected: str) -> bool:
    """True when both hold the same lines, blanks at the end of a line and empty lines at the end aside."""
    return [line.rstrip() for line in printed.rstrip().splitlines()] == [
        line.rstrip() for line in expected.rstrip().splitlines()
    ]


class _TooMuchOutputError(Exception):
    pass


def _read_output(process: Process, max_bytes: int, deadline: float) -> tuple[bytes, bytes]:
    """What the process printed until it closed both streams. Raises TimeoutError and _TooMuchOutputError."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.fileno(), process.stderr.fileno()
    kept: dict[int, list[bytes]] = {output: [], errors: []}
    sizes = dict.fromkeys(kept, 0)
    poll = select.poll()
    for fd in kept:
        poll.register(fd, select.POLLIN)
    still_open = set(kept)
    while still_open:
        left = deadline - time.monotonic()
        events = poll.poll(max(0.0, left) * 1000)
        if not events:
            raise TimeoutError
        for fd, _ in events:
            part = os.read(fd, 1 << 16)
            if not part:
                poll.unregister(fd)
                still_open.discard(fd)
                continue
            sizes[fd] += len(part)
            if sizes[fd] > max_bytes:
                raise _TooMuchOutputError(f"printed over {max_bytes} bytes")
            kept[fd].append(part)
    return b"".join(kept[output]), b"".join(kept[errors])[-_MAX_ERROR_BYTES:]


def _readable(fd: int, deadline: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _shorten(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
