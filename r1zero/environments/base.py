"""What an environment is: a class whose `start` opens an episode and whose `step` answers each of its turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Verdict
from r1zero.prompts.turns import Message, Role

MAX_OBSERVATION_CHARS = 20_000
"""What is longer is cut, and says so, before it leaves the environment's process."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the policy reads next."""

    text: str
    role: Role = "user"
    """`tool`: a tool's result, where the chat template has a form for it."""
    reward: float | None = None
    """Of the turn it answers, where the environment rewards by turn."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """How an episode begins."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    """Schemas of the tools that the chat template is to write."""


class Environment(Protocol):
    """One episode's state. A fresh object in a process of its own for every episode; options come to `__init__`.

    May have `tool_schemas`, for the chat template to write, and two class methods, called once on our side with its
    options: `prepare`, for more options, and `preload`, for modules to import in the server that forks it.
    """

    def start(self, problem: Problem) -> Sequence[Message]:
        """The messages before the policy's first turn."""
        ...

    def step(self, completion: Completion) -> Observation | Verdict:
        """The answer to one turn: an observation, after which the policy goes on, or the episode's verdict.

        A call that cannot be read, or that fails, is an observation; what this raises ends the episode as ours.
        """
        ...


def shortened(text: str, max_chars: int) -> str:
    """`text`, cut in the middle where it is longer than `max_chars`, and saying so."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[cut: {len(text) - 2 * half} of {len(text)} characters left out]\n{text[-half:]}"
