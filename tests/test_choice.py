"""Multiple choice: what names a choice, and what does not."""

from __future__ import annotations

import pytest

from r1zero.records import Problem
from r1zero.verifiers import Outcome, Verdict
from r1zero.verifiers.choice import choice

CITIES = Problem(id="1", prompt="Capital of France?", data={"choices": ["London", "Paris", "A town", "Rome"]})
BARE = Problem(id="2", prompt="Which?")


def judge(text: str, gold: str = "B", problem: Problem = CITIES) -> Verdict:
    return choice(text, gold, problem)


@pytest.mark.parametrize(
    "text",
    [
        "<think>A? No.</think><answer>B</answer>",
        "<answer> (B) </answer>",
        "<answer>b</answer>",
        "<answer>**B.**</answer>",
        "<answer>[B]</answer>",
        "<answer>B)</answer>",
        "<answer>Option B</answer>",
        "<answer>The correct answer is (B).</answer>",
        "<answer>B. Paris</answer>",
        "<answer>(B) paris.</answer>",
        "<answer>Paris</answer>",
        "so \\boxed{B}",
        "so \\boxed{\\text{B}}",
        "so \\boxed{\\textbf{(B)} Paris}",
        "\\boxed{A} no, \\boxed{B}",
        "<think>The answer is A</think>\nThe answer is B.",
        "Thus the correct answer is **(B)**.",
        "Answer: B",
        "The answer is option B because it is.",
        "(B)",
        "B. Paris",
    ],
)
def test_a_letter_in_any_dress_or_the_choices_text_is_correct(text: str) -> None:
    verdict = judge(text)
    assert verdict.outcome is Outcome.CORRECT, verdict
    assert verdict.extracted == "B"


@pytest.mark.parametrize(
    "text", ["<answer>C</answer>", "\\boxed{A}", "The answer is D.", "<answer>Rome</answer>", "<answer>A, B</answer>"]
)
def test_another_choice_is_wrong(text: str) -> None:
    assert judge(text).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I do not know.",
        "<answer></answer>",
        "<answer>A or B</answer>",
        "The answer is A or B.",
        "The answer is B / C",
        "<answer>B. Rome</answer>",  # the letter of one, the text of another
        "<answer>E</answer>",  # there are four
        "<answer>B</answer><answer>C</answer>",
        "<think>The answer is B",
        "\\boxed{B} but \\boxed{",
        "The answer is a town called B",  # lower-case a is an article, and the cue is not at a letter
        "The answer is Bologna.",
        "B" * 3000,
        "<answer>not B</answer>",
    ],
)
def test_what_names_no_single_choice_is_unparseable(text: str) -> None:
    assert judge(text).outcome is Outcome.UNPARSEABLE


def test_several_choices_are_right_only_when_they_are_the_golds() -> None:
    assert judge("<answer>C and A</answer>", gold="A, C", problem=BARE).correct
    assert judge("<answer>(A), (B), and (C)</answer>", gold="A,B,C", problem=BARE).correct
    assert judge("<answer>A</answer>", gold="A, C", problem=BARE).outcome is Outcome.WRONG
    assert judge("<answer>A, B, C</answer>", gold="A, C", problem=BARE).outcome is Outcome.WRONG


def test_the_gold_may_be_the_choices_text() -> None:
    assert judge("<answer>B</answer>", gold="Paris").correct


def test_a_gold_that_names_no_choice_is_our_error() -> None:
    assert judge("<answer>B</answer>", gold="Berlin").outcome is Outcome.ERROR
