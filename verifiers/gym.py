"""`reasoning_gym`: any task of the reasoning-gym package, by the task's own scorer, with a guard before those scorers
that evaluate what the model wrote.

Nine scorers of reasoning-gym 0.1.25 hand the answer to `eval` or to sympy's `parse_expr`, which is `eval`. Five tasks
take an arithmetic or algebraic expression: it must pass a grammar of numbers, single letters, a few functions and small
exponents. Four take a Python list in place of a matrix or a string: it must be a literal. A later version's scorers are
searched for such calls when a task is first used, and one that has them and no guard here is refused.

Four scorers pay for answers that are not right, found by giving constant answers to every task; closed here:
game_of_life_halting takes any text (it compares truth values of strings), coin_flip takes "0" (any prefix of the gold's
digits), puzzle24 takes 6*4*1*1 (it does not look at which numbers were given), and the integration tasks take the
integral written down unevaluated.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.tags import final_answer

_MAX_ANSWER_CHARS = 20_000
_MAX_EXPRESSION_CHARS = 500
_EVALUATORS = frozenset({"eval", "exec", "compile", "parse_expr", "sympify", "S", "__import__"})
# A number that is short to write and long to hold: Fraction("1e999999999") has a thousand million digits.
_HUGE_NUMBER = re.compile(r"\d[eE][+-]?\d{4}")
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?|\.\d+)|([A-Za-z]+)|(\*\*|[-+*/()]))")
_FUNCTIONS = frozenset({"sin", "cos", "tan", "exp", "log", "sqrt", "sinh", "cosh", "tanh", "asin", "acos", "atan"})
_CONSTANTS = frozenset({"pi", "E", "C"})
_SMALL_POWER = re.compile(
    r"\s*(?:-?\s*\d{1,2}(?![\d.])|\(\s*-?\s*\d{1,2}\s*(?:/\s*\d{1,2}\s*)?\)|[a-zA-Z](?![a-zA-Z]))"
)


@register(
    "reasoning_gym",
    preload=("reasoning_gym",),
    example=Sample(
        completion="<think>4 + 3 is 7.</think> <answer>7</answer>",
        answer="7",
        problem=Problem(
            id="1",
            prompt="4 + 3 =",
            answer="7",
            data={"reasoning_gym": "chain_sum", "entry": {"question": "4 + 3 =", "answer": "7", "metadata": {}}},
        ),
    ),
)
def reasoning_gym(
    completion: str,
    problem: Problem,
    finish_reason: FinishReason = "stop",
    *,
    threshold: float = 1.0,
    partial: bool = False,
    whole: bool = False,
) -> Verdict:
    """Correct when the task's own scorer gives the answer at least `threshold` (of 1).

    problem.data holds `reasoning_gym`, the task's name, and `entry`, as the package made it. The answer is read from
    the answer tag, else from the last box; whole: else it is the text after the thinking, if that was not cut off.
    partial: a lower score of the scorer counts as the verdict's score; else 0, since many scorers pay 0.01 to 0.5 for
    an attempt.
    What is equal is the task's to say, and loose in places: gsm_symbolic takes the first number of the answer, so that
    the tag or box should hold the answer alone. An answer that the scorer fails on is unparseable.
    """
    task, entry = problem.data.get("reasoning_gym"), problem.data.get("entry")
    if not isinstance(task, str) or not isinstance(entry, Mapping):
        return Verdict(Outcome.ERROR, reason="the problem's data has no `reasoning_gym` task and `entry`")
    cut = finish_reason == "length"
    answer = final_answer(completion, cut=cut)
    if answer is None and whole and not cut and "<answer>" not in completion:
        answer = completion.rpartition("</think>")[2].strip() or None
    if answer is None:
        return Verdict(Outcome.UNPARSEABLE, reason="no answer tag and no box" if not whole else "no answer")
    shown = answer[:1000]
    if len(answer) > _MAX_ANSWER_CHARS or _HUGE_NUMBER.search(answer):
        return Verdict(Outcome.UNPARSEABLE, reason="refused for its length or the size of a number", extracted=shown)
    refusal = GUARDS[task](answer, entry) if task in GUARDS else None
    if refusal is not None:
        return Verdict(Outcome.WRONG, reason=f"{task}: {refusal}", extracted=shown)
    try:
        scorer = _scorer(task)
    except UnguardedTaskError as error:
        return Verdict(Outcome.ERROR, reason=str(error))
    try:
        score = min(max(float(scorer(answer, dict(entry))), 0.0), 1.0)
    except Exception as error:  # noqa: BLE001  scorers raise what they like on answers they did not expect
        # On its own gold it must not fail: else the entry or the package is at fault, and that is ours to see.
        if entry.get("answer") is not None:
            scorer(str(entry["answer"]), dict(entry))
        return Verdict(Outcome.UNPARSEABLE, reason=f"{task} cannot read it: {error!r:.200}", extracted=shown)
    reason = f"{task} scores {score:g}, threshold {threshold:g}"
    if score >= threshold:
        return Verdict(Outcome.CORRECT, score=score if partial else 1.0, reason=reason, extracted=shown)
    return Verdict(Outcome.WRONG, score=score if partial else 0.0, reason=reason, extracted=shown)


class UnguardedTaskError(Exception):
    """A task that is unknown, or whose scorer evaluates the model's text with no guard of ours before it."""


