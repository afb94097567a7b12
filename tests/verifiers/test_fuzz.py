"""Random texts: no built-in verifier raises on any, and the strict format agrees with a grammar written another way."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r1zero.data.records import Problem
from r1zero.verifiers import Outcome, Sample, get
from r1zero.verifiers.tags import answer_tags, final_answer, think_format

TAGS = ["<think>", "</think>", "<answer>", "</answer>"]
PIECES = [*TAGS, "a", " ", "\n", "<Think>", "</answer >", "\u200b", "<b>"]
INSIDE = r"(?:a|\s|\u200b|<b>)*a(?:a|\s|\u200b|<b>)*"  # something with a letter in it, markup aside
R1 = re.compile(rf"\s*<think>{INSIDE}</think>\s*<answer>{INSIDE}</answer>\s*")

fill = st.lists(st.sampled_from(["a", " ", "\n", "\u200b", "a"]), max_size=3).map("".join)
gap = st.one_of(st.sampled_from(["", " ", "\n"]), fill)
formatted = st.tuples(gap, fill, gap, fill, gap).map(
    lambda f: f"{f[0]}<think>{f[1]}</think>{f[2]}<answer>{f[3]}</answer>{f[4]}"
)
"""Texts about half of which are in the format."""


@st.composite
def nearly_formatted(draw: st.DrawFn) -> str:
    """A text like that, or with one piece put in or one character taken out somewhere."""
    text = draw(formatted)
    at = draw(st.integers(0, len(text)))
    change = draw(st.sampled_from(["none", "put in", "take out"]))
    if change == "put in":
        return text[:at] + draw(st.sampled_from(PIECES)) + text[at:]
    return text[:at] + text[at + 1 :] if change == "take out" else text


nasty = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            [
                *PIECES,
                "\\boxed{",
                "}",
                "{",
                "$",
                "\\frac",
                "A",
                "B",
                "(",
                ")",
                "or",
                "The answer is",
                "9",
                "^",
                "**",
                "\x00",
            ]
        ),
        max_size=40,
    ).map("".join),
)


@settings(max_examples=2000, deadline=None)
@given(nearly_formatted())
def test_answer_tags_agrees_with_a_grammar_of_the_format(text: str) -> None:
    assert answer_tags(text).correct == bool(R1.fullmatch(text))


@settings(max_examples=500, deadline=None)
@given(st.permutations(TAGS).flatmap(lambda tags: st.tuples(st.just(tags), st.lists(st.sampled_from(["", "a", " "])))))
def test_only_one_order_of_the_four_tags_is_correct(drawn: tuple[list[str], list[str]]) -> None:
    tags, between = drawn
    text = "".join(tag + (between[i] if i < len(between) else "a") for i, tag in enumerate(tags))
    if tags != TAGS:
        assert not answer_tags(text).correct


@pytest.mark.parametrize(
    "name", ["answer_tags", "think_format", "choice", "language", "overlong", "repetition", "reasoning_gym"]
)
@settings(max_examples=300, deadline=None)
@given(text=nasty)
def test_no_text_makes_a_verifier_raise(name: str, text: str) -> None:
    if name == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    entry = {"question": "?", "answer": "17", "metadata": {}}
    problem = Problem(
        id="1", prompt="?", data={"choices": ["a", "b", "c"], "reasoning_gym": "chain_sum", "entry": entry}
    )
    verdict = get(name)(Sample(completion=text, answer="B", problem=problem, num_tokens=len(text)))
    assert verdict.outcome in Outcome
    assert verdict.outcome is not Outcome.ERROR, verdict.reason


@settings(max_examples=500, deadline=None)
@given(nasty)
def test_an_answer_is_never_taken_from_the_thinking(text: str) -> None:
    hidden = "<think>" + text.replace("</think>", "")
    assert final_answer(hidden) is None
    assert not think_format(hidden).correct
