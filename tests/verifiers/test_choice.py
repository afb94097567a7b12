"""Multiple choice: what names a choice, and what does not."""

from __future__ import annotations

import pytest

from r1zero.data.records import Problem
from r1zero.verifiers import Outcome, Verdict
from r1zero.verifiers.choice import choice
from r1zero.verifiers.math import math

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


NOT_C = [
    "The wrong answer is C",
    "I don't think C is correct",
    "Neither A nor C is right; D",
    "C. D. A. B.",
    "(B) or (C)",
    "(C) is wrong",
    "The answer is C? No, D.",
    "C is not correct",
    "The answer is not C",
    "It can't be C",
    "C is incorrect.",
    "The answer isn't (C).",
    "C or D",
    "Either C or D",
    "Maybe C, maybe D",
    "All but C",
    "C is the wrong option.",
    "The answer is C, or perhaps A.",
    "The incorrect option is C.",
    "C? D?",
    "(C) (D)",
    "Not C",
    "anything but C",
    "The answer is A, not C",
    "Eliminate C, so the choice is A",
    "The answer is A. C is wrong.",
    "The answer is C. Wait, the answer is A.",
    "The least likely answer is C",
    "C, D",
    "C / D",
    "Answer: C or A",
    "Answer: C, A",
    "A, B, C, D",
    "The answer is C or A",
    "The answer is either C or A",
    "I guess either A or C",
    "The opposite of C",
    "Is the answer C? No.",
    "The answer was C but now D",
    "C no D",
    "C -> D",
    "the only wrong choice is C",
    "the answer that must be ruled out is C",
    "C is out of the question.",
    "There is no way the answer is C.",
    "The option to avoid is C",
    "C is the distractor",
    "The second-best answer is C, the best is A",
    "C, then D",
]
C = [
    "C",
    "(C)",
    "The answer is C",
    "The answer is (C).",
    "**C**",
    "Answer: C",
    "The correct option is C.",
    "C is correct",
    "C is the right answer.",
    "(C) 12",
    "C. 12",
    "C) 12",
    "Option C",
    "The answer is option C because it is larger.",
    r"So the answer is $\textbf{(C)}$.",
    "The answer is C, not A.",
    "Therefore, C.",
    "A is wrong, B is wrong. The answer is C.",
    "Not A or B. The answer is C.",
    "I think the answer is C.",
    "The best answer is C",
    "Final answer: C",
    "The answer is C: 12",
    "The answer should be C.",
    "I choose C",
    "It is not hard to see that the answer is C.",
    "Although A looks right, the answer is C.",
]


@pytest.mark.parametrize("text", NOT_C)
def test_a_letter_that_is_denied_hedged_asked_for_or_one_of_several_is_not_chosen(text: str) -> None:
    for verdict in (choice(text, "C", BARE), choice(f"<answer>{text}</answer>", "C", BARE), math(text, "C")):
        assert not verdict.correct, verdict
    if "$" not in text:
        assert not math(rf"\boxed{{\text{{{text}}}}}", "C").correct


@pytest.mark.parametrize("text", C)
def test_a_letter_said_to_be_the_answer_is_chosen(text: str) -> None:
    for verdict in (choice(text, "C", BARE), choice(f"<answer>{text}</answer>", "C", BARE), math(text, "C")):
        assert verdict.correct, verdict
