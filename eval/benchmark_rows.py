"""Rows of the published benchmarks, one function a shape: its fields in, the `Problem` out (id left empty).

A row in the hub's fields and one in ours (`problem`, `answer`, …) give the same problem. They raise KeyError for a
missing field, and TypeError or ValueError for one of another kind.
"""

from __future__ import annotations

import ast
import builtins
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from r1zero.data.datasets import last_boxed
from r1zero.data.records import Problem

Fields = Mapping[str, Any]


def math_row(row: Fields) -> Problem:
    """A problem with a gold answer, in ours or the hubs' fields."""
    answer = row["answer"] if "answer" in row else row["final_answer"]
    if answer is None or isinstance(answer, bool | dict):
        raise TypeError(f"the answer is {answer!r}")
    if isinstance(answer, list):  # OlympiadBench: several golds of one row
        answer = ", ".join(part.strip().removeprefix("$").removesuffix("$") for part in answer)
    data = {}
    for key, names in {"level": ("level",), "subject": ("subject", "subfield", "type")}.items():
        found = next((row[name] for name in names if row.get(name) not in (None, "")), None)
        if found is not None:
            data[key] = str(found)
    return Problem(id="", prompt=_question(row), answer=str(answer).strip(), data=data)


def _question(row: Fields) -> str:
    question = row["problem"] if "problem" in row else row["question"]
    if not isinstance(question, str):
        raise TypeError(f"the question is {question!r}")
    return question


def whole_number_row(row: Fields) -> Problem:
    """A contest's gold is a whole number; hubs write it 27, "27", "27.0" or "027"."""
    problem = math_row(row)
    if not re.fullmatch(r"-?\d+(\.0+)?", problem.answer):
        return problem
    return Problem(id="", prompt=problem.prompt, answer=str(int(problem.answer.partition(".")[0])), data=problem.data)


def minerva_row(row: Fields) -> Problem:
    """The hub's copies keep the whole solution in `answer` or `solution`: the gold is its last box."""
    problem = math_row({**row, "answer": row.get("answer") or row["solution"]})
    return Problem(id="", prompt=problem.prompt, answer=last_boxed(problem.answer) or problem.answer, data=problem.data)


def gsm8k_row(row: Fields) -> Problem:
    """The hub's `answer` is the solution with the gold after `####`; commas in numbers are dropped."""
    problem = math_row(row)
    gold = problem.answer.rpartition("####")[2].strip().replace(",", "")
    return Problem(id="", prompt=problem.prompt, answer=gold, data={})


def humaneval_row(row: Fields) -> Problem:
    """The signature and docstring are the question, from which the verifier also takes the imports and helpers that
    stand before the function."""
    tests = row["tests"] if "tests" in row else f"{row['test']}\n\ncheck({row['entry_point']})\n"
    question = (
        "Complete this Python function. Answer with the whole function, its imports included, in one ```python block."
        f"\n\n```python\n{row['prompt'].strip()}\n```"
    )
    return Problem(id="", prompt=question, data={"tests": _blank_lines(tests), "entry_point": row["entry_point"]})


def mbpp_row(row: Fields) -> Problem | None:
    """The 500 problems of the test split (task ids 11 to 510). The tests are shown, as in arXiv 2108.07732: without
    them the function's name cannot be known."""
    number = int(row["task_id"] if "task_id" in row else str(row["id"]).rpartition("-")[2])
    if not 11 <= number <= 510:
        return None
    if "tests" in row:
        tests = str(row["tests"])
    else:
        tests = "\n".join([row["test_setup_code"], *row["test_list"]] if row["test_setup_code"] else row["test_list"])
    tests = tests.replace("\r\n", "\n").strip() + "\n"
    text = str(row["prompt"] if "prompt" in row else row["text"]).strip()
    question = f"{text}\nYour Python code, in one ```python block, must pass these tests:\n\n```python\n{tests}```"
    return Problem(id="", prompt=question, data={"tests": tests, "entry_point": _first_called(tests)})


def _first_called(tests: str) -> str:
    """The function under test: the innermost name that the first assert calls with the test's values, which is not a
    built-in wrapped around it (`assert set(f(x)) == ...`), unless only built-in names are called (MBPP 126 asks for a
    function `sum`)."""
    asserts = [node for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Assert)]
    calls = [node for first in asserts[:1] for node in ast.walk(first) if isinstance(node, ast.Call)]
    called = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    if not called:
        raise ValueError("the first assert of the tests calls no function")
    return next((name for name in called if not hasattr(builtins, name)), called[0])


def _blank_lines(code: str) -> str:
    """Copies differ in the blank lines around the tests."""
    return code.strip("\n") + "\n"


def gpqa_row(row: Fields) -> Problem:
    """Four options in an order that depends on the question alone: in the file the right one stands first."""
    question = str(row["Question"]).strip()
    right = str(row["Correct Answer"]).strip()
    options = [right, *(str(row[f"Incorrect Answer {i}"]).strip() for i in (1, 2, 3))]
    random.Random(question).shuffle(options)
    return _choice(question, options, options.index(right), row.get("High-level domain"))


def mmlu_pro_row(row: Fields) -> Problem:
    """Up to ten options; questions with fewer have them filled up with "N/A" in some copies."""
    options = [str(option).strip() for option in row["options"] if str(option).strip() != "N/A"]
    index = int(row["answer_index"])
    if not 0 <= index < len(options) or str(row["answer"]) != chr(ord("A") + index):
        raise ValueError(f"answer {row['answer']!r} and answer_index {index} name no one option of {len(options)}")
    return _choice(str(row["question"]).strip(), options, index, row.get("category"))


def _choice(question: str, options: Sequence[str], right: int, subject: object) -> Problem:
    lettered = [f"{chr(ord('A') + i)}) {option}" for i, option in enumerate(options)]
    prompt = "\n".join([question, "", *lettered, "", "Answer with the letter of the right option."])
    data: dict[str, Any] = {"choices": list(options)}
    if subject not in (None, ""):
        data["subject"] = str(subject)
    return Problem(id="", prompt=prompt, answer=chr(ord("A") + right), data=data)


def ifeval_row(row: Fields) -> Problem:
    """A prompt whose instructions are checked by rule; kwargs that a copy fills up with null are left out."""
    kwargs = [{k: v for k, v in (one or {}).items() if v is not None} for one in row["kwargs"]]
    names = list(row["instruction_id_list"])
    if not names or len(names) != len(kwargs):
        raise ValueError(f"{len(names)} instructions and {len(kwargs)} kwargs")
    return Problem(id="", prompt=str(row["prompt"]), data={"instruction_id_list": names, "kwargs": kwargs})


def livecodebench_row(row: Fields) -> Problem:
    """The question, with the code to start from where a function is asked for; the tests stay as the row has them."""
    starter = str(row["starter_code"]).strip()
    asked = (
        f"Write Python that begins so, in one ```python block:\n\n```python\n{starter}\n```"
        if starter
        else "Write a Python program, in one ```python block, that reads the input from stdin and prints the output."
    )
    names = ("public_test_cases", "private_test_cases", "metadata", "starter_code", "contest_date", "platform")
    data = {name: row[name] for name in names if name in row}
    if not data.get("public_test_cases") and not data.get("private_test_cases"):
        raise KeyError("public_test_cases")
    data["contest_date"] = str(data["contest_date"])[:10]
    data["level"] = str(row.get("difficulty", ""))
    return Problem(id="", prompt=f"{str(row['question_content']).strip()}\n\n{asked}", data=data)
