"""What a verifier says of one completion. Typed, so that a failure of ours is never taken for a wrong answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any


class Outcome(StrEnum):
    """How a verification ended. Each has its own count in the metrics and its own policy in a recipe."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSEABLE = "unparseable"
    """The completion holds no answer that can be read, or one refused for its cost."""
    TRUNCATED = "truncated"
    """Cut off at the token limit before it gave an answer."""
    TIMEOUT = "timeout"
    """The worker ran past the deadline and was killed."""
    ERROR = "error"
    """Ours, never the model's: a crashed worker, a missing sandbox, a gold answer that cannot be read."""


@dataclass(frozen=True)
class Step:
    """What a verifier of a process says of one step."""

    end: int
    """Characters of the completion up to and with the step, as the verifier read it (prefill included)."""
    score: float
    """In [-1, 1]."""


@dataclass(frozen=True)
class Verdict:
    """One verifier's judgement of one completion."""

    outcome: Outcome
    score: float | None = None
    """Reward in [0, 1] (penalties: [-1, 0]); when not given, 1.0 for `correct`, None for `error`, else 0.0."""
    reason: str = ""
    """One line for a human: which rule decided, and both normal forms."""
    extracted: str | None = None
    """The answer as read from the completion."""
    seconds: float = 0.0
    """Time in the verifier; filled in by the caller that timed it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """More for a report, JSON-able: results per test, parts of a score."""
    steps: tuple[Step, ...] = ()
    """The completion's steps in order, from a verifier that judges the process; `score` is then that of the whole."""

    def __post_init__(self) -> None:
        if self.score is None and self.outcome is not Outcome.ERROR:
            object.__setattr__(self, "score", 1.0 if self.outcome is Outcome.CORRECT else 0.0)
        if self.outcome is Outcome.ERROR and self.score is not None:
            raise ValueError(
                "an `error` verdict has no score: it is ours, and what to do with it is the recipe's choice"
            )
        # A NaN or a score of 1e9 from a plugin would ruin the whole step's advantages.
        if self.score is not None and not -1 <= self.score <= 1:
            raise ValueError(
                f"a score lies in [-1, 1], got {self.score}: scale it in the verifier, weigh it in the recipe"
            )

        if any(not -1 <= step.score <= 1 for step in self.steps):
            raise ValueError("a step's score lies in [-1, 1]: scale it in the verifier, weigh it in the recipe")
        if any(a.end >= b.end for a, b in pairwise((Step(0, 0.0), *self.steps))):
            raise ValueError(f"steps end one after another, got {[step.end for step in self.steps]}")

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT
