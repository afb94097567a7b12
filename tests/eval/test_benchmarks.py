from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval import protocols
from r1zero.eval.benchmarks import BENCHMARKS, load
from r1zero.verifiers import Outcome, Sample, VerifierPool
from tests import SHARED

DATA = str(SHARED / "data")
needs_data = pytest.mark.skipif(not Path(DATA, "math").is_dir(), reason="no ../shared/data")
HANDED = [*["math500", "aime2024", "aime2025", "amc2023", "minerva", "olympiadbench", "gsm8k", "humaneval", "mbpp"]]
MATHS = [name for name in HANDED if BENCHMARKS[name].verifier.name == "math"]
CODE = {"humaneval": "HumanEval/", "mbpp": "mbpp-test-"}


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(deadline_seconds=30.0) as pool:
        yield pool


def boxed(answer: str) -> str:
    return f"<think>Let me see.</think> The answer is \\boxed{{{answer}}}."


# --- rows ---

HUB_ROWS: dict[str, tuple[dict[str, Any], Problem]] = {
    "math500": (
        {
            "problem": "Q?",
            "solution": "s",
            "answer": "\\frac{1}{2}",
            "subject": "Algebra",
            "level": 2,
            "unique_id": "test/algebra/1.json",
        },
        Problem(id="math500-0000", prompt="Q?", answer="\\frac{1}{2}", data={"level": "2", "subject": "Algebra"}),
    ),
    "aime2024": (
        {"id": 60, "problem": "Q?", "solution": "s", "answer": "025", "url": "u", "year": "2024"},
        Problem(id="aime2024-0000", prompt="Q?", answer="25"),
    ),
    "aime2025": (
        {"problem": "Q?", "answer": 70, "id": "0"},
        Problem(id="aime2025-0000", prompt="Q?", answer="70"),
    ),
    "amc2023": (
        {"id": 0, "question": "Q?", "answer": 27.0, "url": "u"},
        Problem(id="amc2023-0000", prompt="Q?", answer="27"),
    ),
    "minerva": (
        {"question": "Q?", "answer": "so \\boxed{1.6} arcsec", "type": "Astronomy"},
        Problem(id="minerva-0000", prompt="Q?", answer="1.6", data={"subject": "Astronomy"}),
    ),
    "olympiadbench": (
        {"question": "Q?", "final_answer": ["$2$", "$-1$"], "subfield": "Algebra", "unit": None},
        Problem(id="olympiadbench-0000", prompt="Q?", answer="2, -1", data={"subject": "Algebra"}),
    ),
    "gsm8k": (
        {"question": "Q?", "answer": "500 * 2 = <<500*2=1000>>1,000\n#### 1,000"},
        Problem(id="gsm8k-0000", prompt="Q?", answer="1000"),
    ),
}


@pytest.mark.parametrize("name", HUB_ROWS)
def test_a_row_in_the_hubs_fields_is_the_problem_it_is(name: str) -> None:
    row, expected = HUB_ROWS[name]
    problem = BENCHMARKS[name].row(row)
    assert problem is not None
    assert (problem.prompt, problem.answer, problem.data) == (expected.prompt, expected.answer, expected.data)


def test_code_rows_of_the_hub_and_of_a_local_file_are_the_same_problem() -> None:
    prompt = "import math\n\ndef f(x):\n    '''Twice x.'''\n"
    hub = {
        "task_id": "HumanEval/0",
        "prompt": prompt,
        "test": "\ndef check(c):\n    assert c(1) == 2\n",
        "entry_point": "f",
    }
    local = {"id": "HumanEval/0", "prompt": prompt, "entry_point": "f"}
    local["tests"] = "def check(c):\n    assert c(1) == 2\n\n\ncheck(f)\n"
    assert BENCHMARKS["humaneval"].row(hub) == BENCHMARKS["humaneval"].row(local)
    tests = ["assert g(1) == 2", "assert g(2) == 3"]
    hub = {
        "task_id": 11,
        "text": "Add one.",
        "code": "",
        "test_list": tests,
        "test_setup_code": "",
        "challenge_test_list": [],
    }
    local = {"id": "mbpp-test-11", "prompt": "Add one.", "tests": "\n".join(tests), "entry_point": "g"}
    problem = BENCHMARKS["mbpp"].row(hub)
    assert problem == BENCHMARKS["mbpp"].row(local)
    assert problem is not None
    assert problem.data["entry_point"] == "g"
    assert BENCHMARKS["mbpp"].row({**hub, "task_id": 601}) is None  # the train split


