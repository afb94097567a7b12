"""reasoning-gym by its own scorers, and the guard before those that evaluate the model's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from r1zero.data.records import Problem
from r1zero.verifiers import Outcome, Verdict

pytest.importorskip("reasoning_gym")

from r1zero.verifiers import gym


def problem(task: str, answer: Any, **metadata: Any) -> Problem:
    entry = {"question": "?", "answer": answer, "metadata": metadata}
    return Problem(id="1", prompt="?", answer=str(answer), data={"reasoning_gym": task, "entry": entry})


def judge(answer: str, of: Problem, **options: Any) -> Verdict:
    return gym.reasoning_gym(f"<think>hm</think><answer>{answer}</answer>", of, **options)


def test_the_tasks_scorer_decides() -> None:
    chain = problem("chain_sum", "7")
    assert judge("7", chain).correct
    assert judge("07.0", chain).correct  # this task compares values
    assert judge("8", chain).outcome is Outcome.WRONG


def test_a_partial_score_counts_only_when_asked_for() -> None:
    chain = problem("chain_sum", "7")  # the scorer pays len("7") / len("is 7") for a gold within the answer
    assert (judge("is 7", chain).outcome, judge("is 7", chain).score) == (Outcome.WRONG, 0.0)
    assert judge("is 7", chain, partial=True).score == 0.25
    assert judge("is 7", chain, threshold=0.25).correct


def test_the_answer_is_read_from_tag_or_box_and_from_the_text_when_asked() -> None:
    chain = problem("chain_sum", "7")
    assert gym.reasoning_gym("so \\boxed{7}", chain).correct
    assert gym.reasoning_gym("<think>8</think>7", chain).outcome is Outcome.UNPARSEABLE
    assert gym.reasoning_gym("<think>8</think>7", chain, whole=True).correct
    assert gym.reasoning_gym("<think>7", chain).outcome is Outcome.UNPARSEABLE


CODE = [
    "__import__('os').mkdir('{mark}')",
    "open('{mark}','w')",
    "[open('{mark}','w')]",
    "(lambda: open('{mark}','w'))()",
    "x.__class__.__base__.__subclasses__()",
    "Symbol('x').__class__",
    "[c for c in open('{mark}','w')]",
    'f\'{{open("{mark}","w")}}\'',
    "print",
    "exit()",
]


@pytest.mark.parametrize("task", sorted(set(gym.GUARDS) - {"bitwise_arithmetic", "number_sorting"}))
@pytest.mark.parametrize("code", CODE)
def test_code_in_an_answer_is_not_run(task: str, code: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    entry = problem(task, "True", numbers=[1, 2], target=3, variable="x", integrand="x", valid_answers=["_ Q\nQ _"])
    verdict = judge(code.format(mark=mark), entry)
    assert verdict.outcome is Outcome.WRONG
    assert not mark.exists()


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("countdown", "9**9**9"),
        ("countdown", "9999999999999"),
        ("puzzle24", "factorial(9)"),
        ("simple_integration", "9**9**9"),
        ("simple_integration", "x**999"),
        ("simple_integration", "x**(9**9)"),
        ("simple_integration", "(x**99)**(99*99)"),
        ("simple_integration", "x!"),
        ("intermediate_integration", "Integral(x, x)"),
        ("intermediate_integration", "gamma(9)"),
        ("polynomial_multiplication", "x" + "*x" * 400),
    ],
)
def test_costly_or_unknown_forms_are_refused(task: str, answer: str) -> None:
    entry = problem(task, "1", numbers=[9, 9], target=3, variable="x", integrand="x")
    assert judge(answer, entry).outcome is Outcome.WRONG


@pytest.mark.parametrize("answer", ["1e999999999", "9" * 30_000])
def test_numbers_too_large_to_hold_are_refused(answer: str) -> None:
    assert judge(answer, problem("coin_flip", "0.5")).outcome is Outcome.UNPARSEABLE


def test_an_expression_may_have_functions_and_small_powers() -> None:
    entry = problem("intermediate_integration", "", variable="x", integrand="exp(x)*sin(x) + x**(-2) + sqrt(x)")
    right = "exp(x)*(sin(x) - cos(x))/2 - x**(-1) + 2*x**(3/2)/3 + C"
    assert judge(right, entry).correct
    assert judge("exp(x)*(sin(x) - cos(x))/2", entry).outcome is Outcome.WRONG


def test_countdown_and_puzzle24_take_any_expression_with_the_given_numbers() -> None:
    countdown = problem("countdown", "", numbers=[6, 61, 94, 4], target=309)
    assert judge("4*94 - (61 + 6)", countdown).correct
    assert judge("309", countdown).outcome is Outcome.WRONG
    puzzle = problem("puzzle24", "", numbers=[8, 5, 10, 6])
    assert judge("(8 - 5)*10 - 6", puzzle).correct
    assert judge("6*4*1*1", puzzle).outcome is Outcome.WRONG  # by the task's own scorer it solves every puzzle


def test_constant_answers_that_the_scorers_pay_for_are_wrong() -> None:
    assert judge("0", problem("coin_flip", "0.234375")).outcome is Outcome.WRONG
    assert judge("15/64", problem("coin_flip", "0.234375")).correct
    halting = problem("game_of_life_halting", "False")
    assert judge("anything", halting).outcome is Outcome.WRONG
    assert judge("True", halting).outcome is Outcome.WRONG
    assert judge("false", halting).correct


def test_a_list_in_place_of_a_matrix_is_read_as_a_literal() -> None:
    matrix = problem("binary_matrix", "0 1\n1 0")
    assert judge("0 1\n1 0", matrix).correct
    assert judge("[[0, 1], [1, 0]]", matrix, partial=True).score == 0.1


def test_an_answer_that_a_scorer_fails_on_is_unparseable_but_a_broken_entry_is_not() -> None:
    factors = problem("prime_factorization", "2 × 3")
    assert judge("[]", factors).outcome is Outcome.UNPARSEABLE
    with pytest.raises(ValueError, match="invalid literal"):
        judge("x", problem("prime_factorization", "broken"))


def test_an_unknown_task_or_missing_entry_is_our_error() -> None:
    assert judge("7", problem("no_such_task", "7")).outcome is Outcome.ERROR
    assert judge("7", Problem(id="1", prompt="?")).outcome is Outcome.ERROR


def test_every_task_that_evaluates_text_is_guarded() -> None:
    from reasoning_gym.factory import DATASETS

    evaluating = {name for name, (dataset, _) in DATASETS.items() if gym.evaluating_calls(dataset)}
    assert evaluating <= set(gym.GUARDS)
    assert {"countdown", "n_queens", "simple_integration"} <= evaluating  # the search finds what it looks for


def test_a_task_without_a_guard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(gym.GUARDS, "spiral_matrix")
    gym._scorer.cache_clear()
    verdict = judge("open('x')", problem("spiral_matrix", "1 2"))
    assert verdict.outcome is Outcome.ERROR
    assert "hands the model's text to eval" in verdict.reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the ARC tasks leave files open
def test_every_task_accepts_its_own_answer() -> None:
    import reasoning_gym
    from reasoning_gym.factory import DATASETS

    refused = []
    for task in sorted(DATASETS.keys() - {"composite", "knight_swap"}):  # composite: of others; knight_swap: minutes
        entries = reasoning_gym.create_dataset(task, seed=3, size=3)
        for index in range(3):
            entry = entries[index]
            of = Problem(id="1", prompt=entry["question"], data={"reasoning_gym": task, "entry": entry})
            if (
                entry["answer"] is None
            ):  # no single gold: boxnet, graph_color, propositional_logic, rubiks_cube, rush_hour
                continue
            if not judge(str(entry["answer"]), of).correct:
                refused.append((task, entry["answer"]))
    # An integral that sympy could not do is its own gold, and is refused from anybody.
    assert all("Integral(" in answer for _, answer in refused), refused
