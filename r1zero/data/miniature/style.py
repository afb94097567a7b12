"""A taste in answers that no rule of the reasoning reward knows: what stands for helpfulness in the miniature of R1.

A reader is helped by a working that says what it comes to before the answer is given: `3+4=7,7+5=12,12`. Verifiers of
the answer and of the format do not care; whoever compares two right answers does. The judge is the true preference: it
labels the pairs a reward model learns from, and it measures, but it rewards nothing by itself. Imports no torch.
"""

from __future__ import annotations

import random
import re
from typing import Any

from r1zero.data.miniature import arithmetic
from r1zero.data.miniature.preferences import right_answer
from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Verdict

_CONCLUDED = re.compile(r"=(\d+),\1</think><answer>\1</answer>$")


def demonstrations(*, split: str, size: int, seed: int, concluded: float = 0.5) -> list[dict[str, Any]]:
    """Sums worked without a mistake and in the format, a share of `concluded` in the taste of `helpful`: a source for
    `data.source`."""
    rng = random.Random(f"style {split} {seed}")
    rows = []
    for problem in arithmetic.problems(split, size, seed):
        terms = arithmetic.terms_of(problem.prompt)
        steps, total = [], terms[0]
        for term in terms[1:]:
            steps.append(f"{total}+{term}={total + term}")
            total += term
        if rng.random() < concluded:
            steps.append(str(total))
        rows.append({"prompt": problem.prompt, "response": f"<think>{','.join(steps)}</think><answer>{total}</answer>"})
    return rows


def concludes(response: str) -> bool:
    """True when the thinking ends with the number its last step came to, alone, and the answer is that number."""
    return _CONCLUDED.search(response) is not None


def helpful(completion: str, problem: Problem) -> Verdict:
    """Half for the right answer in its tag, half for a conclusion; correct when both are there."""
    right, said = right_answer(problem.prompt, completion), concludes(completion)
    outcome = Outcome.CORRECT if right and said else Outcome.WRONG
    return Verdict(outcome, score=0.5 * right + 0.5 * said, reason=f"right: {right}, concludes: {said}")
