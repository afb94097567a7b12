"""cons@k: a majority vote over answers that the verifier holds equal, not over strings.

1/2, 0.5 and \\frac12 are one answer with three votes. Only the extracted answers are compared, through the `math`
verifier with one of them in the gold's place; equal strings need no verifier. Correct samples are one class (each
equals the gold), so only wrong answers are compared with one another.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from r1zero.eval.result import EvalResult, powers_of_two
from r1zero.eval.samples import EvalSample
from r1zero.eval.statistics import cons_at_k
from r1zero.verifiers import Outcome, Sample, VerifierPool, VerifierSpec

CORRECT, NO_ANSWER = 0, -1
DEFAULT_DRAWS = 1_000
EQUALITY = VerifierSpec(name="math")


def answer_classes(groups: Sequence[Sequence[EvalSample]], pool: VerifierPool) -> list[list[int]]:
    """The class of each sample's answer, problem by problem: 0 the correct ones, -1 no answer, 1, 2, ... the wrong.

    All problems go forward together, one representative a round, so that the pool has many pairs to compare at once.
    Equality is not transitive for every verifier: a wrong answer joins the first class whose representative it equals.
    """
    states = [_Wrong.of(group) for group in groups]
    while any(state.unplaced for state in states):
        pairs = [
            (state, representative, answer)
            for state in states
            if (representative := state.next_representative()) is not None
            for answer in state.unplaced
        ]
        verdicts = pool.verify((EQUALITY, _as_sample(answer, gold)) for _, gold, answer in pairs)
        for (state, _, answer), verdict in zip(pairs, verdicts, strict=True):
            if verdict.correct:
                state.place(answer)
    return [state.classes(group) for state, group in zip(states, groups, strict=True)]


@dataclass
class _Wrong:
    """The distinct wrong answers of one problem on their way into classes."""

    unplaced: list[str]
    """In order of first appearance, so that the classes do not depend on timing."""
    class_of: dict[str, int]
    num_classes: int = 0

    @classmethod
    def of(cls, group: Sequence[EvalSample]) -> _Wrong:
        wrong = [_text(s) for s in group if not s.correct and _answered(s)]
        return cls(unplaced=list(dict.fromkeys(wrong)), class_of={})

    def next_representative(self) -> str | None:
        """Takes the first unplaced answer as a new class; None when all are placed."""
        if not self.unplaced:
            return None
        representative = self.unplaced[0]
        self.num_classes += 1
        self.place(representative)
        return representative

    def place(self, answer: str) -> None:
        self.unplaced.remove(answer)
        self.class_of[answer] = self.num_classes

    def classes(self, group: Sequence[EvalSample]) -> list[int]:
        return [CORRECT if s.correct else self.class_of[_text(s)] if _answered(s) else NO_ANSWER for s in group]


def _answered(sample: EvalSample) -> bool:
    """Whether a sample votes: half a text that was cut off before its answer does not, whatever was read in it."""
    return sample.extracted is not None and sample.outcome is not Outcome.TRUNCATED


def _text(sample: EvalSample) -> str:
    return (sample.extracted or "").strip()


def _as_sample(answer: str, gold: str) -> Sample:
    return Sample(completion=f"\\boxed{{{answer}}}", answer=gold)


def with_votes(
    result: EvalResult, pool: VerifierPool, verifier: VerifierSpec, *, seed: int = 0, draws: int = DEFAULT_DRAWS
) -> EvalResult:
    """`result` with cons@j for j = 1, 2, 4, ... k: exact where few subsets exist, else from `draws` random ones.

    Left empty where answers cannot be compared (programs; a verifier that extracts none), where k is 1, and where some
    samples could not be graded. cons@1 is avg@k, and is left out.
    """
    groups = [result.samples[i : i + result.k] for i in range(0, len(result.samples), result.k)]
    answered = any(_answered(s) for s in result.samples)
    if result.k == 1 or not answered or not result.complete or verifier.name == "code":
        return result
    classes = answer_classes(groups, pool)
    cons = {}
    for j in powers_of_two(result.k)[1:]:
        # Its own stream for each j and problem: adding a benchmark or a problem changes no other figure.
        scores = [
            cons_at_k(labels, [s.correct for s in group], j, _rng(seed, j, group[0].problem_id), draws)
            for labels, group in zip(classes, groups, strict=True)
        ]
        cons[j] = float(np.mean(scores))
    return replace(result, cons_at=cons)


def _rng(seed: int, k: int, problem_id: str) -> np.random.Generator:
    return np.random.default_rng((seed, k, zlib.crc32(problem_id.encode())))
