"""Demonstrations and preferences for `tiny:arithmetic`, with a true reward that is known.

The responses are of the kind the base writes by itself: worked sums, some steps wrong, some without the format. Half of
a ranking's responses are edits of another one, as samples of one model are alike: one step right instead of wrong, or
another form. The true reward reads the text and nothing else, so that what a stage optimises (a reward model, an
implicit reward) can be held against what was meant. Preferences are the true reward's own, without noise;
`data.swapped_share` adds it. Too much is as wrong as too little here, so the longer response is the better one in only
58% of the pairs. Questions come from the splits of `arithmetic`: `train`, and `test` for what is held out. Imports no
torch.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

from r1zero.data.miniature import arithmetic
from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Step, Verdict

WRONG_STEP_SHARE = 0.25
UNFORMATTED_SHARE = 0.35
TWICE_SHARE = 0.1
EDIT_SHARE = 0.5
NUM_FORMS = 7
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


def judge_steps(completion: str, problem: Problem) -> Verdict:
    """The working as a verifier of a process: each `a+b=c` of the thinking is a step, the answer is the last one.

    A step scores 1 as it counts in `true_reward`, else 0, and so does one more than a full working has. The answer
    scores 1 when it is right in its tag; that step ends with the completion. Correct when the answer is.
    """
    terms = arithmetic.terms_of(problem.prompt)
    thinking = completion.partition("<answer>")[0]
    carried, steps = terms[0], []
    for i, found in enumerate(_STEP.finditer(thinking), 1):
        a, b, c = map(int, found.groups())
        good = i < len(terms) and (a, b) == (carried, terms[i]) and a + b == c
        steps.append(Step(end=found.end(), score=float(good)))
        carried = c
    right = right_answer(problem.prompt, completion)
    steps.append(Step(end=len(completion) + 1, score=float(right)))
    reason = f"{sum(step.score for step in steps):.0f} of {len(steps)} steps are right"
    return Verdict(Outcome.CORRECT if right else Outcome.WRONG, reason=reason, steps=tuple(steps))


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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a response does right and wrong."""

    slips: tuple[int, ...]
    """What each step's result is off by, 0 where it is right; the next step builds on it."""
    form: int = 0
    """Index into the forms of `write`; 0 is the right one."""
    twice: int | None = None
    """The step that is written twice."""


def demonstrations(split: str, size: int, seed: int) -> list[tuple[str, str]]:
    """(question, response): worked without a mistake and in the format."""
    rows = []
    for problem in arithmetic.problems(split, size, seed):
        terms = arithmetic.terms_of(problem.prompt)
        rows.append((problem.prompt, write(terms, Plan(slips=(0,) * (len(terms) - 1)))))
    return rows


def rankings(split: str, size: int, seed: int, responses: int = 2) -> list[tuple[str, list[str]]]:
    """(question, responses best first), each at least MIN_GAP of true reward apart from the next."""
    rng = random.Random(f"rankings {split} {seed} {responses}")
    rows = []
    for problem in arithmetic.problems(split, size, seed):
        terms = arithmetic.terms_of(problem.prompt)
        found: dict[str, float] = {}
        plans: list[Plan] = []
        while len(found) < responses:
            like = rng.choice(plans) if plans and rng.random() < EDIT_SHARE else None
            plan = draw(len(terms) - 1, rng) if like is None else edit(like, rng)
            text = write(terms, plan)
            reward = true_reward(problem.prompt, text)
            if all(abs(reward - other) >= MIN_GAP for other in found.values()):
                found[text] = reward
                plans.append(plan)
        rows.append((problem.prompt, sorted(found, key=lambda text: -found[text])))
    return rows


def draw(num_steps: int, rng: random.Random) -> Plan:
    """A plan as the base might follow one."""
    return Plan(
        slips=tuple(_slip(rng) if rng.random() < WRONG_STEP_SHARE else 0 for _ in range(num_steps)),
        form=rng.randrange(1, NUM_FORMS) if rng.random() < UNFORMATTED_SHARE else 0,
        twice=rng.randrange(num_steps) if rng.random() < TWICE_SHARE else None,
    )


def edit(plan: Plan, rng: random.Random) -> Plan:
    """The plan with one thing changed: a step put right or wrong, the form, or a step written twice or no longer."""
    what = rng.random()
    if what < 0.6:
        i = rng.randrange(len(plan.slips))
        slip = 0 if plan.slips[i] else _slip(rng)
        return replace(plan, slips=(*plan.slips[:i], slip, *plan.slips[i + 1 :]))
    if what < 0.9:
        return replace(plan, form=0 if plan.form else rng.randrange(1, NUM_FORMS))
    return replace(plan, twice=rng.randrange(len(plan.slips)) if plan.twice is None else None)


def write(terms: list[int], plan: Plan) -> str:
    """The response: running sums and the answer they end at."""
    steps, total = [], terms[0]
    for term, slip in zip(terms[1:], plan.slips, strict=True):
        result = max(0, total + term + slip)
        steps.append(f"{total}+{term}={result}")
        total = result
    if plan.twice is not None:
        steps.insert(plan.twice, steps[plan.twice])
    work = ",".join(steps)
    thought, answer = f"<think>{work}</think>", f"<answer>{total}</answer>"
    forms = (
        thought + answer,
        work,  # thinks, never answers
        f"{thought}{total}",  # answers outside the tags
        work + answer,  # thinks outside the tags
        f"{total}",  # does not think
        f"{thought}{answer}{total}",  # goes on after the answer
        thought + answer + answer,  # answers twice
    )
    return forms[plan.form]


def _slip(rng: random.Random) -> int:
    return rng.choice([-10, -2, -1, 1, 2, 10])