@functools.cache
def _scorer(task: str) -> Callable[[str, dict[str, Any]], float]:
    """`score_answer` of the task, from a dataset object made once a worker with the task's default settings. Raises
    UnguardedTaskError."""
    from reasoning_gym.factory import DATASETS, create_dataset

    if task not in DATASETS:
        raise UnguardedTaskError(f"reasoning-gym has no task {task!r}")
    calls = evaluating_calls(DATASETS[task][0])
    if calls and task not in GUARDS:
        raise UnguardedTaskError(
            f"reasoning-gym task {task!r} hands the model's text to {', '.join(sorted(calls))}, and has no guard in "
            "verifiers/gym.py: it is not scored"
        )
    score: Callable[[str, dict[str, Any]], float] = create_dataset(task).score_answer
    return score


def evaluating_calls(dataset: type) -> set[str]:
    """Names of functions that evaluate text which `dataset.score_answer`, or a method or function of the same module
    that it calls, calls."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = ["score_answer"]
    module = inspect.getmodule(dataset)
    while waiting:
        name = waiting.pop()
        function = getattr(dataset, name, None) or getattr(module, name, None)
        if name in seen or not (inspect.isfunction(function) or inspect.ismethod(function)):
            continue
        seen.add(name)
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                waiting.append(called)
                if called in _EVALUATORS:
                    found.add(called)
    return found


def _arithmetic(answer: str, entry: Mapping[str, Any]) -> str | None:
    """Why `answer` is no sum, difference, product or quotient of whole numbers; None where it is one."""
    if len(answer) > _MAX_EXPRESSION_CHARS:
        return "the expression is too long"
    if not re.fullmatch(r"(?:\d{1,9}(?![\d.])|[-+*/()\s])+", answer) or "**" in answer or "//" in answer:
        return "not an expression of whole numbers, + - * / and brackets"
    return None


def _puzzle24(answer: str, entry: Mapping[str, Any]) -> str | None:
    """As `_arithmetic`, and with the puzzle's own numbers, which the scorer does not look at: by it, 6*4*1*1 solves
    every puzzle."""
    used = sorted(int(number) for number in re.findall(r"\d+", answer[:_MAX_EXPRESSION_CHARS]))
    given = sorted(entry["metadata"]["numbers"])
    return _arithmetic(answer, entry) or (None if used == given else f"uses {used}, not {given}")


def _algebra(answer: str, entry: Mapping[str, Any]) -> str | None:
    """Why `answer` is no expression in single letters, numbers, a few functions and small powers; None where it is one.

    A power is a whole number or a fraction of two digits, or one letter, and never has a power itself.
    """
    if len(answer) > _MAX_EXPRESSION_CHARS:
        return "the expression is too long"
    position, after_power = 0, False
    answer = answer.rstrip()
    while position < len(answer):
        token = _TOKEN.match(answer, position)
        if token is None:
            return f"{answer[position : position + 10]!r} has no place in an expression"
        _, name, operator = token.groups()
        position = token.end()
        if name is not None and len(name) > 1 and name not in _FUNCTIONS and name not in _CONSTANTS:
            return f"{name[:20]!r} is no variable and no known function"
        if operator == "**":
            power = _SMALL_POWER.match(answer, position)
            if after_power or power is None:
                return "a power that is not a small number"
            position = power.end()
        after_power = operator == "**"
    return None


def _literal(answer: str, entry: Mapping[str, Any]) -> str | None:
    """Why `answer` may not be evaluated; None where it is a literal, or plain text that cannot be a call."""
    try:
        value = ast.literal_eval(answer.strip())
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        # Digits, letters and blanks, as the tasks ask for, name nothing that evaluating them could call.
        plain = re.fullmatch(r"[\w\s.,-]*", answer) is not None and "__" not in answer and "." not in answer
        return None if plain else "neither plain text nor a list"
    return None if isinstance(value, list | str | int | float) else f"a {type(value).__name__}, not a list"


def _truth(answer: str, entry: Mapping[str, Any]) -> str | None:
    gold = str(entry["answer"])
    return None if answer.strip().casefold() == gold.casefold() else f"not {gold}"


def _probability(answer: str, entry: Mapping[str, Any]) -> str | None:
    """Why `answer` is not the gold's value to one part in a thousand; None where it is."""
    try:
        value, gold = Fraction(answer.replace(",", "").strip()), Fraction(str(entry["answer"]))
    except (ValueError, ZeroDivisionError):
        return "not a number or a fraction"
    return None if abs(value - gold) * 1000 <= abs(gold) else f"{value} is not {gold}"


def _entry_only(answer: str, entry: Mapping[str, Any]) -> None:
    """No guard needed: the scorer evaluates the entry's own text, which is the package's, and never the answer."""
    return


GUARDS: dict[str, Callable[[str, Mapping[str, Any]], str | None]] = {
    "puzzle24": _puzzle24,
    "countdown": _arithmetic,
    "simple_integration": _algebra,
    "intermediate_integration": _algebra,
    "polynomial_multiplication": _algebra,
    "string_insertion": _literal,
    "spiral_matrix": _literal,
    "binary_matrix": _literal,
    "n_queens": _literal,
    "bitwise_arithmetic": _entry_only,
    "number_sorting": _entry_only,
    "game_of_life_halting": _truth,
    "coin_flip": _probability,
}
"""By task: why an answer may not reach the task's scorer, or None."""