@needs_data
def test_the_hubs_rows_of_math500_come_out_as_the_local_ones(tmp_path: Path) -> None:
    """The same rows under the hub's names and types, in a parquet file: same problems, same fingerprint."""
    import pyarrow
    import pyarrow.parquet

    lines = Path(DATA, "math", "math500.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    as_hub = [
        {
            "problem": row["problem"],
            "solution": row["solution"],
            "answer": row["answer"],
            "subject": row["subject"],
            "level": int(row["level"]),
            "unique_id": row["source"].removeprefix("MATH "),
        }
        for row in rows
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(as_hub), tmp_path / "MATH-500.parquet")
    hub, local = load("math500", data_dir=str(tmp_path)), load("math500", data_dir=DATA)
    assert hub.problems == local.problems
    assert hub.fingerprint == local.fingerprint


@needs_data
def test_every_benchmark_has_its_published_number_of_problems() -> None:
    for name in HANDED:
        entry, loaded = BENCHMARKS[name], load(name, data_dir=DATA)
        assert len(loaded.problems) == entry.num_problems
        assert len({p.id for p in loaded.problems}) == entry.num_problems
        assert [p.id for p in load(name, data_dir=DATA, limit=3).problems] == [p.id for p in loaded.problems[:3]]


# --- grading: gold against gold, and against another's gold ---


@needs_data
@pytest.mark.parametrize("name", MATHS)
def test_gold_answers_score_100_percent_and_those_of_the_next_problem_near_0(name: str, pool: VerifierPool) -> None:
    loaded = load(name, data_dir=DATA)
    problems = loaded.problems
    own = pool.verify(
        (loaded.verifier, Sample(completion=boxed(p.answer), answer=p.answer, problem=p)) for p in problems
    )
    assert [(p.id, v.reason) for p, v in zip(problems, own, strict=True) if not v.correct] == []
    others = [*problems[1:], problems[0]]
    pairs = list(zip(problems, others, strict=True))
    verdicts = pool.verify(
        (loaded.verifier, Sample(completion=boxed(o.answer), answer=p.answer, problem=p)) for p, o in pairs
    )
    # Two problems in a row may have the same gold; beyond that, only MATH-500's "x=5" before "5" is equal by policy.
    found = [(p.answer, o.answer) for (p, o), v in zip(pairs, verdicts, strict=True) if v.correct]
    chance = [(a, b) for a, b in found if a != b]
    assert chance in ([], [("5", "x=5")])
    assert len(found) <= 0.1 * len(problems)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", CODE)
def test_reference_programs_pass_and_those_of_the_next_problem_do_not(name: str, pool: VerifierPool) -> None:
    loaded = load(name, data_dir=DATA)
    lines = Path(DATA, "code", f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["id"].startswith(CODE[name])]
    golds = [(row["prompt"] if name == "humaneval" else "") + row["canonical_solution"] for row in rows]
    jobs = [
        (loaded.verifier, Sample(completion=f"```python\n{gold}\n```", problem=problem))
        for problem, gold in zip(loaded.problems, golds, strict=True)
    ]
    if pool.verify(jobs[:1])[0].outcome is Outcome.ERROR:
        pytest.skip("no sandbox here")
    verdicts = pool.verify(jobs)
    assert [(p.id, v.reason) for p, v in zip(loaded.problems, verdicts, strict=True) if not v.correct] == []
    step = 5  # a fifth of the problems says as much
    wrong = pool.verify(
        (loaded.verifier, Sample(completion=f"```python\n{golds[i - 1]}\n```", problem=loaded.problems[i]))
        for i in range(0, len(golds), step)
    )
    assert [loaded.problems[i * step].id for i, v in enumerate(wrong) if v.correct] == []


