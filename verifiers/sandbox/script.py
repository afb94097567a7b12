"""stdin/stdout tests: the program runs as a script, and what it prints is compared here, outside the sandbox.

A checker is a Python program of the data set's. It judges in a process of its own, started after the program's has
gone: it defines `check(input, expected, output)`, or it is a script that is given three files as arguments, the input,
the expected output and the printed one, and exits with 0 or prints 1 (Codeforces' `generated_checker`).
"""

from __future__ import annotations

import marshal
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from r1zero.verifiers.sandbox.base import InputTest, Job, Status, TestResult
from r1zero.verifiers.sandbox.compare import same_output
from r1zero.verifiers.sandbox.inside import codec
from r1zero.verifiers.sandbox.launch import Process

_MAX_ERROR_BYTES = 4096
_MIN_OUTPUT_BYTES = 1 << 20


CHECKER_FILES = ("input.txt", "expected.txt", "output.txt")

_CHECKER_CALL = """
if "check" in globals():
    import sys as _sys
    print(int(bool(check(*[open(_name, newline="").read() for _name in _sys.argv[1:4]]))))
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A process that ended by itself."""

    code: int
    output: bytes
    errors: bytes

    @property
    def last_error(self) -> str:
        lines = self.errors.decode(errors="replace").strip().splitlines()
        return shorten(lines[-1]) if lines else ""


def execute(
    process: Process, message: list[object], given: str, max_bytes: int, deadline: float, meanwhile: Callable[[], None]
) -> Ran | Status | str:
    """What came of one whole run of a process that has just been started: how it ended, the status that ends the job,
    or why its output was not read to the end.

    message: see `inside.program.main`. `meanwhile` is called once the program is on its way. Raises OSError when the
    process was dead before it began.
    """
    ready = receive_by(process.channel, deadline)
    if ready != b"ready":
        return Status.TIMEOUT if time.monotonic() >= deadline else Status.NO_SANDBOX
    codec.send(process.channel.fileno(), marshal.dumps(message))
    meanwhile()
    try:
        output, errors = _converse(process.popen, given.encode(errors="replace"), max_bytes, deadline)
        code = process.popen.wait(timeout=max(0.001, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        return Status.TIMEOUT
    except _TooMuchOutputError as error:
        return str(error)
    return Ran(code=code, output=output, errors=errors)


def output_limit(test: InputTest) -> int:
    """How many bytes a program may print."""
    return max(_MIN_OUTPUT_BYTES, 2 * len(test.output))


def failed(test: InputTest, reason: str) -> TestResult:
    return TestResult(test=shorten(test.input), status="failed", reason=reason)


def judged(job: Job, test: InputTest, ran: Ran) -> TestResult | None:
    """The result of a run by comparison; None where the output is for the job's checker to judge."""
    if ran.code != 0:
        return failed(test, f"exit status {ran.code}" + (f": {ran.last_error}" if ran.last_error else ""))
    if job.checker:
        return None
    printed = ran.output.decode(errors="replace")
    if same_output(printed, test.output, strict=job.strict, tolerance=job.tolerance):
        return TestResult(test=shorten(test.input), status="passed")
    return failed(test, f"printed {shorten(printed)!r}, not {shorten(test.output)!r}")


def checker_message(limits: dict[str, int], checker: str, test: InputTest, ran: Ran) -> list[object]:
    """What starts the checker, in a fresh process, once the program is gone: it finds the files `CHECKER_FILES`."""
    texts = (test.input, test.output, ran.output.decode(errors="replace"))
    return ["script", limits, [], checker + _CHECKER_CALL, [], dict(zip(CHECKER_FILES, texts, strict=True))]


def checked(test: InputTest, ran: Ran, checker: Ran | str) -> TestResult:
    """The result of a run by what the checker said: it holds for exit status 0 and, where it prints, a last line that
    is a number of 1 or more."""
    if isinstance(checker, str):
        return failed(test, f"the checker {checker}")
    said = checker.output.decode(errors="replace").split()
    try:
        held = checker.code == 0 and (not said or float(said[-1]) >= 1)
    except ValueError:
        held = False
    if held:
        return TestResult(test=shorten(test.input), status="passed")
    printed = shorten(ran.output.decode(errors="replace"))
    because = checker.last_error or shorten(" ".join(said)) or f"exit status {checker.code}"
    return failed(test, f"printed {printed!r}, which the checker refuses: {because}")


class _TooMuchOutputError(Exception):
    pass


def _converse(popen: subprocess.Popen[bytes], given: bytes, max_bytes: int, deadline: float) -> tuple[bytes, bytes]:
    """Write `given` to the process and read both its outputs until it closes them: stdout, and the end of stderr.

    Raises TimeoutError at the deadline, _TooMuchOutputError past `max_bytes` of either.
    """
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    output, errors, to_write = popen.stdout.fileno(), popen.stderr.fileno(), memoryview(given)
    os.set_blocking(popen.stdin.fileno(), False)
    kept: dict[int, list[bytes]] = {output: [], errors: []}
    sizes = dict.fromkeys(kept, 0)
    poll = select.poll()
    for fd in kept:
        poll.register(fd, select.POLLIN)
    poll.register(popen.stdin.fileno(), select.POLLOUT)
    num_open = len(kept)
    while num_open:
        events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not events:
            raise TimeoutError
        for fd, event in events:
            if fd not in kept:
                try:
                    # A pipe whose reader has gone is no error: the program need not read its input.
                    to_write = to_write[os.write(fd, to_write[:65536]) :] if event == select.POLLOUT else to_write[:0]
                except BrokenPipeError:
                    to_write = to_write[:0]
                if not to_write:
                    poll.unregister(fd)
                    popen.stdin.close()
                continue
            part = os.read(fd, 65536)
            if not part:
                poll.unregister(fd)
                num_open -= 1
            sizes[fd] += len(part)
            if sizes[fd] > max_bytes:
                raise _TooMuchOutputError(f"printed over {max_bytes} bytes")
            kept[fd].append(part)
    return b"".join(kept[output]), b"".join(kept[errors])[-_MAX_ERROR_BYTES:]


def receive_by(channel: socket.socket, deadline: float) -> bytes | None:
    """One message, or None when it has not come by `deadline` or never will."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        return None
    return codec.receive(channel.fileno())


def not_run(test: InputTest) -> TestResult:
    return TestResult(test=shorten(test.input), status="not run")


def shorten(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
