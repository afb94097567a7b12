"""Which part of a completion is taken for its answer."""

import pytest

from r1zero.errors import UserError
from r1zero.verifiers.text.extract import extract, visible


def taken(text: str) -> str | None:
    return extract(text).text


def test_the_last_complete_box_wins() -> None:
    assert taken(r"First \boxed{5}. No: \boxed{7}.") == "7"


def test_braces_inside_a_box_are_balanced_and_escaped_ones_do_not_count() -> None:
    assert taken(r"\boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert taken(r"\boxed{\{1, 2\}}") == r"\{1, 2\}"


def test_a_box_left_open_at_the_end_never_lets_an_earlier_one_win() -> None:
    found = extract(r"\boxed{8} \boxed{5")
    assert found.text is None
    assert found.reason == "the last box is left open"


def test_an_empty_last_box_is_no_answer() -> None:
    assert taken(r"\boxed{8} and \boxed{ }") is None


def test_boxes_joined_on_one_line_are_a_list() -> None:
    assert taken(r"$\boxed{2}$ and $\boxed{3}$") == "2, 3"
    assert taken(r"\boxed{1}, or \boxed{2}, or \boxed{3}.") == "1, 2, 3"
    assert taken("\\boxed{2}\n\\boxed{3}") == "3"


def test_a_mention_of_the_command_is_no_box() -> None:
    assert taken(r"I get \boxed{42}. (Mark it with \boxed )") == "42"
    assert taken(r"Hence $\boxed 7$.") == "7"


def test_a_sign_before_a_box_and_a_percent_after_it_belong_to_it() -> None:
    assert taken(r"x = -\boxed{5}") == "-(5)"
    assert taken(r"$\boxed{28}\%$") == r"28\%"


def test_text_inside_think_never_counts() -> None:
    assert taken(r"<think>\boxed{41}</think> The answer is 42.") == "42"
    assert taken(r"thought before a prefilled tag \boxed{41}</think> <answer>42</answer>") == "42"


def test_an_open_think_block_is_no_answer() -> None:
    assert visible("<think>a</think>b<think>c") is None
    assert extract(r"<think>\boxed{42}").reason == "a think block is left open"


def test_a_comment_is_not_shown_to_the_reader_and_does_not_count() -> None:
    assert taken(r"\boxed{36}<!-- \boxed{42} -->") == "36"


def test_answer_tags_that_disagree_are_no_answer() -> None:
    assert taken("<answer>12</answer><answer>13</answer>") is None
    assert taken("<answer>12</answer> again <answer>12</answer>") == "12"
    assert taken("<answer>12</answer> <answer>13") is None


def test_an_answer_tag_may_hold_a_sentence() -> None:
    assert taken(r"<answer>The answer is \(\frac12\).</answer>") == r"\frac12"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2+40=42\n#### 42", "42"),
        ("#### 10\nMore.\n#### 20", "20"),
        ("The answer is 72, overall, which they earn.", "72"),
        ("**Answer**\n\n\\[\\frac{3}{4}\\]", r"\frac{3}{4}"),
        ("✅ Final Answer: **73**", "73"),
        ("# Answer\n\n585", "585"),
        ("A: 12", "12"),
        ("It's not A because of parity, therefore it's B", "B"),
        ("Therefore, the answer (arabic numerals) is 27.", "27"),
    ],
)
def test_marked_answers_in_prose(text: str, answer: str) -> None:
    found = extract(text)
    assert (found.text, found.rule) == (answer, "marker")


@pytest.mark.parametrize(
    "text",
    [
        "Final Answer: The final answer is $5$. I hope it is correct.",
        "**Final Answer:** The answer is 5.",
        "Answer: the answer is 5",
        "## Final Answer\nThe answer is 5.",
        "Answer: So the final answer is: **5**",
    ],
)
def test_a_marker_inside_a_markers_text_is_the_same_answer(text: str) -> None:
    assert taken(text) in ("5", "$5$")


def test_two_answers_in_one_line_are_no_answer() -> None:
    assert extract("The answer is A. The answer is B.").reason == "two answers that disagree"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So the system is solved by $(7, 6)$.", "(7, 6)"),
        ("64 + 67 = **131**", "131"),
        ("9 eggs at $2 each bring in 9 * 2 = $18 per day.", "$18"),
        ("Hence Alice wins with probability 2/3.", "2/3"),
        ("The temperature is -5 now.", "-5"),
    ],
)
def test_the_last_formula_or_number_of_unmarked_prose(text: str, answer: str) -> None:
    found = extract(text)
    assert (found.text, found.rule) == (answer, "last")


