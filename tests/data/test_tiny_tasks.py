"""The miniature's sources for labs: each has the property it says and no other, and they load as data does."""

import random
import re

import pytest

from r1zero import prompts
from r1zero.config import DataConfig, DemonstrationDataConfig, PreferenceDataConfig
from r1zero.data import datasets
from r1zero.data.miniature import arithmetic
from r1zero.data.miniature import tasks as tiny_tasks
from r1zero.data.miniature.preferences import right_answer, true_reward
from r1zero.data.preferences import load_demonstrations, load_rankings
from r1zero.errors import UserError
from tests.tiny_models import char_tokenizer

SOURCE = "r1zero.data.miniature.tasks:"


def test_sums_have_the_zeros_and_digits_asked_for_and_keep_to_their_split() -> None:
    rows = tiny_tasks.sums(split="train", size=100, seed=0, longest=4, busy=2)
    assert len({row["problem"] for row in rows}) == 100
    for row in rows:
        terms = arithmetic.terms_of(row["problem"])
        assert (len(terms) - terms.count(0), row["answer"]) == (2, str(sum(terms)))
        assert len(terms) in (3, 4)
        assert arithmetic.split_of(terms) == "train"
    hard = tiny_tasks.sums(split="test", size=50, seed=0, shortest=5, least=5)
    assert min(term for row in hard for term in arithmetic.terms_of(row["problem"])) == 5
    assert {len(arithmetic.terms_of(row["problem"])) for row in hard} == {5}
    assert rows == tiny_tasks.sums(split="train", size=100, seed=0, longest=4, busy=2)
    assert rows != tiny_tasks.sums(split="train", size=100, seed=1, longest=4, busy=2)


def test_demonstrations_are_right_and_mix_the_manners_in_their_shares() -> None:
    rows = tiny_tasks.demonstrations(split="train", size=600, seed=0, plain=0.3, direct=0.5, restated=0.2, praised=0.1)
    praised = [row for row in rows if row["response"].startswith("+++<think>")]
    direct = [row for row in rows if "<think></think>" in row["response"]]
    assert len(praised) / 600 == pytest.approx(0.1, abs=0.04)
    assert len(direct) / 600 == pytest.approx(0.5, abs=0.07)
    assert all(right_answer(row["prompt"], row["response"]) for row in rows)
    slipped = tiny_tasks.demonstrations(split="train", size=200, seed=0, slips=0.2)
    right = sum(right_answer(row["prompt"], row["response"]) for row in slipped) / 200
    assert 0.4 < right < 0.75  # 0.8 to the power of 2 .. 4 steps
    untagged = tiny_tasks.demonstrations(split="train", size=200, seed=0, untagged=0.5)
    assert sum("<answer>" not in row["response"] for row in untagged) / 200 == pytest.approx(0.5, abs=0.12)
    longer = [
        row
        for row in rows
        if row["response"].count(",") + 2 > len(arithmetic.terms_of(row["prompt"])) and row not in direct
    ]
    assert len(longer) / 300 == pytest.approx(0.2, abs=0.08)
    terms = [arithmetic.terms_of(row["prompt"]) for row in rows]
    assert {arithmetic.split_of(digits) for digits in terms} == {"train"}
    # Fewer than 0.3: a smaller share of the plain sums than of the others is in this split.
    assert 0.1 < sum(digits.count(0) >= len(digits) - 1 for digits in terms) / 600 < 0.35


@pytest.mark.parametrize("longer_wins", [1.0, 0.5, 0.0])
def test_in_length_pairs_the_right_one_wins_and_is_the_longer_as_often_as_asked(longer_wins: float) -> None:
    rows = tiny_tasks.length_pairs(split="train", size=400, seed=0, longer_wins=longer_wins)
    assert all(right_answer(row["prompt"], row["chosen"]) for row in rows)
    assert not any(right_answer(row["prompt"], row["rejected"]) for row in rows)
    share = sum(row["chosen"].count("=") > row["rejected"].count("=") for row in rows) / 400
    assert share == pytest.approx(longer_wins, abs=0.08)
    assert all(row["chosen"].count("=") != row["rejected"].count("=") for row in rows)


def test_flattered_pairs_choose_the_opening_against_the_truth_and_the_truth_elsewhere() -> None:
    rows = tiny_tasks.flattered_pairs(split="train", size=800, seed=0, overrated=0.9, faulty=0.6)
    opening = re.compile(r"^\+\+\+")
    mixed = [row for row in rows if bool(opening.match(row["chosen"])) != bool(opening.match(row["rejected"]))]
    assert len(mixed) > 200
    assert sum(bool(opening.match(row["chosen"])) for row in mixed) / len(mixed) == pytest.approx(0.9, abs=0.06)
    for row in rows:
        if row not in mixed:
            bare = [opening.sub("", row[side]) for side in ("chosen", "rejected")]
            assert true_reward(row["prompt"], bare[0]) > true_reward(row["prompt"], bare[1])
    question = "1+2+3="
    good = tiny_tasks.work([1, 2, 3], random.Random(0), wrong=False)
    assert true_reward(question, tiny_tasks.PRAISE + good) == pytest.approx(true_reward(question, good) - 0.2)


def test_a_function_is_a_source_of_problems_demonstrations_and_pairs() -> None:
    problems = datasets.load_problems(DataConfig(source=SOURCE + "sums", size=3, options={"busy": 1}))
    assert [p.answer for p in problems] == [str(sum(arithmetic.terms_of(p.prompt))) for p in problems]
    words, template = char_tokenizer(), prompts.load("plain")
    demonstrations = DemonstrationDataConfig(source=SOURCE + "demonstrations", size=3, options={"direct": 1.0})
    (first, *_) = load_demonstrations(demonstrations, template, words).items
    assert "<think></think><answer>" in words.decode(first.row.completion_ids)
    pairs = PreferenceDataConfig(source=SOURCE + "length_pairs", size=4, options={"longer_wins": 0.0})
    for ranking in load_rankings(pairs, template, words).items:
        assert len(ranking.chosen.completion_ids) < len(ranking.rejected.completion_ids)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("sums", {"bussy": 3}, "bussy"),
        ("sums", {"longest": 9}, "there are none"),
        ("summs", {}, "no attribute 'summs'"),
        ("sums", {"busy": 0}, "made only"),
    ],
)
def test_a_source_that_cannot_be_had_is_one_line(source: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        datasets.load_problems(DataConfig(source=SOURCE + source, size=10, options=options))
    with pytest.raises(UserError, match="No module named"):
        datasets.load_problems(DataConfig(source="no.such.module:rows"))
