"""Length rewards at points worked out by hand from the papers' equations."""

from __future__ import annotations

import pytest

from r1zero.data.records import FinishReason, Problem
from r1zero.verifiers import Outcome, Verdict
from r1zero.verifiers.length import cosine, cosine_length, overlong


@pytest.mark.parametrize(
    ("tokens", "score"),
    [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (30000, -1.0)],
)
def test_the_soft_overlong_punishment_is_dapos(tokens: int, score: float) -> None:
    verdict = overlong(tokens)
    assert verdict.score == pytest.approx(score)
    assert verdict.outcome is (Outcome.CORRECT if score == 0 else Outcome.WRONG)


def test_limits_are_options_and_senseless_ones_our_error() -> None:
    assert overlong(90, max_tokens=100, buffer=20).score == -0.5
    assert overlong(50, max_tokens=100, buffer=100).score == -0.5
    assert overlong(1, max_tokens=100, buffer=101).outcome is Outcome.ERROR
    assert overlong(1, max_tokens=100, buffer=0).outcome is Outcome.ERROR


def test_the_cosine_starts_at_its_start_and_ends_at_its_end() -> None:
    assert cosine(0.0, 0.2, 0.1) == pytest.approx(0.2)
    assert cosine(1.0, 0.2, 0.1) == pytest.approx(0.1)
    assert cosine(0.5, 0.2, 0.1) == pytest.approx(0.15)
    assert cosine(1 / 3, 1.0, 0.0) == pytest.approx(0.75)  # (1 + cos 60 degrees) / 2


def judge(text: str, tokens: int, finish_reason: FinishReason = "stop", **options: float) -> Verdict:
    problem = Problem(id="1", prompt="1+1", answer="2")
    return cosine_length(
        text,
        "2",
        problem,
        "1+1",
        finish_reason,
        tokens,
        verifier="answer",
        max_tokens=100,
        **options,  # type: ignore[arg-type]
    )


def test_short_right_answers_earn_most_and_short_wrong_ones_least() -> None:
    right, wrong = "<answer>2</answer>", "<answer>3</answer>"
    assert judge(right, 0).score == pytest.approx(0.2)
    assert judge(right, 50).score == pytest.approx(0.15)
    assert judge(wrong, 0).score == pytest.approx(-1.0)
    assert judge(wrong, 50).score == pytest.approx(-0.5)
    assert judge(wrong, 99).score == pytest.approx(0.0, abs=1e-3)
    assert judge(right, 0).outcome is Outcome.CORRECT
    assert judge(wrong, 0).outcome is Outcome.WRONG


def test_a_completion_at_the_limit_scores_the_exceeded_value_though_it_is_right() -> None:
    assert judge("<answer>2</answer>", 100).score == -1.0
    assert judge("<answer>2</answer>", 60, "length").score == -1.0
    assert judge("<answer>2</answer>", 100, exceeded=-0.25).score == -0.25


def test_cosine_length_cannot_call_itself() -> None:
    problem = Problem(id="1", prompt="")
    assert cosine_length("", "", problem, "", "stop", 1, verifier="cosine_length").outcome is Outcome.ERROR
