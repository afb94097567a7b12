"""Environments in killable processes, one an episode, with a deadline for each answer.

    host.open(problem) -> Live;  live.start() -> Future[Start | Fault];  live.step(completion) -> Future[...]

The processes are forked by the verifiers' fork server. At most `workers` of them are at work at a time, so that a
deadline is one of computing and not of waiting for a core; the others wait, and cost some megabytes each.
"""

from __future__ import annotations

import os
import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Verdict
from r1zero.environments.base import Observation, Start
from r1zero.environments.registry import EnvironmentSpec, resolve
from r1zero.environments.worker import MAX_ANSWER_BYTES, Fault, Open, decode
from r1zero.errors import UserError
from r1zero.verifiers.running.pool import DEFAULT_MEMORY_BYTES, ForkServer, Worker

DEFAULT_DEADLINE_SECONDS = 30.0
Answer = Start | Observation | Verdict | Fault
_PRELOAD = ("r1zero.environments.worker", "r1zero.environments.tools.environment")
START_SECONDS = 30.0
"""The least that a first answer has, whatever the deadline: a busy machine must not make a slow start a fault."""
_SERVE = "r1zero.environments.worker:serve"


class EnvironmentHost:
    """Makes and runs the environments of one spec. Close it, or use it as a context."""

    def __init__(
        self,
        spec: EnvironmentSpec,
        *,
        workers: int | None = None,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        """deadline_seconds: of each answer, after which the process is killed. Raises UserError for an unknown
        environment or option, and for one defined in the running script."""
        factory = resolve(spec).factory
        self.spec = spec
        self.module = factory.__module__
        preload = getattr(factory, "preload", None)
        self.preload = (*_PRELOAD, self.module, *(preload(**spec.options) if preload else ()))
        prepare = getattr(factory, "prepare", None)
        self.options = {**spec.options, **(prepare(**spec.options) if prepare else {})}
        if self.module == "__main__":
            raise UserError(f"environment {spec.name!r} is defined in the script that runs: move it into a module")
        self.deadline_seconds = deadline_seconds
        self.server = ForkServer(memory_bytes)
        self.threads = ThreadPoolExecutor(workers or os.cpu_count() or 1, thread_name_prefix="environment")
        self._open: set[Live] = set()

    def open(self, problem: Problem) -> Live:
        """A fresh environment for one episode; its process starts with `Live.start`."""
        live = Live(self, problem)
        self._open.add(live)
        return live

    def forget(self, live: Live) -> None:
        self._open.discard(live)

    def close(self) -> None:
        """Kill every process that is left."""
        for live in list(self._open):
            live.close()
        self.threads.shutdown(wait=True, cancel_futures=True)
        self.server.stop()

    def __enter__(self) -> EnvironmentHost:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Live:
    """One episode's environment."""

    def __init__(self, host: EnvironmentHost, problem: Problem) -> None:
        self.host = host
        self.problem = problem
        self.worker: Worker | None = None

    def start(self) -> Future[Answer]:
        """A `Start`, or a `Fault`."""
        host = self.host
        request = Open(name=host.spec.name, module=host.module, options=host.options, problem=self.problem)
        return self.host.threads.submit(self._ask, pickle.dumps(request), True)

    def step(self, completion: Completion) -> Future[Answer]:
        """An `Observation`, a `Verdict` or a `Fault`; after a fault the environment is gone."""
        return self.host.threads.submit(self._ask, pickle.dumps(completion), False)

    def close(self) -> None:
        """End the process and what it started. May be called again."""
        worker, self.worker = self.worker, None
        if worker is not None:
            self.host.server.end(worker)
        self.host.forget(self)

    def _ask(self, payload: bytes, opening: bool) -> Answer:
        name, seconds = self.host.spec.name, self.host.deadline_seconds
        seconds = max(seconds, START_SECONDS) if opening else seconds
        try:
            if opening:
                for module in self.host.preload:
                    self.host.server.import_module(module)
                self.worker = self.host.server.fork(_SERVE)
            if self.worker is None:
                return Fault(f"environment {name!r} is closed")
            self.worker.channel.send_bytes(payload)
            if not self.worker.channel.poll(seconds):
                self.close()
                return Fault(f"environment {name!r} ran over {seconds:g} s: killed", hung=True)
            answer = decode(self.worker.channel.recv_bytes(MAX_ANSWER_BYTES))
        except (OSError, EOFError) as error:
            self.close()
            return Fault(
                f"the process of environment {name!r} died, or answered at over {MAX_ANSWER_BYTES} bytes: {error}"
            )
        if isinstance(answer, Fault):
            self.close()
            return Fault(f"environment {name!r} {answer.reason}")
        if opening is not isinstance(answer, Start):
            self.close()
            return Fault(f"environment {name!r} answered with a {type(answer).__name__}")
        return answer
