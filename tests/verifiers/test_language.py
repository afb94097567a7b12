"""Share of words in a language's script, on texts whose words can be counted by eye."""

from __future__ import annotations

import pytest

from r1zero.verifiers import Outcome
from r1zero.verifiers.language import count_words, language


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("We add two numbers.", {"LATIN": 4}),
        ("x + y = 2 a b", {}),  # single letters are variables
        ("我们 add 数字", {"CJK": 4, "LATIN": 1}),
        ("два and три", {"CYRILLIC": 2, "LATIN": 1}),
        ("これはテスト", {"HIRAGANA": 3, "KATAKANA": 3}),
        ("α plus β", {"LATIN": 1}),
        ("$\\text{total cost}$ is \\frac{ab}{cd} `some code` and ```more\ncode```", {"LATIN": 4}),  # is, ab, cd, and
        ("ＡＢＣ wide", {"LATIN": 2}),
        ("<think>one</think>", {"LATIN": 1}),
    ],
)
def test_words_are_counted_by_script(text: str, counts: dict[str, int]) -> None:
    assert dict(count_words(text)) == counts


def test_the_score_is_the_share_and_the_outcome_its_threshold() -> None:
    text = "<think>one two three 四</think> 答案是四"  # the thinking alone: 3 of 4
    verdict = language(text)
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.75)
    assert language(text, min_share=0.75).correct
    assert language(text, whole=True).score == pytest.approx(3 / 8)
    assert language(text, target="zh").score == 0.25


def test_without_a_think_block_all_of_the_text_is_judged() -> None:
    assert language("只有中文").score == 0.0
    assert language("只有中文", target="zh").correct


def test_a_text_without_words_is_unparseable_and_an_unknown_language_our_error() -> None:
    assert language("1 + 1 = 2").outcome is Outcome.UNPARSEABLE
    assert language("").outcome is Outcome.UNPARSEABLE
    assert language("words", target="xx").outcome is Outcome.ERROR
