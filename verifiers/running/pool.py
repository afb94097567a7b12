"""Worker processes for verifiers, with a deadline that kills.

A worker past its deadline is killed (also in C code that holds the interpreter lock) and replaced; one that dies costs
a single `error` verdict. A deadline needs no signal and no main thread, so it holds in threads, async code and spawned
processes. The workers never import the script that made the pool, so a script needs no `if __name__ == "__main__"`.

Why not a pool off the shelf: Pebble 5 polls at 0.1 s, gives a worker stuck in C code 3 s after its deadline while no
other deadline is looked at, breaks for good when an idle worker is killed, and leaves its workers behind when its own
process is (tests/bench/bench_pool.py measures both). `concurrent.futures` has no deadline that kills.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, VerifierSpec, resolve
from r1zero.verifiers.running.worker import MAX_MESSAGE_BYTES, Task, decode, describe_exception

DEFAULT_DEADLINE_SECONDS = 5.0
DEFAULT_MEMORY_BYTES = 2 << 30
SERVER_SECONDS = 120.0
"""How long the fork server may take to start, or to import a verifier's module."""
# One thread for each numeric library, whose pools of threads do not survive a fork, and no GPU for a verifier.
_WORKER_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | {
    "CUDA_VISIBLE_DEVICES": ""
}


@dataclass(frozen=True)
class Worker:
    pid: int
    channel: Connection[Any, Any]
    generation: int
    """How many imports the server had made when it forked this worker."""


class ForkServer:
    """The near side of `worker.serve_forks`; used by all threads of one pool, under a lock. Restarts when it died."""

    def __init__(self, memory_bytes: int) -> None:
        self._memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._imported: list[str] = []
        self._stopped = False
        self._start()

    def _start(self) -> None:
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(SERVER_SECONDS)
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from r1zero.verifiers.running.worker import serve_forks; "
            f"serve_forks({far.fileno()}, {self._memory_bytes})"
        )
        with far:
            # Its own session: a Ctrl-C in the terminal is for the trainer to handle. What a verifier prints goes to
            # stderr, so that it cannot mix with the output of a command.
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=2,
                pass_fds=[far.fileno()],
                env=os.environ | _WORKER_ENVIRONMENT,
                start_new_session=True,
            )

    def _ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """The server's reply. Raises OSError when it died or does not answer; it is dead in either case then, since an
        answer that comes late would be taken for another's."""
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], fds)
            message = self._control.recv(MAX_MESSAGE_BYTES)
        except OSError:
            self._process.kill()
            raise
        if not message:
            raise ConnectionResetError(f"the verifiers' fork server ended with {self._process.wait()}")
        reply: dict[str, Any] = json.loads(message)
        return reply

    @property
    def generation(self) -> int:
        return len(self._imported)

    def import_module(self, module: str) -> None:
        """Import `module` before the next fork, so that no worker spends its deadline on it. Once is enough."""
        if module in self._imported:
            return
        with self._lock:
            if module not in self._imported:
                self._imported.append(module)
                self._ask({"do": "import", "module": module})

    def fork(self, serve: str = "") -> Worker:
        """A fresh worker, or a process that serves its channel by `module:function`. Raises OSError when the server
        died and dies again."""
        with self._lock:
            try:
                return self._fork(serve)
            except OSError:
                if self._stopped:
                    raise
                self._process.kill()
                self._process.wait()
                self._control.close()
                self._imported.clear()
                self._start()
                return self._fork(serve)

    def _fork(self, serve: str) -> Worker:
        near, far = socket.socketpair()
        with far:
            try:
                reply = self._ask({"do": "fork", "serve": serve}, (far.fileno(),))
            except OSError:
                near.close()
                raise
        return Worker(reply["pid"], Connection(near.detach()), self.generation)

    def end(self, worker: Worker) -> int | None:
        """Kill `worker` if it lives; how it ended (exit code, or -signal), None when the server is gone as well."""
        worker.channel.close()
        with self._lock:
            try:
                status: int | None = self._ask({"do": "end", "pid": worker.pid})["status"]
            except OSError:
                return None
        return status

    def stop(self) -> None:
        """End the server, which kills every worker; threads that wait for one see its channel close."""
        self._stopped = True
        # Not under the lock: shutdown() wakes the server, and a thread of ours that waits for its reply.
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._control.close()


@dataclass(frozen=True)
class _Job:
    future: Future[Verdict]
    name: str
    preload: tuple[str, ...]
    payload: bytes
    """The pickled `Task`."""
    deadline_seconds: float


