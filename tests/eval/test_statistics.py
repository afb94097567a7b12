from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from r1zero.eval.statistics import clustered_mean, cons_at_k, paired, pass_at_k, vote

# --- pass@k ---


@pytest.mark.parametrize(("n", "c"), [(n, c) for n in range(1, 8) for c in range(n + 1)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n: int, c: int) -> None:
    for k in range(1, n + 1):
        subsets = list(combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets), abs=1e-12)


def test_pass_at_k_is_exact_where_binomials_overflow_a_float() -> None:
    exact = 1 - Fraction(math.comb(2000 - 7, 1000), math.comb(2000, 1000))
    assert pass_at_k(2000, 7, 1000) == pytest.approx(float(exact), rel=1e-12)
    assert pass_at_k(64, 1, 64) == 1.0
    assert pass_at_k(64, 1, 32) == pytest.approx(0.5, rel=1e-12)
    assert pass_at_k(64, 0, 64) == 0.0


def test_pass_at_k_refuses_more_than_was_sampled() -> None:
    with pytest.raises(ValueError, match="at least 5 samples"):
        pass_at_k(4, 1, 5)


# --- cons@k ---


def test_a_vote_splits_ties_and_never_elects_the_unparseable() -> None:
    assert vote([0, 0, 1], [True, True, False]) == 1.0
    assert vote([0, 1, 1], [True, False, False]) == 0.0
    assert vote([0, 1], [True, False]) == 0.5  # not the first: a tie is half a win
    assert vote([0, 1, 2], [True, False, False]) == pytest.approx(1 / 3)
    assert vote([-1, -1, -1, 0], [False, False, False, True]) == 1.0
    assert vote([-1, -1], [False, False]) == 0.0


def test_cons_at_k_by_sampling_agrees_with_full_enumeration() -> None:
    classes = [0] * 5 + [1] * 4 + [2] * 3 + [-1] * 4  # 16 samples
    correct = [True] * 5 + [False] * 11
    for k in (1, 2, 4, 8, 16):
        subsets = list(combinations(range(16), k))
        exact = sum(vote([classes[i] for i in s], [correct[i] for i in s]) for s in subsets) / len(subsets)
        estimate = cons_at_k(classes, correct, k, np.random.default_rng(0), draws=4000)
        assert estimate == pytest.approx(exact, abs=0.03 if len(subsets) > 2000 else 1e-12)
    assert cons_at_k(classes, correct, 1, np.random.default_rng(0), 1) == pytest.approx(
        5 / 16
    )  # a vote of one is avg@k


# --- the interval ---


def test_the_standard_error_is_over_questions_and_not_over_samples() -> None:
    # Four questions, each all right or all wrong: 64 samples of each add nothing to what 4 questions tell.
    result = clustered_mean([1.0, 1.0, 1.0, 0.0], samples_per_question=64)
    assert result.mean == 0.75
    assert result.stderr == pytest.approx(0.25)  # std (ddof 1) 0.5 over sqrt(4)


@pytest.mark.parametrize("extreme", [0.0, 1.0])
def test_the_interval_of_a_perfect_score_is_not_a_point(extreme: float) -> None:
    low, high = clustered_mean([extreme] * 30, samples_per_question=16).ci95
    assert 0.05 < high - low < 0.2
    assert min(abs(low - extreme), abs(high - extreme)) < 1e-12


def test_a_single_question_says_nothing_of_the_others() -> None:
    result = clustered_mean([1.0], samples_per_question=64)
    assert result.ci95 == (0.0, 1.0)
    assert math.isnan(result.stderr)
    with pytest.raises(ValueError, match="no questions"):
        clustered_mean([], 1)


