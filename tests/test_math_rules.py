"""Each rule of equality at its edge: for a gold answer, what is accepted and what only looks like it.

Rows are of our own making, not from any data set. An answer is put in a box, except for the rows on prose.
"""

from __future__ import annotations

import pytest

from r1zero.verifiers.math import math


def judged(gold: str, answers: list[str], *, prose: bool = False) -> dict[str, bool]:
    return {answer: math(answer if prose else rf"\boxed{{{answer}}}", gold).correct for answer in answers}


def holds(gold: str, accepted: list[str], refused: list[str], *, prose: bool = False) -> None:
    """Fails with the answers that are judged otherwise."""
    assert [answer for answer, right in judged(gold, accepted, prose=prose).items() if not right] == []
    assert [answer for answer, right in judged(gold, refused, prose=prose).items() if right] == []


# Prose around an answer


@pytest.mark.parametrize(
    "said",
    [
        "The answer is 5, maybe 7.",
        "5. Or 7.",
        "The answer is 5. Or 7.",
        "The answer is 5 or 7.",
        "The answer is 5, or 7.",
        "The answer is 5; or 7",
        "The answer is 5 (or 7).",
        "The answer is 5. Or maybe 7.",
        "The answer is 5, perhaps 7.",
        "The answer is 5. Alternatively, 7.",
        "The answer is 5, alternatively 7",
        "The answer is 5, but could be 7.",
        "The answer is 5. No, 7.",
        "The answer is 5. Actually, 7.",
        "The answer is 5? No, 7.",
        "The answer is 5. Wait, it is 7.",
        "The answer is 5. It could also be 7.",
        "The answer is 5, possibly 7",
        "The answer is 5 or else 7.",
        "The answer is 5. Hmm, or 7.",
        "Answer: 5. Or 7.",
        "#### 5 or 7",
        "#### 5. Or 7.",
        "#### 5, maybe 7",
        "The answer is either 5 or 7.",
        "The answer is 5, else 7.",
        "The answer is not 5.",
        "The answer is 5, if not 7.",
        "The answer is 5, unless 7.",
        "The answer is 5. Otherwise 7.",
        "The answer is 5. If that is wrong, 7.",
        "The answer is $5$. Or $7$.",
        "The answer is $5$, maybe $7$.",
        "The answer is **5**. Or **7**.",
        "The answer is **5**, maybe **7**.",
        "5, maybe 7",
        "5 or 7",
        "5, or maybe 7.",
        "The answer is 5. Correction: 7.",
        "The answer is 5. I mean 7.",
        "The answer is 5. Sorry, 7.",
        "The answer is 5. Not 5, but 7.",
        "The answer is 5... or 7",
        "<answer>5. Or 7.</answer>",
        "<answer>5, maybe 7</answer>",
        "<answer>The answer is 5, maybe 7.</answer>",
        "<answer>The answer is 5. Or 7.</answer>",
        r"\boxed{5}, maybe \boxed{7}",
        r"\boxed{5}. Or \boxed{7}.",
        r"\boxed{5 \text{, maybe } 7}",
        r"\boxed{5. Or 7.}",
        r"\boxed{7}. Or \boxed{5}.",
        r"\boxed{7}, maybe \boxed{5}.",
        "It is 7, maybe 5.",
        "So 7. Or 5.",
        "The result is 7 or perhaps 5.",
        "**5** or **7**",
        "$7$ or $5$",
        "So it is $7$, or maybe $5$.",
        "So it is $7$. Or $5$.",
        "The answer is 5 or thereabouts, maybe 6",
        "The answer is 7. Or 5.",
    ],
)
def test_another_answer_offered_beside_the_first_is_no_answer(said: str) -> None:
    assert not math(said, "5").correct
    assert not math(said, "7").correct


@pytest.mark.parametrize(
    "said",
    [
        "The answer is 5, as required.",
        "The answer is 5. This uses 7 steps.",
        "The answer is 5, since 7-2=5.",
        "The answer is 5. I hope it is correct.",
        "The answer is 5, not 7.",
        "The answer is 5 because 3+2=5.",
        "The answer is 5, which is less than 7.",
        "#### 5",
        "The answer is 5 apples.",
        "The answer is 5, or five.",
        "We have 3 or 4 at first. The answer is 5.",
        "Therefore the answer is $5$, as 10/2 = 5.",
        r"The answer is \boxed{5}. You may check with 7 or 8.",
        "Is it 7? No. The answer is 5.",
        "Maybe 7? No, the answer is 5.",
        "The answer is 5 dollars.",
        "The answer is $5$. Let me know if you have any questions!",
        "The answer is 5, and we are done.",
        "I could be wrong, but the answer is 5.",
        "The answer is 5. Or, in words, five.",
        "The answer is 5, or 5.0.",
        "So he has 5 left or so.",
    ],
)
def test_words_after_an_answer_that_offer_no_other_leave_it_alone(said: str) -> None:
    assert math(said, "5").correct
