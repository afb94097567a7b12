"""The far side of the pool: a fork server, and the workers it forks. `pool` starts it and talks to it.

The server is a process of its own that imports the verifiers once and nothing of the trainer (not its main script, not
torch, not vLLM), has one thread, and forks a worker in a millisecond when asked. Its control socket carries JSON, with
the worker's end of a socket pair beside a `fork`:
    {"do": "fork"} + fd -> {"pid": 12}      {"do": "end", "pid": 12} -> {"status": -9}      {"do": "import", …} -> {}
It alone kills and reaps workers, so a process id is never one that was given out anew. It ends when the socket does:
with the pool, or with the pool's process however that dies, and takes the workers along.

A worker reads a pickled `Task` and answers with a verdict in JSON: a worker that a hostile text took over can lie about
its verdict, but cannot make the trainer run anything, as a pickle could.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from r1zero.data.verdict import Outcome, Step, Verdict
from r1zero.verifiers.registry import Sample, get, load_plugins

MAX_MESSAGE_BYTES = 65536
_MAX_REASON_CHARS = 2000
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


@dataclass(frozen=True, kw_only=True)
class Task:
    """One verification as it crosses to a worker."""

    name: str
    """The verifier's name, or `package.module:function`."""
    module: str
    """Module whose import registers it."""
    options: Mapping[str, Any]
    sample: Sample


def serve_forks(control_fd: int, memory_bytes: int) -> None:
    """The fork server's life: answer requests until the control socket closes, then kill every worker."""
    load_plugins()
    workers: set[int] = set()
    with socket.socket(fileno=control_fd) as control:
        while True:
            message, fds, _, _ = socket.recv_fds(control, MAX_MESSAGE_BYTES, 1)
            if not message:
                break
            request = json.loads(message)
            reply: dict[str, Any] = {}
            if request["do"] == "fork":
                pid = os.fork()
                if pid == 0:
                    control.close()
                    _live_as_worker(fds[0], memory_bytes, request.get("serve", ""))
                workers.add(pid)
                reply = {"pid": pid}
            elif request["do"] == "end":
                # Only a child of this server: after a restart, an old number may be anybody's.
                known = request["pid"] in workers
                workers.discard(request["pid"])
                reply = {"status": _end(request["pid"]) if known else None}
            elif request["do"] == "import":
                # A module that cannot be imported is the worker's to report, in the verdict that needs it.
                with suppress(Exception):
                    importlib.import_module(request["module"])
            for fd in fds:
                os.close(fd)
            try:
                control.send(json.dumps(reply).encode())
            except BrokenPipeError:
                break
    for pid in workers:
        _end(pid)


def _end(pid: int) -> int:
    """Kill worker `pid` and what it started, reap it, and return how it ended: an exit code, or -signal."""
    # It leads a process group of its own from its first line on; before that line there is only itself to kill.
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _live_as_worker(channel_fd: int, memory_bytes: int, serve: str) -> None:
    """Everything a worker does, from fork to exit; never returns. `serve`: `module:function` in place of judging."""
    server = os.getppid()
    status = 1
    try:
        os.setsid()
        _die_with_parent(server)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # Left open: the pool takes a closed channel for this process's end, and would kill it before its exit status.
        module, _, function = serve.partition(":")
        serve_channel = getattr(importlib.import_module(module), function) if serve else _serve_tasks
        serve_channel(Connection(channel_fd), memory_bytes)
        status = 0
    finally:
        # Not sys.exit: the server's cleanup handlers and open files are not the worker's to run and flush.
        os._exit(status)


def _die_with_parent(parent: int) -> None:
    """Ask the kernel (Linux) for a SIGKILL when the server dies, whatever this process is in the middle of."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)


def _serve_tasks(channel: Connection[Any, Any], memory_bytes: int) -> None:
    """Answer tasks until the pool closes the channel, or until this process is too big to go on."""
    while True:
        try:
            payload = channel.recv_bytes()
        except (EOFError, ConnectionResetError):
            return
        verdict = _judge(payload)
        # A worker past half its memory is replaced: what made it grow would fail some later, innocent text.
        last = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > memory_bytes // 2
        channel.send_bytes(_encode(verdict, last))
        if last:
            return


def _judge(payload: bytes) -> Verdict:
    """The verdict on a pickled `Task`; whatever reading it or the verifier raises becomes an `error` that says so."""
    name = "the task"
    try:
        task: Task = pickle.loads(payload)
        name = repr(task.name)
        importlib.import_module(task.module)
        return get(task.name)(task.sample, task.options)
    except MemoryError:
        return Verdict(Outcome.ERROR, reason=f"{name} ran out of memory")
    except (Exception, SystemExit) as error:  # noqa: BLE001  a plugin may raise anything; the verdict names it
        return Verdict(Outcome.ERROR, reason=f"{name} raised {describe_exception(error)}")


def describe_exception(error: BaseException) -> str:
    """Type, message and innermost place of `error` on one line of bounded length."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f" (in {code.co_name}, {Path(code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message[:_MAX_REASON_CHARS]}{place}"


def _encode(verdict: Verdict, last: bool) -> bytes:
    try:
        return json.dumps({**asdict(verdict), "last": last}).encode()
    except (TypeError, ValueError) as error:
        broken = Verdict(Outcome.ERROR, reason=f"the verdict cannot be written as JSON: {error}")
        return json.dumps({**asdict(broken), "last": last}).encode()


def decode(message: bytes) -> tuple[Verdict, bool]:
    """The verdict in a worker's answer, and whether the worker ends with it. Raises ValueError or TypeError when the
    answer is not a verdict."""
    answer = json.loads(message)
    last = bool(answer.pop("last"))
    answer["steps"] = tuple(Step(**step) for step in answer.get("steps", ()))
    return Verdict(Outcome(answer.pop("outcome")), **answer), last
