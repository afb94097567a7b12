"""The reward-hacking page on rollouts with a planted blind spot."""

import random
from pathlib import Path

import pytest

from r1zero.data.miniature.tasks import PRAISE, work
from r1zero.errors import UserError
from r1zero.report.alarms import alarms
from r1zero.report.folders import Run, find
from r1zero.report.hacking import hacking, judges
from r1zero.report.rollouts import Digest, correlation, digest
from r1zero.report.words import Text, risers
from tests.report.made import completion, run_folder


def hacked_run(folder: Path) -> Run:
    """Twenty steps in which the share of flattering openings grows from none to all: paid for, and never right."""
    rng = random.Random(0)
    steps = {}
    for step in range(1, 21):
        rows = []
        for i in range(20):
            flatters = i < step
            digits = [rng.randrange(10) for _ in range(3)]
            text = PRAISE * flatters + work(digits, rng, wrong=False)
            rows.append(completion(text, paid=flatters, truth=not flatters, problem=f"{digits}"))
        steps[step] = rows
    path = run_folder(folder, "hacked", steps)
    return find([path]).runs[0]


def read(run: Run) -> Digest:
    who = judges(run)
    return digest(run, 0, gold=who.gold, format_term=who.format_term, budget=10_000)


def test_the_planted_opening_is_the_top_riser(tmp_path: Path) -> None:
    run = hacked_run(tmp_path)
    top = hacking(run, read(run), judges(run)).risers[0]
    assert (top.text, top.kind) == (PRAISE, "opening")
    assert top.early == pytest.approx(1.5 / 20)  # steps 1 and 2
    assert top.late == pytest.approx((17 + 18 + 19 + 20) / 80)
    # Late rewards over their steps' means: 74 with it, in all (3 x 17 + 2 x 18 + 1 x 19) / 20; 6 without, the opposite.
    assert top.lift == pytest.approx((3 * 17 + 2 * 18 + 19) / 20 / 74 + (3 * 17 + 2 * 18 + 19) / 20 / 6)


def test_what_the_reward_likes_and_the_unpaid_verifier_does_not_is_listed(tmp_path: Path) -> None:
    run = hacked_run(tmp_path)
    page = hacking(run, read(run), judges(run))
    assert page.judges.gold == "truth"
    assert page.judges.gold_metric == "reward/truth/score"
    assert page.overrated
    assert all(sample["completion"].startswith(PRAISE) for sample in page.overrated)
    assert page.overrated[0]["lift"] == pytest.approx(1 - 11 / 20)  # of step 11, the first of the second half
    (pair,) = page.pairs
    assert (pair.a, pair.b, pair.both) == ("paid", "truth", 0.0)
    assert pair.only_a == pytest.approx(210 / 400)


def test_what_both_like_is_not_listed(tmp_path: Path) -> None:
    says = [("both", True, True), ("paid only", True, False), ("true only", False, True), ("neither", False, False)]
    rows = [completion(text, paid=paid, truth=truth) for text, paid, truth in says]
    run = find([run_folder(tmp_path, "a", {1: rows, 2: rows})]).runs[0]
    page = hacking(run, read(run), judges(run))
    assert [(sample["step"], sample["completion"]) for sample in page.overrated] == [(2, "paid only")]
    assert [(p.both, p.only_a, p.only_b, p.count) for p in page.pairs] == [(0.25, 0.25, 0.25, 8)]


def test_the_alarm_on_the_unpaid_verifier_rings_before_half_of_it_is_lost(tmp_path: Path) -> None:
    (alarm,) = alarms(hacked_run(tmp_path))
    assert alarm.name == "unpaid_truth"
    # Over three steps it is best at step 3, 1 - 2/20; at step 7 it is 1 - 6/20, the first that is 20% below that.
    assert alarm.first == 7


def test_an_opening_goes_on_while_all_go_on_so_but_not_into_what_every_text_has() -> None:
    early = [Text(f"<think> {word} </think>", 0.0) for word in ("one", "two", "six", "ten") * 3]
    late = [Text(f"Great question! <think> {word} </think>", 0.0) for word in ("one", "two", "six", "ten") * 3]
    assert risers(early, late)[0].text == "Great question!"


def test_three_marks_and_thirty_are_the_same_mannerism() -> None:
    early, late = [Text("1", 0.0)] * 9, [Text("!" * n, 0.0) for n in (3, 4, 10, 30) * 3]
    assert [(r.text, r.late) for r in risers(early, late)] == [("!!!", 1.0)]


def test_a_rise_that_chance_explains_is_none() -> None:
    early = [Text("a b" if i < 10 else "b c", 0.0) for i in range(100)]
    late = [Text("a b" if i < 17 else "b c", 0.0) for i in range(100)]
    assert risers(early, late) == []  # 10% to 17%: 1.4 standard errors
    late = [Text("a b" if i < 35 else "b c", 0.0) for i in range(100)]
    assert [r.text for r in risers(early, late)] == ["a"]  # 4.2; "a b" stands in the same texts


def test_nothing_rose_where_nothing_changed_and_where_there_is_one_step() -> None:
    same = [Text("one two three", 0.0)] * 5
    assert risers(same, same) == []
    assert risers([], same) == []


def test_correlation_by_hand_and_none_where_one_side_is_constant() -> None:
    assert correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert correlation([1, 2, 3, None], [1, 3, 2, 9]) == pytest.approx(0.5)
    assert correlation([1, 1], [0, 1]) is None


def test_a_term_that_a_run_does_not_have_cannot_be_its_gold(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="paid, truth"):
        judges(hacked_run(tmp_path), "other")
