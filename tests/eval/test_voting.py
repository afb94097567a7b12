from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import pytest

from r1zero.data.records import Problem
from r1zero.eval.result import summarise
from r1zero.eval.samples import EvalSample
from r1zero.eval.statistics import vote
from r1zero.eval.voting import answer_classes, with_votes
from r1zero.verifiers import Outcome, VerifierPool, VerifierSpec

MATH = VerifierSpec(name="math")


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(workers=1) as pool:
        yield pool


def said(extracted: str | None, *, correct: bool = False, problem: str = "p", index: int = 0) -> EvalSample:
    outcome = Outcome.CORRECT if correct else Outcome.UNPARSEABLE if extracted is None else Outcome.WRONG
    return EvalSample(
        problem_id=problem,
        index=index,
        prompt="",
        completion="",
        num_tokens=1,
        finish_reason="stop",
        outcome=outcome,
        score=float(correct),
        extracted=extracted,
    )


def test_a_completion_cut_off_before_its_answer_has_no_vote(pool: VerifierPool) -> None:
    cut = replace(said("0.5"), outcome=Outcome.TRUNCATED, finish_reason="length")
    assert answer_classes([[cut, said("1/2"), cut, said("0.5")]], pool) == [[-1, 1, -1, 1]]


def test_half_a_text_that_was_graded_by_its_last_number_is_truncated_when_graded_again(pool: VerifierPool) -> None:
    problem = Problem(id="p", prompt="", answer="12")
    old = replace(said("12", correct=True), completion="So far 3 + 9 = 12 and", finish_reason="length")
    new = old.with_verdict(pool.verify([(MATH, old.verifier_input(problem))])[0])
    assert (new.outcome, new.extracted) == (Outcome.TRUNCATED, None)


def test_equal_answers_vote_together_however_they_are_written(pool: VerifierPool) -> None:
    group = [
        said("0.5"),
        said("1/2"),
        said(r"\frac{1}{2}"),
        said("3", correct=True),
        said(None),
        said(" 0.5 "),
        said("0.25"),
        said("3.0", correct=True),
    ]
    assert answer_classes([group], pool) == [[1, 1, 1, 0, -1, 1, 2, 0]]


def test_problems_do_not_share_classes(pool: VerifierPool) -> None:
    groups = [[said("1"), said("2"), said("1")], [said("2"), said("2")]]
    assert answer_classes(groups, pool) == [[1, 2, 1], [1, 1]]


def test_cons_at_k_equals_the_mean_over_all_subsets(pool: VerifierPool) -> None:
    answers = {
        "a": [("3", True), ("3.0", True), ("0.5", False), (r"\frac12", False), ("1/2", False), (None, False)],
        "b": [("7", False), ("8", True), ("8", True), (None, False), ("9", False), ("10", False)],
    }
    samples = [
        said(text, correct=right, problem=name, index=i)
        for name, group in answers.items()
        for i, (text, right) in enumerate(group)
    ]
    problems = [Problem(id=name, prompt="") for name in answers]
    result = with_votes(summarise(problems, samples, 6), pool, MATH)
    labels = {"a": [0, 0, 1, 1, 1, -1], "b": [1, 0, 0, -1, 2, 3]}
    for k in (2, 4, 6):
        means = []
        for name, group in answers.items():
            subsets = list(combinations(range(6), k))
            votes = [vote([labels[name][i] for i in s], [group[i][1] for i in s]) for s in subsets]
            means.append(sum(votes) / len(votes))
        assert result.cons_at[k] == pytest.approx(sum(means) / 2)
    assert result.cons_at[6] == 0.5  # a: 3 votes for one half beat 2 for 3; b: 2 votes for 8 beat the rest


def test_no_vote_is_taken_where_answers_cannot_be_compared(pool: VerifierPool) -> None:
    samples = [said("def f(): ...", index=0), said("def f(): pass", index=1)]
    result = summarise([Problem(id="p", prompt="")], samples, 2)
    assert with_votes(result, pool, VerifierSpec(name="code")).cons_at == {}
    assert set(with_votes(result, pool, MATH).cons_at) == {2}
    unread = summarise([Problem(id="p", prompt="")], [said(None, index=0), said(None, index=1)], 2)
    assert with_votes(unread, pool, MATH).cons_at == {}
