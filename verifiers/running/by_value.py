"""A reward function that stands in a script or a notebook cell, as a verifier: stored by value, run in the workers.

The workers never import the script that runs, so such a function cannot be named; cloudpickle writes its code, its
closure and the globals it uses into a file, and each worker reads that file. Deadline, memory limit and typed outcomes
are those of every verifier. Only give it files that you wrote: reading one runs what it holds.
"""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any

import cloudpickle

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError, first_line
from r1zero.verifiers.registry import INPUTS, Sample

NAME = "r1zero.verifiers.running.by_value:stored_function"
"""How a recipe names it; its option `path` is the file that `store` wrote."""


def store(function: Callable[..., Any], path: Path) -> None:
    """Write `function` to `path` by value.

    Its parameters are taken by name from `completion`, `answer`, `prompt`, `problem`, `finish_reason`, `num_tokens`;
    one with a default may be called otherwise. It returns a score in [-1, 1], True or False, a Verdict, or None where
    it cannot say. Raises UserError for another parameter, and for what cannot be copied (an open file, a lock).
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UserError(f"reward {function!r} is no function whose parameters can be read: wrap it in one") from error
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if needed and (parameter.name not in INPUTS or parameter.kind is parameter.POSITIONAL_ONLY):
            raise UserError(
                f"reward function: parameter {parameter.name!r} is none of {', '.join(sorted(INPUTS))}: rename it or "
                "give it a default"
            )
    try:
        data = cloudpickle.dumps(function)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"the reward function cannot be copied to the workers ({first_line(error)}): make what it holds inside it, "
            "or put it into a module and name it `module:function`"
        ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@functools.lru_cache(maxsize=8)
def _load(path: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    function = pickle.loads(Path(path).read_bytes())
    names = tuple(name for name in inspect.signature(function).parameters if name in INPUTS)
    return function, names


def stored_function(
    completion: str,
    answer: str,
    problem: Problem,
    prompt: str,
    finish_reason: FinishReason,
    num_tokens: int,
    *,
    path: str = "",
) -> Verdict:
    """What the function stored at `path` says: 1 (or True) is `correct`, any other number `wrong` with that score, None
    `error`, a Verdict itself. Raises ValueError for a score outside [-1, 1], TypeError for anything else."""
    function, names = _load(path)
    sample = Sample(
        completion=completion,
        answer=answer,
        problem=problem,
        prompt=prompt,
        finish_reason=finish_reason,
        num_tokens=num_tokens,
    )
    said = function(**{name: getattr(sample, name) for name in names})
    if isinstance(said, Verdict):
        return said
    if said is None:
        return Verdict(Outcome.ERROR, reason="the reward function returned None")
    if hasattr(said, "item"):  # a scalar of NumPy or torch
        said = said.item()
    if not isinstance(said, Real):
        raise TypeError(f"the reward function returned a {type(said).__name__}, not a number")
    score = float(said)
    return Verdict(Outcome.CORRECT if score == 1 else Outcome.WRONG, score=score, reason=f"the function says {score:g}")
