"""Demonstrations and preferences for `tiny:arithmetic`, with a true reward that is known.

The responses are of the kind the base writes by itself: worked sums, some steps wrong, some without the format. The
true reward reads the text and nothing else, so that what a stage optimises (a reward model, an implicit reward) can be
held against what was meant. Preferences are the true reward's own, without noise; `data.swapped_share` adds it.
Questions come from the splits of `arithmetic`: `train`, and `test` for what is held out. Imports no torch.
"""

from __future__ import annotations

import random
import re

from r1zero.models import arithmetic
from r1zero.records import Problem
from r1zero.verifiers.verdict import Outcome, Verdict

WRONG_STEP_SHARE = 0.3
UNFORMATTED_SHARE = 0.35
MIN_GAP = 0.05
"""Least difference in true reward between two responses of a ranking: nothing is said of equals."""
ANSWER_WORTH, STEPS_WORTH, FORMAT_WORTH = 0.5, 0.3, 0.2

_FORMED = re.compile(r"<think>([^<>]+)</think><answer>([^<>]*)</answer>")
_ANSWER = re.compile(r"<answer>(\d+)</answer>")
_STEP = re.compile(r"(\d+)\+(\d+)=(\d+)")


def true_reward(question: str, response: str) -> float:
    """In 0 .. 1: half for the right answer in its tag, 0.3 times the share of right steps, 0.2 for the format.

    A step counts when it adds the next operand to where the last one ended and is right; there are as many as a full
    working has, so that leaving some out, or writing some twice, earns nothing.
    """
    terms = arithmetic.terms_of(question)
    thinking = response.partition("<answer>")[0]
    steps = [(int(a), int(b), int(c)) for a, b, c in _STEP.findall(thinking)]
    carried, good = terms[0], 0
    for term, (a, b, c) in zip(terms[1:], steps, strict=False):
        good += (a, b) == (carried, term) and a + b == c
        carried = c
    share = good / (len(terms) - 1) if len(steps) <= len(terms) - 1 else 0.0
    formed = _FORMED.fullmatch(response) is not None
    right = right_answer(question, response)
    return ANSWER_WORTH * right + STEPS_WORTH * share + FORMAT_WORTH * formed


def right_answer(question: str, response: str) -> bool:
    """True when there is one answer in its tag and it is the sum."""
    answers = _ANSWER.findall(response)
    return len(answers) == 1 and int(answers[0]) == sum(arithmetic.terms_of(question))


def judge(completion: str, problem: Problem) -> Verdict:
    """The true reward as a verifier: its score. Correct when the answer is right in its tag, whatever the steps.

    `problem` is the record whose prompt is the question, as the `plain` template shows it.
    """
    score = true_reward(problem.prompt, completion)
    outcome = Outcome.CORRECT if right_answer(problem.prompt, completion) else Outcome.WRONG
    return Verdict(outcome, score=score, reason=f"true reward {score:.2f}")


def demonstrations(split: str, size: int, seed: int) -> list[tuple[str, str]]:
    """(question, response): worked without a mistake and in the format."""
    rng = random.Random(f"demonstrations {split} {seed}")
    return [
        (problem.prompt, write(arithmetic.terms_of(problem.prompt), rng, wrong_share=0.0, unformatted_share=0.0))
        for problem in arithmetic.problems(split, size, seed)
    ]


def rankings(split: str, size: int, seed: int, responses: int = 2) -> list[tuple[str, list[str]]]:
    """(question, responses best first), each at least MIN_GAP of true reward apart from the next."""
    rng = random.Random(f"rankings {split} {seed} {responses}")
    rows = []
    for problem in arithmetic.problems(split, size, seed):
        terms = arithmetic.terms_of(problem.prompt)
        found: dict[str, float] = {}
        while len(found) < responses:
            text = write(terms, rng)
            reward = true_reward(problem.prompt, text)
            if all(abs(reward - other) >= MIN_GAP for other in found.values()):
                found[text] = reward
        rows.append((problem.prompt, sorted(found, key=lambda text: -found[text])))
    return rows


def write(
    terms: list[int],
    rng: random.Random,
    *,
    wrong_share: float = WRONG_STEP_SHARE,
    unformatted_share: float = UNFORMATTED_SHARE,
) -> str:
    """A response as the base might write it: running sums, each wrong with `wrong_share`, in a format or without."""
    steps, total = [], terms[0]
    for term in terms[1:]:
        result = total + term
        if rng.random() < wrong_share:
            result = max(0, result + rng.choice([-10, -2, -1, 1, 2, 10]))
        steps.append(f"{total}+{term}={result}")
        total = result
    work = ",".join(steps)
    if rng.random() >= unformatted_share:
        return f"<think>{work}</think><answer>{total}</answer>"
    return rng.choice([work, f"<think>{work}</think>{total}", f"{work}<answer>{total}</answer>", f"{total}"])
