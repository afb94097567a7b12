"""A verifier for the tests of training: one that a random model can do better at."""

from r1zero.verifiers import Outcome, Verdict


def short(num_tokens: int) -> Verdict:
    """Correct up to 8 tokens; the score falls with every token."""
    return Verdict(Outcome.CORRECT if num_tokens <= 8 else Outcome.WRONG, score=max(0.0, 1 - num_tokens / 16))
