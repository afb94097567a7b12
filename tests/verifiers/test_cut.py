"""Completions cut off at the token limit: a definite commitment counts, and no guess is made at half a text."""

import pytest

from r1zero.data.records import Problem
from r1zero.verifiers import Outcome, Sample
from r1zero.verifiers.registry import get
from r1zero.verifiers.text.cut import has_closed_fence

C, W, T = Outcome.CORRECT, Outcome.WRONG, Outcome.TRUNCATED

# What each text says of the answer 12, had it been cut there.
TEXTS = [
    # Of a real 135M model: a line that ends in "the final answer" is half a sentence, and what follows is reasoning.
    ("3. combining the factors to get the final answer\n\nThe only way is that the order does not matter.\n", T),
    ("We add.\n\n**Final Answer**\n\n12\n", C),
    # A closed tag, a complete box, a marker with a whole sentence.
    ("<think>3 times 4</think> <answer>12</answer>", C),
    ("<think>3 times 4</think> <answer>13</answer>", W),
    ("<think>3 times 4</think> <answer>12</answer> And one more thing: the", C),
    (r"<think>a</think> <answer>\boxed{12}</answer> Wait, let me see", C),
    (r"So 3 \cdot 4 gives \boxed{12}", C),
    (r"So 3 \cdot 4 gives $\boxed{12}$.", C),
    (r"So 3 \cdot 4 gives $\boxed{11}$.", W),
    (r"\[\boxed{12}\]", C),
    (r"She has \boxed{12} apples in all.", C),
    (r"It is \boxed{12}, since 3 + 9 = 12.", C),
    (r"It is \boxed{12}. I hope it is correct.", C),
    (r"It is \boxed{12}. The final answer is 12.", C),
    ("We add. The final answer is 12.", C),
    ("We add. The final answer is $12$.", C),
    ("We add. The final answer is 13.", W),
    ("**Answer:** 12\n", C),
    ("#### 12\n", C),
    ("The answer is 12, because 3 + 9 = 12.", C),
    # Everything else.
    ("3 + 9 = 12", T),
    ("So far we have 12 apples and", T),
    ("We get 12.", T),
    ("12", T),
    ("The final answer is 12", T),  # 120 may follow
    ("The final answer is", T),
    ("#### 12", T),
    ("A: 12.", T),  # 12.5 may follow
    ("A: 12.\n", C),
    ("If x were 3, the answer should be 12.", T),
    ("Therefore it is 12.", T),
    ("The final answer is 12. Wait, we have to count", T),
    ("The final answer is 12. Let me check. 3 + 9", T),
    ("The final answer is 12 because we", T),
    ("The wrong answer is 12.", T),
    (r"\boxed{12", T),
    (r"\boxed{12} or", T),
    (r"\boxed{12} and", T),
    (r"\boxed{12}. But that is", T),
    (r"\boxed{12}. Wait, I forgot the other one.", T),
    (r"\boxed{12}. Let me verify this: 3 + 9 = 12.", T),
    (r"First \boxed{12}. Then we compute y.", T),
    (r"First \boxed{12}, and then we double it.", T),
    (r"\boxed{12}. Now \boxed{1", T),
    (r"\boxed{12} + ", T),
    (r"\boxed{12}. The final answer is 13.", T),
    ("<think>3 times 4 is 12, so \\boxed{12}", T),
    ("<think>a</think> <answer>12", T),
    ("<think>a</think> <answer>11</answer> No: <answer>12", T),
    ("", T),
]


@pytest.mark.parametrize(("text", "outcome"), TEXTS)
@pytest.mark.parametrize("name", ["math", "answer"])
def test_a_cut_text_counts_only_what_it_has_committed_itself_to(name: str, text: str, outcome: Outcome) -> None:
    verdict = get(name)(Sample(completion=text, answer="12", finish_reason="length"))
    assert verdict.outcome is outcome, verdict.reason
    assert verdict.extracted is None or outcome is not T


def test_a_text_that_ended_by_itself_is_read_to_its_last_number() -> None:
    assert get("math")(Sample(completion="3 + 9 = 12", answer="12")).outcome is C
    assert get("math")(Sample(completion="3 + 9 = 12", answer="12", finish_reason="length")).outcome is T


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>a</think> <answer>B</answer>", C),
        ("<think>a</think> <answer>(C)</answer> and", W),
        ("So the answer is B.", C),
        ("So the answer is C.", W),
        (r"So \boxed{B}", C),
        ("So the answer is B", T),
        ("The answer is B. However, C", T),
        (r"\boxed{B}. However, C may also", T),
        ("B", T),
        ("<answer>B", T),
    ],
)
@pytest.mark.parametrize("name", ["choice", "math"])
def test_a_cut_choice_counts_only_where_it_is_made(name: str, text: str, outcome: Outcome) -> None:
    assert get(name)(Sample(completion=text, answer="B", finish_reason="length")).outcome is outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>a</think><answer>b</answer>", C),
        ("<think>a</think><answer>b</answer> and the", W),
        ("<answer>b</answer>", W),
        ("<think>a</think><answer>b", T),
        ("<think>a</think><answer>so \\boxed{5}", T),
        ("<think>a", T),
        ("just words", T),
    ],
)
def test_a_cut_format_is_judged_only_once_its_answer_is_closed(text: str, outcome: Outcome) -> None:
    assert get("answer_tags")(Sample(completion=text, finish_reason="length")).outcome is outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("<think>a</think> The answer is 5.", C),
        ("<think>a</think> \\boxed{5}", C),
        ("The answer is 5.", W),
        ("<think>a</think> The answer is", T),
        ("<think>a. The answer is 5.", T),
        ("<think>a</think> First, we", T),
    ],
)
def test_a_cut_text_after_the_thinking_has_its_format_once_it_answers(text: str, outcome: Outcome) -> None:
    assert get("think_format")(Sample(completion=text, finish_reason="length")).outcome is outcome


@pytest.mark.parametrize(
    ("text", "outcome"),
    [("<answer>7</answer>", C), ("\\boxed{7}", C), ("\\boxed{8}.", W), ("7", T), ("\\boxed{7}. But 3 +", T)],
)
def test_a_cut_answer_to_a_gym_task_counts_only_in_a_tag_or_a_box(text: str, outcome: Outcome) -> None:
    pytest.importorskip("reasoning_gym")
    entry = {"question": "4 + 3 =", "answer": "7", "metadata": {}}
    problem = Problem(id="1", prompt="", answer="7", data={"reasoning_gym": "chain_sum", "entry": entry})
    given = Sample(completion=text, answer="7", problem=problem, finish_reason="length")
    assert get("reasoning_gym")(given, {"whole": True}).outcome is outcome


def test_a_penalty_judges_a_cut_text_as_it_is() -> None:
    assert get("overlong")(Sample(completion="so", num_tokens=5, finish_reason="length")).outcome is not T


def test_a_fence_is_closed_by_one_as_long_without_a_language() -> None:
    assert has_closed_fence("```python\nx = 1\n```")
    assert has_closed_fence("````\n```\n````")
    assert not has_closed_fence("```python\nx = 1\n")
    assert not has_closed_fence("````\n```python\n```\n")