class VerifierPool:
    """A pool of killable workers that resolve verifiers by name. Give it back with `close()`, or use it in `with`.

    workers: processes (default: one a core); deadline_seconds: for each verdict, from when a worker takes it up: time
    in the queue does not count; memory_bytes: address space of one worker.
    """

    def __init__(
        self,
        workers: int | None = None,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        self.deadline_seconds = deadline_seconds
        self._owner = os.getpid()
        self._closed = False
        self._submitting = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._server = ForkServer(memory_bytes)
        count = workers or os.cpu_count() or 1
        # One thread a worker: it hands over a job, waits for the answer until the deadline, and kills.
        self._threads = [
            threading.Thread(target=self._serve_one_worker, name=f"verifier-{index}", daemon=True)
            for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, spec: VerifierSpec, sample: Sample, deadline_seconds: float | None = None) -> Future[Verdict]:
        """Schedule one verification; the future always yields a Verdict (in async code: `asyncio.wrap_future`).

        deadline_seconds: for this one; None: the pool's.
        Raises UserError for an unknown verifier or option, for options that cannot be pickled, for a verifier defined
        in the running script, and in a process forked from the pool's.
        """
        verifier = resolve(spec)
        module = verifier.function.__module__
        if module == "__main__":
            raise UserError(
                f"verifier {spec.name!r} is defined in the script that runs, which workers do not import: move it into "
                "a module and name it `module:function`"
            )
        if os.getpid() != self._owner:
            raise UserError("this VerifierPool belongs to the process that made it: make one in this process")
        try:
            payload = pickle.dumps(Task(name=spec.name, module=module, options=spec.options, sample=sample))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UserError(f"options or problem data of verifier {spec.name!r} cannot be pickled: {error}") from error
        job = _Job(Future(), spec.name, (module, *verifier.preload), payload, deadline_seconds or self.deadline_seconds)
        with self._submitting:
            if self._closed:
                job.future.set_result(_pool_closed())
            else:
                self._jobs.put(job)
        return job.future

    def verify(self, items: Iterable[tuple[VerifierSpec, Sample]]) -> list[Verdict]:
        """The verdicts on all items, in order."""
        return [future.result() for future in [self.submit(spec, sample) for spec, sample in items]]

    def _serve_one_worker(self) -> None:
        """One thread's life: jobs in, verdicts out, with one worker at a time."""
        worker: Worker | None = None
        while (job := self._jobs.get()) is not None:
            if not job.future.set_running_or_notify_cancel():
                continue
            if self._closed:
                job.future.set_result(_pool_closed())
                continue
            try:
                worker = self._ready(worker, job)
                verdict, worker = self._run(worker, job)
            except Exception as error:  # noqa: BLE001  a future left open would hang the run; the verdict names it
                worker = None
                verdict = _pool_closed() if self._closed else _error(f"no worker: {describe_exception(error)}")
            job.future.set_result(verdict)
        if worker is not None:
            self._server.end(worker)

    def _ready(self, worker: Worker | None, job: _Job) -> Worker:
        """`worker`, or a new one when there is none, when it died idle, or when it lacks what `job` needs imported."""
        for module in job.preload:
            self._server.import_module(module)
        if worker is not None and (worker.generation != self._server.generation or worker.channel.poll(0)):
            self._server.end(worker)
            worker = None
        return worker or self._server.fork()

    def _run(self, worker: Worker, job: _Job) -> tuple[Verdict, Worker | None]:
        """The verdict, and the worker if it can go on."""
        began = time.perf_counter()
        try:
            worker.channel.send_bytes(job.payload)
            if not worker.channel.poll(job.deadline_seconds):
                self._server.end(worker)
                reason = f"{job.name!r} ran over {job.deadline_seconds:g} s: killed"
                return Verdict(Outcome.TIMEOUT, reason=reason, seconds=time.perf_counter() - began), None
            verdict, last = decode(worker.channel.recv_bytes())
        except (OSError, EOFError):
            status = self._server.end(worker)
            if self._closed:
                return _pool_closed(), None
            return _error(f"the worker of {job.name!r} {_ending(status)}", time.perf_counter() - began), None
        except (TypeError, ValueError) as error:
            self._server.end(worker)
            return _error(f"the worker of {job.name!r} answered with no verdict: {error}"), None
        if last:
            self._server.end(worker)
        return verdict, None if last else worker

    def close(self) -> None:
        """Kill the workers and the fork server; verdicts still open come back as `error`. May be called again."""
        with self._submitting:
            if self._closed:
                return
            self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        self._server.stop()
        for thread in self._threads:
            thread.join()
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None and job.future.set_running_or_notify_cancel():
                job.future.set_result(_pool_closed())

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _error(reason: str, seconds: float = 0.0) -> Verdict:
    return Verdict(Outcome.ERROR, reason=reason, seconds=seconds)


def _pool_closed() -> Verdict:
    return _error("the pool was closed")


def _ending(status: int | None) -> str:
    """How a worker ended, in words."""
    if status is None:
        return "died with the fork server"
    if status >= 0:
        return f"exited with {status}"
    name = signal.Signals(-status).name
    hint = {"SIGKILL": " (out of memory?)", "SIGSEGV": " (a crash in C code)"}.get(name, "")
    return f"was killed by {name}{hint}"
