from pathlib import Path

import pytest

from r1zero.config import DataConfig
from r1zero.data.datasets import load_problems
from r1zero.data.memory import GivenProblem, write_problems
from r1zero.data.records import Problem
from r1zero.errors import UserError


def test_every_way_to_give_a_problem_is_read_back_the_same(tmp_path: Path) -> None:
    given: list[GivenProblem] = [
        Problem(id="a", prompt="1 + 1", answer="2", data={"level": 3}),
        ("2 + 2", "4"),
        {"prompt": "3 + 3", "answer": 6, "tests": "assert x"},
    ]
    write_problems(given, tmp_path / "new" / "p.jsonl")
    found = {p.id: p for p in load_problems(DataConfig(source=str(tmp_path / "new" / "p.jsonl")))}
    assert {name: (p.prompt, p.answer, dict(p.data)) for name, p in found.items()} == {
        "a": ("1 + 1", "2", {"level": 3}),
        "problem-1": ("2 + 2", "4", {}),
        "problem-2": ("3 + 3", "6", {"tests": "assert x"}),
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "problems is empty"),
        (5, "problems is a int: give a list"),
        ("1 + 1", "problems is a str: give a list"),
        (["just text"], r"problems\[0\] is 'just text': give a Problem"),
        ([("1", "2"), {"problem": "x"}], r"problems\[1\]"),
        ([{"problem": "x", "answer": object()}], "cannot be written as JSON"),
    ],
)
def test_what_is_no_problem_is_named(given: list[GivenProblem], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        write_problems(given, tmp_path / "p.jsonl")
    assert not (tmp_path / "p.jsonl").exists()
