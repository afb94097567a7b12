"""The R1 format verifiers, and every way we know of to be paid for a format that is not there."""

from __future__ import annotations

import pytest

from r1zero.verifiers import Outcome
from r1zero.verifiers.tags import answer_tags, strange_tag, think_format

GOOD = "<think>1 + 1 is 2.</think> <answer>2</answer>"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "\n<think>\n1 + 1 is 2.\n</think>\n<answer>\n2\n</answer>\n\n",
        "<think>a < b, x<y>z and <answers> or <b>bold</b></think><answer>$x < 3$</answer>",
        "<think>一加一等于二。</think><answer>2</answer>",
        "<think>no bound</think><answer>∞</answer>",
        "<think>a pair</think><answer><2, 3></answer>",
        "<think>a bold one</think><answer><b>2</b></answer>",
        "<think>a thinner answer</think><answer>a < answer</answer>",
        "<think>" + "1+1=2. " * 20000 + "</think><answer>2</answer>",
    ],
)
def test_the_r1_format_is_correct(text: str) -> None:
    verdict = answer_tags(text)
    assert (verdict.outcome, verdict.score) == (Outcome.CORRECT, 1.0), verdict.reason


def test_the_answer_block_is_extracted_without_outer_space() -> None:
    assert answer_tags("<think>ok</think><answer> x = 2 \n</answer>").extracted == "x = 2"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "<think> stands 0 times"),
        ("2", "<think> stands 0 times"),
        ("<answer>2</answer>", "<think> stands 0 times"),
        ("<think>1 + 1 is 2.", "</think> stands 0 times"),
        ("<think>1 + 1 is 2.</think> 2", "<answer> stands 0 times"),
        ("<think>1 + 1 is 2.</think> <answer>2", "</answer> stands 0 times"),
        ("1 + 1</think> <answer>2</answer>", "<think> stands 0 times"),  # prefill not handed over
        ("<think>a</think><think>b</think><answer>2</answer>", "<think> stands 2 times"),
        ("<think>a<think>b</think></think><answer>2</answer>", "<think> stands 2 times"),
        ("<think>a</think><answer>1</answer><answer>2</answer>", "<answer> stands 2 times"),
        ("<think>a</think><answer><answer>2</answer></answer>", "<answer> stands 2 times"),
        ("<think>a</think></think><answer>2</answer>", "</think> stands 2 times"),
        ("<think>a</think><answer>2</answer></answer>", "</answer> stands 2 times"),
        (GOOD * 3, "<think> stands 3 times"),
        ("<answer>2</answer><think>a</think>", "out of order"),
        ("<think>a<answer>2</answer></think>", "out of order"),
        ("<think>a<answer></think>2</answer>", "out of order"),
        ("</think>a<think><answer>2</answer>", "out of order"),
        ("</answer>2<answer></think>a<think>", "out of order"),
        ("Sure! " + GOOD, "text before <think>"),
        (GOOD + " Hope this helps!", "text after </answer>"),
        (GOOD + "\x00", "text after </answer>"),
        ("<think>a</think> so <answer>2</answer>", "text between"),
        ("<think>a</think>\u200b<answer>2</answer>", "text between"),
        ("<think></think><answer>2</answer>", "thinking is empty"),
        ("<think> \n\t</think><answer>2</answer>", "thinking is empty"),
        ("<think>\u200b\u2060\ufeff\u3164\u2800</think><answer>2</answer>", "thinking is empty"),
        ("<think>... --- !</think><answer>2</answer>", "0 letters and digits"),
        ("<think>a</think><answer></answer>", "answer is empty"),
        ("<think>a</think><answer> \n</answer>", "answer is empty"),
        ("<think>a</think><answer>\u200b</answer>", "answer is empty"),
        ("<Think>a</Think><answer>2</answer>", "not written exactly"),
        ("<THINK>a</THINK><ANSWER>2</ANSWER>", "not written exactly"),
        ("< think >a</ think ><answer>2</answer>", "not written exactly"),
        ("<think>a</think><answer>2</answer><answer id=1>3</answer >", "not written exactly"),
        ('<think class="x">a</think><answer>2</answer>', "not written exactly"),
        ("<think/><think>a</think><answer>2</answer>", "not written exactly"),
        ("<think>a <Answer>1</Answer></think><answer>2</answer>", "not written exactly"),
        ("<think>a ＜answer＞1＜/answer＞</think><answer>2</answer>", "not written exactly"),
        ("<think>a <аnswer>1</аnswer></think><answer>2</answer>", "not written exactly"),
        ("<think>a <ans\u200bwer>1</ans\u200bwer></think><answer>2</answer>", "not written exactly"),
        ("<think>a </th\u00adink> b</think><answer>2</answer>", "not written exactly"),
        ("<thınk>a</thınk><answer>2</answer>", "not written exactly"),
        ("<think>a <th1nk> b</think><answer>2</answer>", "not written exactly"),
        ("<think>a <ánswer>1</ánswer></think><answer>2</answer>", "not written exactly"),
        ("<think>a <ᴀɴꜱᴡᴇʀ>1</ᴀɴꜱᴡᴇʀ></think><answer>2</answer>", "not written exactly"),
        ("<think>a </ТНІΝΚ> b</think><answer>2</answer>", "not written exactly"),
        ("<think>a <answ3r>1</answ3r></think><answer>2</answer>", "not written exactly"),
        ("<think>a ⟨answer⟩1⟨/answer⟩</think><answer>2</answer>", "not written exactly"),
        (
            "<think>a <\U0001d41a\U0001d427\U0001d42c\U0001d430\U0001d41e\U0001d42b>1</think><answer>2</answer>",
            "not written",
        ),
        ("<think>a</think><answer>.</answer>", "answer is empty"),
        ("<think>a</think><answer> - … </answer>", "answer is empty"),
        ("<think>a</think><answer><!-- 2 --></answer>", "answer is empty"),
        ("<think>a</think><answer><!-- 2</answer>", "answer is empty"),
        ("<think>a</think><answer>&nbsp;&#8203;&zwnj;</answer>", "answer is empty"),
        ("<think>a</think><answer><br/><b></b></answer>", "answer is empty"),
        ("<think>a</think><answer>$$ $$</answer>", "answer is empty"),
        ("<think>a</think><answer>\\boxed{ }</answer>", "answer is empty"),
        ("<think><!-- a --></think><answer>2</answer>", "0 letters and digits"),
        ("<think>&nbsp;</think><answer>2</answer>", "0 letters and digits"),
    ],
)
def test_anything_else_is_wrong_and_says_why(text: str, reason: str) -> None:
    verdict = answer_tags(text)
    assert verdict.outcome is Outcome.WRONG
    assert verdict.score == 0.0
    assert reason in verdict.reason