def test_a_number_that_is_denied_or_hedged_is_no_answer() -> None:
    assert taken("It is surely not 24.") is None
    assert taken("I would say 23 or 24.") is None


def test_a_number_inside_a_word_is_none() -> None:
    assert taken("The code is AZYUK2A and nothing else matters to us.") is None


def test_the_rules_are_tried_in_the_order_given() -> None:
    text = r"<answer>5</answer> \boxed{6}"
    assert extract(text, ("boxed",)).text == "6"
    assert extract(text, ("answer_tag", "boxed")).text == "5"
    assert extract("no mark at all 7", ("boxed", "answer_tag")).text is None


def test_an_unknown_rule_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="did you mean 'boxed'"):
        extract("x", ("boxd",))


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 40_000,
        "{" * 300_000,
        "$" * 300_000,
        "<answer>" * 40_000,
        "answer is " * 30_000,
        "#### " * 200_000,
        "answer is . " * 80_000,
        "the answer is (" * 60_000,
        "answer \n" * 120_000,
        "<!-- " * 60_000,
        "the answer" * 30_000 + r"\boxed{7}",
        "1," * 150_000 + "8",
        "**" * 150_000,
        "(" * 200_000,
    ],
)
def test_no_text_makes_the_scan_quadratic(text: str) -> None:
    # Nothing to assert but that it ends: a quadratic scan of these takes minutes.
    assert extract(text).text in (None, "7", "8") or len(extract(text).text or "") < 5000


@pytest.mark.parametrize(
    "said",
    [
        "half of 5",
        "twice 5",
        "the square root of 5",
        "the cube of 5",
        "5 squared",
        "5 factorial",
        "at least 5",
        "greater than 5",
        "never 5",
        "anything except 5",
        "5 is wrong",
        "-$5$",
        r"$\frac13$ of $5$",
        "$3$ and $5$",
        "5 tenths",
        "5 dozen",
    ],
)
def test_words_that_change_a_value_are_not_dropped_around_it(said: str) -> None:
    found = extract(f"The answer is {said}.")
    assert "5" not in (found.text, *found.shorter)


@pytest.mark.parametrize("text", ["The answer is minus 5.", "#### negative 5", "<answer>minus 5</answer>"])
def test_a_sign_in_words_stays_with_its_number(text: str) -> None:
    assert extract(text).shorter == ("-5",)


@pytest.mark.parametrize("said", ["therefore simply $5$", "that she has 5 left over", "that they bought a total of 5"])
def test_plain_words_around_a_value_are_dropped(said: str) -> None:
    assert extract(f"The answer is {said}.").shorter == ("5",)


@pytest.mark.parametrize(
    "text",
    [
        "= -B", "-B", "\u2212B", r"= \,-\,B", "So the answer is -B.", "B^2", "B/2", "$B!$", "B!", r"2\cdot B", "3+B",
        "$3 - B$",
        r"\frac{1}{B}", r"\sqrt{B}", r"\sqrt[3]{B}", r"B\cdot 10^3", r"x \ne B", "x > B", r"\phantom{B}", "(B)^2", "2B",
    ],
)  # fmt: skip
def test_a_box_that_is_a_part_of_more_maths_is_not_its_content(text: str) -> None:
    assert taken(text.replace("B", r"\boxed{5}")) in (None, "-(5)")


@pytest.mark.parametrize(
    "text",
    [
        "- B", "* B", "> B", "**B**", "x = B", r"x \approx B", "$x = B$", "the answer is - B", "The answer is: B!",
        "=> B",
        "answer \u2013 B", "(B)", r"\text{B}", "<b>B</b>", "$2+3=B$", "B - since", "1. B", "It costs $9, so - B",
    ],
)  # fmt: skip
def test_dashes_bullets_and_equal_signs_beside_a_box_leave_it_alone(text: str) -> None:
    assert taken(text.replace("B", r"\boxed{5}")) == "5"


@pytest.mark.parametrize(
    "said", ["**5** apples.", "about 5 hours.", "approximately 5.", "exactly 5.", "**5**", "5 apples, as wanted."]
)
def test_a_number_said_plainly_is_read_out_of_its_sentence(said: str) -> None:
    found = extract(f"We add.\nThe answer is {said}")
    assert "5" in (found.text, *found.shorter)


def test_a_power_is_not_taken_for_bold() -> None:
    assert "5" not in extract("The answer is the value 5**2").shorter
