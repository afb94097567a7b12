"""What the integrations share: scores of many completions, with None where there is nothing to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.running.shared import verify_many


def score_of(verdict: Verdict) -> float | None:
    """The verdict's score; None for `error` and `timeout`, which say nothing of the answer."""
    return None if verdict.outcome in (Outcome.ERROR, Outcome.TIMEOUT) else verdict.score


def scores(
    completions: Sequence[str],
    answers: Sequence[str],
    verifier: str,
    problems: Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> list[float | None]:
    """(N,) scores; see `r1zero.verify_many` for the arguments and errors."""
    return [score_of(verdict) for verdict in verify_many(completions, answers, verifier, problems=problems, **options)]


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """A completion's text: itself, or the content of the assistant's turns of a conversation."""
    if isinstance(completion, str):
        return completion
    return "\n".join(str(turn.get("content") or "") for turn in completion if turn.get("role") == "assistant")