def test_fewest_letters_of_thinking_is_an_option() -> None:
    assert answer_tags("<think>...</think><answer>2</answer>", min_think_chars=0).correct
    assert answer_tags("<think>a1 b</think><answer>2</answer>", min_think_chars=3).correct
    assert not answer_tags("<think>a1 b</think><answer>2</answer>", min_think_chars=4).correct


def test_think_format_wants_one_block_at_the_start_and_text_after_it() -> None:
    verdict = think_format("<think>1 + 1</think>\nThe answer is \\boxed{2}.\n")
    assert verdict.correct
    assert verdict.extracted == "The answer is \\boxed{2}."


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("The answer is 2.", "<think> stands 0 times"),
        ("<think>1 + 1", "</think> stands 0 times"),
        ("<think>1 + 1</think>", "nothing after"),
        ("<think>1 + 1</think> \u200b\n", "nothing after"),
        ("<think>1 + 1</think> .", "nothing after"),
        ("<think>1 + 1</think><!-- 2 -->", "nothing after"),
        ("<think></think>2", "thinking is empty"),
        ("So <think>1 + 1</think>2", "text before"),
        ("</think>1 + 1<think>2", "text before <think>"),
        ("<think>a</think>b<think>c</think>d", "<think> stands 2 times"),
        ("<think>a</think>b</THINK>c", "not written exactly"),
    ],
)
def test_think_format_is_wrong_otherwise(text: str, reason: str) -> None:
    verdict = think_format(text)
    assert verdict.outcome is Outcome.WRONG
    assert reason in verdict.reason


def test_words_that_hold_a_tag_name_are_no_tags() -> None:
    assert strange_tag("x <thinking> y <answered> a<b> think> <think answer") is None


def test_a_text_made_of_openings_is_read_in_linear_time() -> None:
    # Quadratic reading would take hours: the test would never end.
    for hostile in ("<" * 500_000, "< / " * 250_000, "<think " * 150_000, "＜" * 300_000):
        assert not answer_tags(hostile).correct