@pytest.mark.parametrize(("n", "k"), [(30, 4), (30, 64), (100, 4), (500, 1), (500, 16)])
@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (0.4, 0.4), (3.0, 1.0), (0.4, 1.2), (0.9, 0.1), (1e6, 1e6)])
def test_the_interval_covers_the_truth_93_to_97_times_in_100(n: int, k: int, a: float, b: float) -> None:
    """Questions of difficulty Beta(a, b): p = a / (a + b) is the truth that a benchmark of n of them estimates."""
    rng = np.random.default_rng(0)
    trials = 2000
    means = rng.binomial(k, rng.beta(a, b, size=(trials, n))) / k
    covered = 0
    for row in means:
        low, high = clustered_mean(row.tolist(), k).ci95
        covered += low <= a / (a + b) <= high
    # 2000 trials: the estimate itself is +-1% (two standard errors).
    assert 0.93 <= covered / trials <= 0.97


def test_few_questions_that_carry_the_score_widen_the_interval() -> None:
    # Two of 30 questions solved, every time: v = 0.0644 with fourth moment 0.0506, so Var(v) = 0.00156 and v is known
    # by 2 v^2 / Var(v) = 5.3 degrees of freedom instead of 29.
    few = clustered_mean([1.0] * 2 + [0.0] * 28, samples_per_question=64)
    half = clustered_mean([1.0] * 15 + [0.0] * 15, samples_per_question=64)
    # Wilson at n_eff = 30, with t at 5.3 degrees of freedom (2.525) and at 29 (2.045).
    assert few.ci95 == pytest.approx((0.0135, 0.2718), abs=1e-4)
    assert half.ci95 == pytest.approx((0.3251, 0.6749), abs=1e-4)


def test_the_interval_of_single_samples_covers_exactly_95_times_in_100_on_average() -> None:
    """With one sample a question the score is a binomial count, so coverage is a sum, not a simulation."""
    for n in (30, 40, 100):
        intervals = [clustered_mean([1.0] * c + [0.0] * (n - c), 1).ci95 for c in range(n + 1)]
        coverage = [
            sum(
                math.comb(n, c) * p**c * (1 - p) ** (n - c)
                for c, (low, high) in enumerate(intervals)
                if low <= p <= high
            )
            for p in np.linspace(0.05, 0.95, 91)
        ]
        assert 0.94 <= np.mean(coverage) <= 0.96
        assert min(coverage) > 0.9


# --- comparing two runs ---


def test_a_run_compared_with_itself_differs_by_nothing() -> None:
    result = paired([0.0, 0.5, 1.0, 1.0], [0.0, 0.5, 1.0, 1.0])
    assert (result.difference, result.p_value, result.ci95) == (0.0, 1.0, (0.0, 0.0))


def test_the_permutation_test_on_few_questions_is_exact() -> None:
    # Five questions, all better by 1: of 32 sign patterns two are as extreme.
    assert paired([0.0] * 5, [1.0] * 5).p_value == 2 / 32
    # Differences 1, 1, -1: |sum| >= 1 always (odd), so p = 1.
    assert paired([0.0, 0.0, 1.0], [1.0, 1.0, 0.0]).p_value == 1.0


def test_the_permutation_test_by_sampling_agrees_with_a_sign_test() -> None:
    # 40 questions changed, 28 for the better: P(|X - 20| >= 8), X ~ Binomial(40, 1/2).
    a, b = [0.0] * 28 + [1.0] * 12, [1.0] * 28 + [0.0] * 12
    exact = 2 * sum(math.comb(40, i) for i in range(28, 41)) / 2**40
    assert paired(a, b, draws=20_000).p_value == pytest.approx(exact, abs=0.003)
    assert paired([0.0] * 200, [1.0] * 200).p_value > 0  # never 0 by sampling


def test_pairing_removes_the_noise_of_difficulty() -> None:
    rng = np.random.default_rng(1)
    difficulty = rng.uniform(0, 0.9, size=200)
    result = paired(difficulty.tolist(), (difficulty + 0.05).tolist())
    assert result.difference == pytest.approx(0.05)
    assert result.stderr < 1e-9
    assert result.p_value < 0.001


def test_comparing_other_numbers_of_questions_is_an_error() -> None:
    with pytest.raises(ValueError, match="same questions"):
        paired([0.0], [0.0, 1.0])
