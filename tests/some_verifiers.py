"""Verifiers for the tests of training: ones that a random model can do better at."""

import os
import signal

from r1zero.verifiers import Outcome, Verdict


def short(num_tokens: int) -> Verdict:
    """Correct up to 8 tokens; the score falls with every token."""
    return Verdict(Outcome.CORRECT if num_tokens <= 8 else Outcome.WRONG, score=max(0.0, 1 - num_tokens / 16))


def short_or_dead(completion: str, num_tokens: int) -> Verdict:
    """As `short`, but for completions of which it kills the process it runs in."""
    if sum(map(ord, completion)) % 5 == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return short(num_tokens)