# --- other sources, and what can be wrong ---


def test_a_file_of_rows_is_a_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"problem": "1+1", "answer": "2", "level": 3}\n'))
    loaded = load(str(path))
    assert (loaded.name, loaded.verifier.name, loaded.problems[0].answer) == ("mine", "math", "2")


def test_generated_sources_are_benchmarks() -> None:
    loaded = load("tiny:arithmetic", size=20, seed=1)
    assert (loaded.name, loaded.verifier.name, len(loaded.problems)) == ("tiny-arithmetic", "answer", 20)
    pytest.importorskip("reasoning_gym")
    gym = load("reasoning_gym:chain_sum", size=5)
    assert (gym.verifier.name, len(gym.problems)) == ("reasoning_gym", 5)
    assert gym.fingerprint != load("reasoning_gym:chain_sum", size=5, seed=1).fingerprint


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"problem": "Q?"}] * 30, "aime2024.jsonl:1: no field 'final_answer'"),
        ([{"problem": "Q?", "answer": "1"}] * 29, "has 29 problems and AIME 2024 has 30"),
        ([{"problem": " ", "answer": "1"}] * 30, "an empty question or gold answer"),
        ([{"question": "Q?", "answer": ""}] * 30, "an empty question or gold answer"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_line(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    (tmp_path / "aime2024.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message):
        load("aime24", data_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("aime2024", {"problem": "Q?", "answer": None}),
        ("aime2024", {"problem": None, "answer": "1"}),
        ("gsm8k", {"question": "Q?", "answer": None}),
        ("humaneval", {"task_id": "HumanEval/0", "prompt": None, "tests": "x", "entry_point": "f"}),
        ("mbpp", {"id": "mbpp-test-11", "prompt": "Q?", "tests": "assert ("}),
        ("mbpp", {"id": "mbpp-test-11", "prompt": "Q?", "tests": "x = 1"}),
        ("aime2024", {"problem": "\ud800", "answer": "1"}),
    ],
)
def test_a_row_that_says_nothing_is_refused_and_no_gold_none(name: str, row: dict[str, Any], tmp_path: Path) -> None:
    stem = BENCHMARKS[name].files[0]
    (tmp_path / f"{stem}.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match=rf"{stem}.jsonl:1: (not a row of|half of a UTF-16 pair)"):
        load(name, data_dir=str(tmp_path))


def test_a_long_gold_keeps_its_digits() -> None:
    problem = BENCHMARKS["aime2024"].row({"problem": "Q?", "answer": "012345678901234567890.0"})
    assert problem is not None
    assert problem.answer == "12345678901234567890"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"problem": "Q?", "answer": "1"}, {"problem": "P?", "tests": "assert 1"}], "a file per kind"),
        ([{"problem": "Q?", "tests": None}], "tests of 'row-0' are no text"),
    ],
)
def test_a_file_that_no_one_verifier_can_grade_is_refused(
    rows: list[dict[str, Any]], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message):
        load(str(path))


def test_files_are_told_apart_by_their_whole_names(tmp_path: Path) -> None:
    names = ["sums.v1.jsonl", "sums.v2.jsonl", ".sums.json"]
    for name in names:
        row = {"problem": "1+1", "answer": "2"}
        (tmp_path / name).write_text(json.dumps([row] if name.endswith(".json") else row))
    assert [load(str(tmp_path / name)).name for name in names] == ["sums.v1", "sums.v2", "sums"]


def test_a_missing_file_is_refused_with_the_names_looked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no copy of MATH-500: looked for math500\{\.json"):
        load("math500", data_dir=str(tmp_path))


def test_protocols_are_as_published() -> None:
    r1 = protocols.get("r1")
    assert (r1.temperature, r1.top_p, r1.max_tokens) == (0.6, 0.95, 32_768)
    assert {name: r1.k.get(name, r1.k[BENCHMARKS[name].kind]) for name in ("aime2024", "math500")} == {
        "aime2024": 64,
        "math500": 16,
    }
    with pytest.raises(UserError, match="did you mean 'oat-greedy'"):
        protocols.get("oat-greed")
