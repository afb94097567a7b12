"""The numbers of a score, as pure functions of per-sample outcomes: avg@k, its interval, pass@k, cons@k, paired tests.

A benchmark is n questions with k samples each. Questions are the independent unit: samples of one question share its
difficulty, so every standard error here is over questions (clustered), never over samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

Floats = NDArray[np.float64]

ENUMERATE_AT_MOST = 2_000
"""cons@k enumerates all subsets up to this many, and samples beyond."""


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over questions with its question-clustered uncertainty."""

    mean: float
    stderr: float
    """Of the mean, over questions (ddof 1); nan with a single question."""
    ci95: tuple[float, float]
    """95% interval; (0, 1) with a single question, which says nothing of the spread over questions."""
    num_questions: int


def clustered_mean(question_means: Sequence[float], samples_per_question: float) -> Mean:
    """The mean of per-question means in [0, 1] and its 95% interval over questions.

    The interval is Wilson's score interval at the effective sample size n_eff = p(1 - p) / stderr^2 (the idea of Korn
    and Graubard, Survey Methodology 24, 1998, for clustered proportions), with Student's t quantile where the spread
    over questions had to be estimated: unlike mean +- 2 stderr it stays in [0, 1] and is not empty when all questions
    score alike. Coverage by simulation (tests/test_statistics.py): 93 to 97 in 100 for true means of 0.1 to 0.9, up
    to 98 with one or two samples of 30 questions, whose scores are coarse. Nearer the ends a few questions carry the
    whole score: at 0.02 to 0.05 up to 98 in 100, and, with k of 16 and more on 30 questions that are each all but
    always right or always wrong, down to 88: no sample shows what it did not see.
    n_eff lies between n and n * samples_per_question: a question counts for one trial at least (means in [0, 1] spread
    no wider than 0s and 1s), a sample for one at most.
    """
    means = np.asarray(question_means, dtype=np.float64)
    n = means.size
    if n == 0:
        raise ValueError("no questions: a mean of nothing is not 0")
    p = float(means.mean())
    if n == 1:
        return Mean(mean=p, stderr=math.nan, ci95=(0.0, 1.0), num_questions=1)
    stderr = float(means.std(ddof=1)) / math.sqrt(n)
    most = n * max(samples_per_question, 1.0)
    # All right or all wrong: no spread was seen, and p is known no better than from one sample a question.
    n_eff = n if p in (0.0, 1.0) else max(n, min(most, p * (1 - p) / stderr**2 if stderr > 0 else most))
    # With one sample a question the variance is p(1 - p), and nothing but p was estimated.
    z = float(student_t.ppf(0.975, _degrees_of_freedom(means))) if samples_per_question > 1 else 1.959964
    return Mean(mean=p, stderr=stderr, ci95=_wilson(p, n_eff, z), num_questions=n)


def _degrees_of_freedom(means: Floats) -> float:
    """How much the spread of `means` is known by: 2 v^2 / Var(v) for its variance v (Satterthwaite, Biometrics 1946).

    n - 1 for normal means; fewer where a few questions carry the spread, as on a contest that a model mostly fails: v
    is then uncertain and mostly too small. At least 3, where the quantile is 3.2: the fourth moment is itself a guess.
    """
    n = means.size
    variance, fourth = float(means.var(ddof=1)), float(((means - means.mean()) ** 4).mean())
    its_variance = (fourth - variance**2 * (n - 3) / (n - 1)) / n
    return min(n - 1, max(3.0, 2 * variance**2 / its_variance)) if its_variance > 0 else n - 1


def _wilson(p: float, n: float, z: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion p seen in n trials, z standard deviations wide (JASA 22, 1927)."""
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    # At the ends the bound is the end itself; the difference of equal numbers would leave 1e-18 of it.
    return 0.0 if p == 0 else max(0.0, center - half), 1.0 if p == 1 else min(1.0, center + half)


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Probability that at least one of k samples drawn without replacement is correct: 1 - C(n-c, k) / C(n, k).

    Unbiased for 1 - (1 - p)^k (arXiv 2107.03374 eq. 1), as a product of n - c ratios below 1: no binomial overflows.
    """
    if not 1 <= k <= num_samples:
        raise ValueError(f"pass@{k} needs at least {k} samples of each question, got {num_samples}")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"{num_correct} correct of {num_samples} samples")
    if num_samples - num_correct < k:
        return 1.0
    # C(n-c, k) / C(n, k) = prod over i = n-c+1 .. n of (1 - k / i)
    i = np.arange(num_samples - num_correct + 1, num_samples + 1, dtype=np.float64)
    return float(1.0 - np.prod(1.0 - k / i))


