"""The problems and the pretraining corpus of `tiny:arithmetic`: sums of three to five digits, worked step by step.

The problem space is cut in three by a hash of the operands, order aside: `corpus` (what the base is pretrained on),
`train` (prompts of GRPO) and `test` (held out). No problem of one split, nor any reordering of it, is in another,
whatever the seeds. Imports no torch.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from r1zero.data.records import Problem

SPLITS = ("train", "test", "corpus")
SOURCE = "tiny:arithmetic"
MIN_TERMS, MAX_TERMS = 3, 5
WRONG_STEP_SHARE = 0.25
"""Share of a document's steps that are wrong; what follows builds on the wrong number."""
UNFORMATTED_SHARE = 0.35
"""Share of the documents that do not keep to <think>…</think><answer>…</answer>."""
_EXHAUSTED_AFTER = 20_000
"""Draws in a row that bring nothing new: the split holds no more worth looking for."""


def split_of(terms: Sequence[int]) -> str:
    """Which split a sum belongs to: a fifth each to `train` and `test`, the rest to `corpus`; order does not matter."""
    digest = hashlib.sha256(" ".join(map(str, sorted(terms))).encode()).digest()
    share = int.from_bytes(digest[:4], "big") / 2**32
    return "test" if share < 0.2 else "train" if share < 0.4 else "corpus"


def terms_of(question: str) -> list[int]:
    """The operands of a question written by `question_of`. Raises ValueError for any other text."""
    return [int(term) for term in question.removesuffix("=").split("+")]


def question_of(terms: Sequence[int]) -> str:
    return "+".join(map(str, terms)) + "="


def problems(split: str, size: int, seed: int) -> list[Problem]:
    """Up to `size` distinct problems of one split, the same for the same seed; fewer where the split has fewer."""
    rng = random.Random(f"{split} {seed}")
    found: dict[str, Problem] = {}
    fruitless = 0
    while len(found) < size and fruitless < _EXHAUSTED_AFTER:
        terms = _draw_terms(rng)
        question = question_of(terms)
        fruitless += 1
        if split_of(terms) == split and question not in found:
            fruitless = 0
            found[question] = Problem(
                id=question,
                prompt=question,
                answer=str(sum(terms)),
                data={"num_terms": len(terms), "split": split},
                source=SOURCE,
            )
    return list(found.values())


def misplaced(problems: Sequence[Problem], split: str) -> list[str]:
    """Questions among `problems` that do not belong to `split`: empty, or a held-out set is not held out."""
    return [problem.prompt for problem in problems if split_of(terms_of(problem.prompt)) != split]


def corpus_document(rng: random.Random) -> tuple[str, str]:
    """One document of the pretraining corpus: the question, as the `plain` template writes it, and the text after it.

    A third of the documents ignore the format in one of four ways; in all of them a step is wrong now and then.
    """
    terms = _draw_terms(rng)
    while split_of(terms) != "corpus":
        terms = _draw_terms(rng)
    steps, total = _work(terms, rng)
    if rng.random() < UNFORMATTED_SHARE:
        text = rng.choice(
            [
                steps,  # thinks, never answers
                f"<think>{steps}</think>{total}",  # answers outside the tags
                f"{steps}<answer>{total}</answer>",  # thinks outside the tags
                f"{total}",  # does not think
            ]
        )
    else:
        text = f"<think>{steps}</think><answer>{total}</answer>"
    return question_of(terms), text


def _draw_terms(rng: random.Random) -> list[int]:
    return [rng.randrange(10) for _ in range(rng.randint(MIN_TERMS, MAX_TERMS))]


def _work(terms: Sequence[int], rng: random.Random) -> tuple[str, int]:
    """The running sums, such as `3+4=7,7+5=12`, and where they end; each step is wrong with WRONG_STEP_SHARE."""
    steps, total = [], terms[0]
    for term in terms[1:]:
        result = total + term
        if rng.random() < WRONG_STEP_SHARE:
            result = max(0, result + rng.choice([-10, -2, -1, 1, 2, 10]))
        steps.append(f"{total}+{term}={result}")
        total = result
    return ",".join(steps), total
