"""Inspect (inspect_ai): `Task(dataset=…, solver=…, scorer=inspect_scorer("math"))`."""

from __future__ import annotations

import asyncio
from typing import Any

from r1zero.errors import UserError
from r1zero.integrations.scores import score_of
from r1zero.verifiers.running.shared import verify


def inspect_scorer(verifier: str = "math", *, deadline_seconds: float = 10.0, **options: Any) -> Any:
    """A scorer with accuracy and its standard error; the sample's target is the gold answer, its metadata the problem's
    data, and the verdict's reason the explanation.

    `error` and `timeout` give `Score.unscored`, which Inspect keeps out of its metrics. Raises UserError without
    inspect_ai.
    """
    try:
        from inspect_ai.scorer import Score, accuracy, scorer, stderr
    except ImportError as error:
        raise UserError("inspect_scorer needs the package: pip install 'r1zero[inspect]'") from error

    @scorer(  # type: ignore[untyped-decorator,unused-ignore]
        metrics=[accuracy(), stderr()], name=f"r1zero_{verifier.rpartition(':')[2]}"
    )
    def make() -> Any:
        async def score(state: Any, target: Any) -> Any:
            verdict = await asyncio.to_thread(
                verify,
                state.output.completion,
                target.text,
                verifier,
                problem=dict(state.metadata or {}),
                deadline_seconds=deadline_seconds,
                **options,
            )
            explanation = f"{verdict.outcome}: {verdict.reason}"
            value = score_of(verdict)
            if value is None:
                return Score.unscored(explanation=explanation)
            return Score(value=value, answer=verdict.extracted, explanation=explanation)

        return score

    return make()
