"""A taste in answers that no rule of the reasoning reward knows: what stands for helpfulness in the miniature of R1.

A reader is helped by a working that goes over its last step once more before it answers. Verifiers of the answer and of
the format do not care; whoever compares two right answers does. The judge is the true preference: it labels the pairs a
reward model learns from, and measures, but rewards nothing by itself. Imports no torch.
"""

from __future__ import annotations

import re

from r1zero.models.tiny_preferences import right_answer
from r1zero.records import Problem
from r1zero.verifiers.verdict import Outcome, Verdict

_THINKING = re.compile(r"<think>([^<>]*)</think>")


def goes_over_its_last_step(response: str) -> bool:
    """True when the thinking ends with a step written exactly twice: once more is a check, three times is padding."""
    found = _THINKING.search(response)
    steps = found.group(1).split(",") if found else []
    return len(steps) >= 2 and steps[-1] == steps[-2] and steps.count(steps[-1]) == 2


def helpful(completion: str, problem: Problem) -> Verdict:
    """Half for the right answer in its tag, half for a last step that was gone over; correct when both are there."""
    right, checked = right_answer(problem.prompt, completion), goes_over_its_last_step(completion)
    outcome = Outcome.CORRECT if right and checked else Outcome.WRONG
    return Verdict(outcome, score=0.5 * right + 0.5 * checked, reason=f"right: {right}, gone over: {checked}")
