"""Worker processes for verifiers, with a deadline that kills.

A worker past its deadline is killed and replaced; one that dies costs a single `error` verdict. No signals and no
threads of ours take part in a deadline, so it holds off the main thread, in async code and in spawned processes.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, TimeoutError
from types import TracebackType

from pebble import ProcessExpired, ProcessPool

from r1zero.verifiers.registry import Sample, VerifierSpec, get, resolve
from r1zero.verifiers.verdict import Outcome, Verdict

DEFAULT_DEADLINE_SECONDS = 5.0
DEFAULT_MEMORY_BYTES = 2 << 30


def _start_worker(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _verify(spec: VerifierSpec, sample: Sample) -> Verdict:
    return get(spec.name)(sample, spec.options)


class VerifierPool:
    """A pool of killable workers that resolve verifiers by name.

    workers: processes; deadline_seconds: per verdict, from when a worker takes it up; memory_bytes: address space of
    one worker. Workers start from a fork server that has imported the verifiers and nothing of torch or vLLM, so a
    replacement costs milliseconds.
    """

    def __init__(
        self,
        workers: int | None = None,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        self.deadline_seconds = deadline_seconds
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["r1zero.verifiers.builtin"])
        self._pool = ProcessPool(
            max_workers=workers or os.cpu_count() or 1,
            context=context,
            initializer=_start_worker,
            initargs=[memory_bytes],
        )

    def submit(self, spec: VerifierSpec, sample: Sample) -> Future[Verdict]:
        """Schedule one verification; the future always yields a Verdict. Raises UserError for an unknown name."""
        resolve(spec)
        inner = self._pool.schedule(_verify, args=(spec, sample), timeout=self.deadline_seconds)
        outer: Future[Verdict] = Future()
        inner.add_done_callback(lambda done: outer.set_result(self._verdict(done, spec)))
        return outer

    def verify(self, items: Iterable[tuple[VerifierSpec, Sample]]) -> list[Verdict]:
        """The verdicts on all items, in order."""
        return [future.result() for future in [self.submit(spec, sample) for spec, sample in items]]

    def _verdict(self, done: Future[Verdict], spec: VerifierSpec) -> Verdict:
        try:
            return done.result()
        except TimeoutError:
            return Verdict(
                Outcome.TIMEOUT, reason=f"over {self.deadline_seconds:g} s: killed", seconds=self.deadline_seconds
            )
        except ProcessExpired as error:
            return Verdict(Outcome.ERROR, reason=f"worker of {spec.name!r} died: {error}")
        except CancelledError:
            return Verdict(Outcome.ERROR, reason="the pool was closed")
        except Exception as error:  # noqa: BLE001  whatever a plugin raises becomes one `error` verdict that says so
            return Verdict(Outcome.ERROR, reason=f"{spec.name!r} raised {type(error).__name__}: {error}")

    def close(self) -> None:
        """Kill the workers; verdicts still open come back as `error`."""
        self._pool.stop()
        self._pool.join()

    def __enter__(self) -> VerifierPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
