"""stdin/stdout tests: the program runs as a script, and what it prints is compared here, outside the sandbox."""

from __future__ import annotations

import marshal
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable

from r1zero.verifiers.sandbox.base import InputTest, Job, Status, TestResult
from r1zero.verifiers.sandbox.inside import codec
from r1zero.verifiers.sandbox.launch import Process, program_limits

_MAX_ERROR_BYTES = 4096
_MIN_OUTPUT_BYTES = 1 << 20


def run_script(
    process: Process, job: Job, test: InputTest, deadline: float, meanwhile: Callable[[], None]
) -> TestResult | Status:
    """The result of one run of `job.source` in `process`, or the status that ends the job.

    `meanwhile` is called once the program is on its way. Raises OSError when the process was dead before it began.
    """
    ready = receive_by(process.channel, deadline)
    if ready != b"ready":
        return Status.TIMEOUT if time.monotonic() >= deadline else Status.NO_SANDBOX
    codec.send(process.channel.fileno(), marshal.dumps(["script", program_limits(job).rlimits(), job.source]))
    meanwhile()
    shown = shorten(test.input)
    try:
        max_bytes = max(_MIN_OUTPUT_BYTES, 2 * len(test.output))
        output, errors = _converse(process.popen, test.input.encode(errors="replace"), max_bytes, deadline)
        code = process.popen.wait(timeout=max(0.001, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        return Status.TIMEOUT
    except _TooMuchOutputError as error:
        return TestResult(test=shown, status="failed", reason=str(error))
    if code != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        reason = f"exit status {code}" + (f": {shorten(lines[-1])}" if lines else "")
        return TestResult(test=shown, status="failed", reason=reason)
    printed = output.decode(errors="replace")
    if same_output(printed, test.output):
        return TestResult(test=shown, status="passed")
    return TestResult(test=shown, status="failed", reason=f"printed {shorten(printed)!r}, not {shorten(test.output)!r}")


def same_output(printed: str, expected: str) -> bool:
    """True when both hold the same lines, blanks at the end of a line and empty lines at the end aside."""
    return _lines(printed) == _lines(expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


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
