"""The `answer` verifier: extraction and exact match."""

import pytest

from r1zero.errors import UserError
from r1zero.verifiers.answer import answer, normal_form


@pytest.mark.parametrize(
    ("completion", "gold", "outcome"),
    [
        ("<answer>Paris</answer>", "Paris", "correct"),
        ("<answer> paris. </answer>", "Paris", "correct"),
        (r"\boxed{\text{Paris}}", "Paris", "correct"),
        ("The answer is 1,000.", "1000", "correct"),
        ("#### 42", "42", "correct"),
        ("That makes 42 in all.", "42", "correct"),
        ("<answer>Paris, France</answer>", "Paris", "wrong"),
        ("<answer>London</answer>", "Paris", "wrong"),
        ("<answer>1/2</answer>", "0.5", "wrong"),
        ("<answer></answer>", "Paris", "unparseable"),
        ("<think>Paris", "Paris", "unparseable"),
        ("", "Paris", "unparseable"),
        ("<answer>Paris</answer>", "  ", "error"),
    ],
)
def test_verdicts(completion: str, gold: str, outcome: str) -> None:
    assert answer(completion, gold).outcome == outcome


def test_case_counts_when_asked() -> None:
    assert answer("<answer>b</answer>", "B").correct
    assert not answer("<answer>b</answer>", "B", case_sensitive=True).correct


def test_a_pattern_replaces_the_rules_and_its_last_match_counts() -> None:
    assert answer("final: 3\nfinal: 4", "4", pattern=r"final: (\d+)").correct
    assert answer("final: 3\nfinal: 4", "3", pattern=r"final: (\d+)").outcome == "wrong"
    assert answer("<think>final: 4</think>", "4", pattern=r"final: (\d+)").outcome == "unparseable"


def test_a_pattern_that_does_not_compile_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="no regular expression"):
        answer("x", "x", pattern="(")


def test_normal_form_keeps_what_matters() -> None:
    assert normal_form(r"$\text{New  York}.$") == "new york"
    assert normal_form("1,234,567") == "1234567"
    assert normal_form("1,2") == "1,2"
    assert normal_form("0.50") == "0.50"
