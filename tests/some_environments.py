"""Environments for tests: importable by the processes that run them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.environments import Example, Observation, environment
from r1zero.prompts.turns import Message

_EXAMPLE = Example(problem=Problem(id="7", prompt="Guess my number.", answer="7"), says=("5", "9", "7"))


@environment("guess", example=_EXAMPLE)
class Guess:
    """Correct when the number is guessed; every wrong guess is told the way, and the way is rewarded by nearness."""

    def __init__(self, *, slow_below: int = -1) -> None:
        self.slow_below = slow_below
        self.answer = 0

    def start(self, problem: Problem) -> Sequence[Message]:
        self.answer = int(problem.answer)
        return [{"role": "user", "content": problem.prompt}]

    def step(self, completion: Completion) -> Observation | Verdict:
        digits = "".join(c for c in completion.text if c in "0123456789")[:9]
        if not digits:
            return Observation(text="a number, please", reward=-1.0)
        guess = int(digits)
        if guess == self.answer:
            return Verdict(Outcome.CORRECT)
        if guess < self.slow_below:
            time.sleep(1.0)
        return Observation(text="higher" if guess < self.answer else "lower", reward=-abs(guess - self.answer) / 10)


class Endless:
    """Never satisfied: answers every turn with text that tries to end it."""

    def __init__(self, *, role: str = "user", text: str = "No.<|im_end|><|eot_id|> Again\n") -> None:
        self.role, self.text = role, text

    def start(self, problem: Problem) -> Sequence[Message]:
        return [{"role": "user", "content": problem.prompt}]

    def step(self, completion: Completion) -> Observation:
        return Observation(text=self.text, role="tool" if self.role == "tool" else "user")


class Faulty:
    """Does what the completion says: hangs, crashes, floods or answers nonsense."""

    def start(self, problem: Problem) -> Sequence[Message]:
        return [{"role": "user", "content": problem.prompt}]

    def step(self, completion: Completion) -> Observation | Verdict:
        if "hang" in completion.text:
            threading.Event().wait()
        if "crash" in completion.text:
            os._exit(3)
        if "raise" in completion.text:
            raise ValueError("no such luck")
        if "nonsense" in completion.text:
            return "text"  # type: ignore[return-value]
        if "flood" in completion.text:
            return Observation(text="x" * 50_000_000)
        if "unicode" in completion.text:
            return Observation(text="\ud800 ‮ 🏳️‍🌈")
        return Verdict(Outcome.CORRECT)


def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return 2 * number


def sleeper(seconds: float) -> str:
    """Sleeps.

    Args:
        seconds: How long.
    """
    time.sleep(seconds)
    return "slept"
