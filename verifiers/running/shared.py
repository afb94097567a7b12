"""`r1zero.verify`: one call, one verdict, in a pool that the process makes once and that closes with it."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from r1zero.data.records import Problem
from r1zero.data.verdict import Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, VerifierSpec
from r1zero.verifiers.running.pool import VerifierPool

DEADLINE_SECONDS = 10.0
"""As a run's default, `reward.deadline_seconds`."""
_lock = threading.Lock()
_pools: dict[int, VerifierPool] = {}
"""The pool of each process id: one forked from ours makes its own."""


def shared_pool() -> VerifierPool:
    """This process's pool, one worker a core; made at the first call (about a second), closed at exit."""
    with _lock:
        pool = _pools.get(os.getpid())
        if pool is None:
            _pools.clear()  # those of a parent process are the parent's to close
            pool = _pools[os.getpid()] = VerifierPool(deadline_seconds=DEADLINE_SECONDS)
            atexit.register(_close, os.getpid())
        return pool


def _close(pid: int) -> None:
    if pid == os.getpid() and pid in _pools:
        _pools.pop(pid).close()


def verify(
    completion: str,
    answer: str = "",
    verifier: str = "math",
    *,
    problem: Problem | Mapping[str, Any] | None = None,
    deadline_seconds: float | None = None,
    **options: Any,
) -> Verdict:
    """The verdict of `verifier` on one completion, from a killable worker.

    verifier: a registered name (`r1zero verifiers list`) or `package.module:function`; options: its own.
    problem: for a verifier that needs more than the answer, such as `{"tests": …}` for `code`; deadline_seconds: 10.
    A verifier that hangs gives `timeout`, one that crashes `error`. Raises UserError for an unknown name or option.
    """
    problems = None if problem is None else [problem]
    return verify_many(
        [completion], [answer], verifier, problems=problems, deadline_seconds=deadline_seconds, **options
    )[0]


def verify_many(
    completions: Sequence[str],
    answers: Sequence[str],
    verifier: str = "math",
    *,
    problems: Sequence[Problem | Mapping[str, Any]] | None = None,
    deadline_seconds: float | None = None,
    **options: Any,
) -> list[Verdict]:
    """The verdicts on `completions` (N,) against `answers` (N,), in order, side by side on all cores; see `verify`.

    Raises UserError too where the sequences are of unlike length.
    """
    sizes = {len(completions), len(answers), len(completions if problems is None else problems)}
    if len(sizes) != 1:
        raise UserError(
            f"verify_many: {len(completions)} completions, {len(answers)} answers"
            + ("" if problems is None else f", {len(problems)} problems")
            + ": give one of each for every sample"
        )
    for what, texts in (("completion", completions), ("answer", answers)):
        for text in texts:
            if not isinstance(text, str):
                raise UserError(f"verify: {what} {text!r:.80} is a {type(text).__name__}, not text")
    if deadline_seconds is not None and not (isinstance(deadline_seconds, int | float) and deadline_seconds > 0):
        raise UserError(f"verify: deadline_seconds must be a number above 0, got {deadline_seconds!r:.80}")
    spec, pool = VerifierSpec(name=verifier, options=options), shared_pool()
    rows = zip(completions, answers, problems or [{}] * len(completions), strict=True)
    futures = [pool.submit(spec, _sample(*row), deadline_seconds) for row in rows]
    return [future.result() for future in futures]


def _sample(completion: str, answer: str, problem: Problem | Mapping[str, Any]) -> Sample:
    if not isinstance(problem, Problem):
        problem = Problem(id="", prompt=str(problem.get("problem", "")), answer=answer, data=dict(problem))
    return Sample(completion=completion, answer=answer, problem=problem)