def vote(classes: Sequence[int], correct: Sequence[bool]) -> float:
    """Score of one majority vote: the share of correct ones among the answers with the most votes (ties are split).

    classes: (k,) equivalence class of each sample's answer, negative where no answer was read: it has no vote.
    correct: (k,) its verdict. Where verdicts differ within a class, the class counts as the share of them.
    """
    votes: dict[int, list[bool]] = {}
    for label, right in zip(classes, correct, strict=True):
        if label >= 0:
            votes.setdefault(label, []).append(right)
    if not votes:
        return 0.0
    most = max(len(members) for members in votes.values())
    winners = [sum(members) / len(members) for members in votes.values() if len(members) == most]
    return sum(winners) / len(winners)


def cons_at_k(classes: Sequence[int], correct: Sequence[bool], k: int, rng: np.random.Generator, draws: int) -> float:
    """Expected score of a majority vote over k of a question's n samples, drawn without replacement.

    Exact where there are at most `ENUMERATE_AT_MOST` subsets; else the mean over `draws` random subsets, whose standard
    error is at most 0.5 / sqrt(draws) on one question. Source of the measure: arXiv 2203.11171 (self-consistency).
    """
    n = len(classes)
    if not 1 <= k <= n:
        raise ValueError(f"cons@{k} needs at least {k} samples of each question, got {n}")
    # A question whose answers all agree needs no drawing; most questions of a strong model are like that.
    if len(set(classes)) == 1:
        return vote(classes, correct)
    if math.comb(n, k) <= ENUMERATE_AT_MOST:
        subsets = [list(subset) for subset in combinations(range(n), k)]
    else:
        subsets = [rng.choice(n, size=k, replace=False).tolist() for _ in range(draws)]
    return float(np.mean([vote([classes[i] for i in s], [correct[i] for i in s]) for s in subsets]))


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The difference of two scores over the same questions."""

    difference: float
    """Mean over questions of b - a."""
    stderr: float
    ci95: tuple[float, float]
    """Percentile bootstrap over questions."""
    p_value: float
    """Two-sided sign-flip permutation test of 'no difference'."""


def paired(a: Sequence[float], b: Sequence[float], *, seed: int = 0, draws: int = 10_000) -> Paired:
    """Compare per-question means of two runs, question by question.

    The bootstrap resamples questions; the permutation test flips the sign of each question's difference, all 2^n ways
    when that is at most `draws`, else `draws` random ones with the observed one counted in (Phipson and Smyth 2010), so
    that p is never 0. Pairing removes the questions' difficulty from the noise.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or first.size == 0:
        raise ValueError(
            f"paired comparison needs the same questions on both sides, got {first.size} and {second.size}"
        )
    d = second - first
    n = d.size
    rng = np.random.default_rng(seed)
    observed = abs(float(d.sum()))
    changed = d[d != 0]  # flipping a zero changes nothing: leave those out of the enumeration
    # Sums of the same numbers in another order differ in the last bits: count those as ties.
    tolerance = 1e-9 * max(1.0, observed)
    if 2**changed.size <= draws:
        signs = 1.0 - 2.0 * ((np.arange(2**changed.size)[:, None] >> np.arange(changed.size)) & 1)
        p_value = float(np.mean(np.abs(signs @ changed) >= observed - tolerance))
    else:
        sums = np.concatenate([_flipped_sums(changed, rng, size) for size in _chunks(draws, changed.size)])
        p_value = (1 + int((np.abs(sums) >= observed - tolerance).sum())) / (1 + draws)
    means = np.concatenate([d[rng.integers(0, n, size=(size, n))].mean(axis=1) for size in _chunks(draws, n)])
    low, high = np.quantile(means, [0.025, 0.975])
    stderr = float(d.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Paired(difference=float(d.mean()), stderr=stderr, ci95=(float(low), float(high)), p_value=p_value)


def _flipped_sums(d: Floats, rng: np.random.Generator, size: int) -> Floats:
    sums: Floats = (rng.integers(0, 2, size=(size, d.size)) * 2.0 - 1.0) @ d
    return sums


def _chunks(draws: int, width: int) -> list[int]:
    """Split `draws` rows of `width` numbers so that no array holds more than about four million."""
    size = max(1, 4_000_000 // max(1, width))
    return [min(size, draws - start) for start in range(0, draws, size)]
