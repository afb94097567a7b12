from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from r1zero.config import DataConfig
from r1zero.data import datasets
from r1zero.data.datasets import fingerprint, load_problems, overlap
from r1zero.data.miniature import arithmetic
from r1zero.data.records import Problem
from r1zero.errors import UserError
from tests import SHARED

ROWS = [
    {"id": "a", "problem": "1+1?", "answer": "2", "level": 1, "subject": "Algebra"},
    {"id": "b", "problem": "2+2?", "answer": 4, "level": 3},
    {"id": "c", "problem": "3+3?", "answer": "6", "level": "3", "solution": "It is \\boxed{6}."},
]


def config(source: Path | str, **settings: Any) -> DataConfig:
    return DataConfig(source=str(source), **settings)


def jsonl(path: Path, rows: list[Any] = ROWS) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def by_id(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.id)


def test_all_file_kinds_give_the_same_problems(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    plain = jsonl(tmp_path / "p.jsonl")
    (tmp_path / "p.json").write_text(json.dumps(ROWS), encoding="utf-8")
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "p.json.gz").write_bytes(gzip.compress((tmp_path / "p.json").read_bytes()))
    same_types = [{**row, "answer": str(row["answer"]), "level": str(row["level"])} for row in ROWS]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(same_types), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.json", "p.jsonl.gz", "p.json.gz", "p.parquet"):
        problems = by_id(load_problems(config(tmp_path / name)))
        assert [(p.id, p.prompt, p.answer) for p in problems] == [
            ("a", "1+1?", "2"),
            ("b", "2+2?", "4"),
            ("c", "3+3?", "6"),
        ], name


def test_other_fields_are_the_verifiers_data(tmp_path: Path) -> None:
    problems = by_id(load_problems(config(jsonl(tmp_path / "p.jsonl"))))
    assert dict(problems[0].data) == {"level": 1, "subject": "Algebra"}
    assert dict(problems[2].data) == {"level": "3", "solution": "It is \\boxed{6}."}
    assert problems[0].source == str(tmp_path / "p.jsonl")


def test_a_code_problem_needs_no_answer(tmp_path: Path) -> None:
    row = {"task_id": "x/1", "prompt": "def f():", "tests": "assert f() == 1", "entry_point": "f"}
    (problem,) = load_problems(config(jsonl(tmp_path / "p.jsonl", [row]), prompt_field="prompt"))
    assert (problem.id, problem.answer) == ("x/1", "")
    assert dict(problem.data) == {"tests": "assert f() == 1", "entry_point": "f"}


def test_a_filter_takes_3_and_the_text_3_alike(tmp_path: Path) -> None:
    problems = load_problems(config(jsonl(tmp_path / "p.jsonl"), filter={"level": [3]}))
    assert {p.id for p in problems} == {"b", "c"}


def test_the_shuffle_is_the_seeds_and_the_limit_comes_after_it(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"problem": f"q{i}", "answer": "1"} for i in range(50)])
    first, again, other = (load_problems(config(path, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {p.prompt for p in first} == {p.prompt for p in other}
    assert load_problems(config(path, seed=1, limit=7)) == first[:7]


def test_rows_without_an_id_are_numbered_and_rows_that_share_one_told_apart(tmp_path: Path) -> None:
    rows = [{"problem": "q", "answer": "1"}, {"problem": "r", "answer": "1"}]
    assert {p.id for p in load_problems(config(jsonl(tmp_path / "p.jsonl", rows)))} == {"row-0", "row-1"}
    same = [{**row, "id": 7} for row in rows]
    assert {p.id for p in load_problems(config(jsonl(tmp_path / "q.jsonl", same)))} == {"7", "7#2"}


def test_gsm8ks_answer_after_its_mark_and_maths_boxed_answer_are_taken_from_the_solution(tmp_path: Path) -> None:
    rows = [{"problem": "q", "answer": "6 / 2 = <<6/2=3>>3\n#### 3"}]
    (problem,) = load_problems(config(jsonl(tmp_path / "g.jsonl", rows), options={"answer_after": "####"}))
    assert problem.answer == "3"
    rows = [{"problem": "q", "answer": r"First \boxed{1}, so \boxed{\frac{1}{2}}."}]
    (problem,) = load_problems(config(jsonl(tmp_path / "m.jsonl", rows), options={"answer_in": "boxed"}))
    assert problem.answer == r"\frac{1}{2}"


@pytest.mark.parametrize(
    ("text", "found"),
    [(r"\boxed{\{1,2\}}", r"\{1,2\}"), (r"\fbox{3}", "3"), (r"\boxed{1", None), ("none", None), (r"\boxed{}", "")],
)
def test_the_last_box_is_read_with_its_braces(text: str, found: str | None) -> None:
    assert datasets.last_boxed(text) == found


@pytest.mark.parametrize(
    ("content", "settings", "says"),
    [
        (b"", {}, "holds no rows"),
        (b"\n\n", {}, "holds no rows"),
        (b'{"problem": "q", "answer": "1"}\n{"problem": \n', {}, "p.jsonl:2: not JSON"),
        (b'{"problem": "q", "answer": "1"}\n\n{"problem": "q"}\n', {}, "p.jsonl:3: no field 'answer'"),
        (b'{"question": "q", "answer": "1"}\n', {}, "p.jsonl:1: no field 'problem' (it has answer, question)"),
        (b'{"problem": "  ", "answer": "1"}\n', {}, "p.jsonl:1: field 'problem' is empty"),
        (b'{"problem": "q", "answer": ""}\n', {}, "p.jsonl:1: field 'answer' is empty"),
        (b'{"problem": "q", "answer": null}\n', {}, "p.jsonl:1: field 'answer' is a NoneType"),
        (b'{"problem": "q", "answer": true}\n', {}, "p.jsonl:1: field 'answer' is a bool"),
        (b'{"problem": [{"role": "user"}], "answer": "1"}\n', {}, "p.jsonl:1: field 'problem' is a list"),
        (b'{"problem": "\\ud800", "answer": "1"}\n', {}, "p.jsonl:1: field 'problem' holds half"),
        (b"[1]\n", {}, "p.jsonl:1: a list, not an object"),
        (b'{"problem": "q", "answer": "1"}\n\xff\n', {}, "p.jsonl:2: not UTF-8"),
        (b'{"problem": "q", "answer": "1", "level": 1}\n', {"filter": {"level": [9]}}, "values there: '1'"),
        (b'{"problem": "q", "answer": "1"}\n', {"filter": {"level": [9]}}, "no row of"),
        (
            b'{"problem": "q", "answer": "1"}\n',
            {"options": {"answer_after": "####"}},
            "p.jsonl:1: field 'answer' has no",
        ),
        (b'{"problem": "q", "answer": "1"}\n', {"options": {"answer_in": "boxed"}}, "p.jsonl:1: field 'answer' has no"),
    ],
)
def test_bad_files_are_one_line_errors_that_say_where(
    tmp_path: Path, content: bytes, settings: dict[str, Any], says: str
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    with pytest.raises(UserError, match=re.escape(says)) as error:
        load_problems(config(path, **settings))
    assert "\n" not in str(error.value)


def test_a_json_file_names_the_line_of_a_mistake_and_the_item_that_lacks_a_field(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('[\n {"problem": "q", "answer": "1"},\n {"problem" "q"}\n]')
    with pytest.raises(UserError, match=r"p\.json:3: not JSON"):
        load_problems(config(path))
    path.write_text('[{"problem": "q", "answer": "1"}, {"problem": "q"}]')
    with pytest.raises(UserError, match=r"p\.json, item 2: no field 'answer'"):
        load_problems(config(path))
    path.write_text('{"data": []}')
    with pytest.raises(UserError, match="not a list"):
        load_problems(config(path))


@pytest.mark.parametrize("name", ["p.jsonl.gz", "p.parquet"])
def test_a_broken_archive_is_a_user_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b not so" if name.endswith("gz") else b"PAR1 not so")
    with pytest.raises(UserError, match=re.escape(name)):
        load_problems(config(path))


def test_a_missing_file_and_no_source_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_problems(config(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match=r"data\.source is empty"):
        load_problems(config(""))


def test_a_line_separator_inside_a_string_does_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"problem": "a\u2028b", "answer": "1"}\n', encoding="utf-8")
    assert load_problems(config(path))[0].prompt == "a\u2028b"


def test_a_hub_dataset_goes_through_hugging_faces_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets as hugging_face

    rows = hugging_face.Dataset.from_list([{"question": "1+1?", "answer": "2", "level": "Level 3"}])
    asked = []

    def load_dataset(*names: Any, split: str) -> Any:
        asked.append((*names, split))
        return rows

    monkeypatch.setattr(hugging_face, "load_dataset", load_dataset)
    wanted = config("owner/name", config="main", split="test", prompt_field="question", filter={"level": ["Level 3"]})
    (problem,) = load_problems(wanted)
    assert asked == [("owner/name", "main", "test")]
    assert (problem.prompt, problem.answer, problem.source) == ("1+1?", "2", "owner/name")


def test_a_hub_dataset_out_of_reach_is_a_user_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets as hugging_face

    def load_dataset(*names: Any, split: str) -> Any:
        raise ConnectionError("no route\nlong story")

    monkeypatch.setattr(hugging_face, "load_dataset", load_dataset)
    with pytest.raises(UserError, match=r"owner/name.*no route.*local file") as error:
        load_problems(config("owner/name"))
    assert "\n" not in str(error.value)


def test_the_fingerprint_changes_with_content_and_order_and_not_with_where_it_lies(tmp_path: Path) -> None:
    one = load_problems(config(jsonl(tmp_path / "one.jsonl")))
    two = load_problems(config(jsonl(tmp_path / "two.jsonl")))
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(one[::-1])
    changed = [{**ROWS[0], "answer": "3"}, *ROWS[1:]]
    assert fingerprint(one) != fingerprint(load_problems(config(jsonl(tmp_path / "c.jsonl", changed))))


def test_overlap_sees_through_spaces_and_case() -> None:
    train = [Problem(id="1", prompt="What is  1+1?\n")]
    assert overlap([Problem(id="9", prompt="what is 1+1?"), Problem(id="8", prompt="2+2?")], train) == ["what is 1+1?"]


# Generated sources


def gym(**settings: Any) -> list[Problem]:
    return load_problems(config("reasoning_gym:chain_sum", **{"size": 60, **settings}))


def test_a_reasoning_gym_task_gives_distinct_problems_that_its_own_scorer_takes() -> None:
    import reasoning_gym

    problems = gym(options={"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2})
    assert len({p.prompt for p in problems}) == 60
    problem = problems[0]
    assert problem.data["reasoning_gym"] == "chain_sum"
    entry = json.loads(json.dumps(problem.data["entry"]))
    assert entry["question"] == problem.prompt
    assert reasoning_gym.get_score_answer_fn("chain_sum")(problem.answer, entry) == 1.0


def test_no_question_of_the_test_split_is_in_the_train_split_whatever_the_seeds() -> None:
    options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    held_out = {p.prompt for p in gym(split="test", size=20, seed=1, options=options)}
    for seed in range(3):
        assert not held_out & {p.prompt for p in gym(split="train", size=80, seed=seed, options=options)}
    every = {p.prompt for p in gym(split="all", size=120, options=options)}
    assert held_out & every


def test_gym_mistakes_are_user_errors() -> None:
    with pytest.raises(UserError, match="did you mean 'chain_sum'"):
        load_problems(config("reasoning_gym:chain_sums"))
    with pytest.raises(UserError, match="options"):
        gym(options={"min_termz": 2})
    with pytest.raises(UserError, match="options"):
        gym(options={"min_terms": 5, "max_terms": 2})
    with pytest.raises(UserError, match="split"):
        gym(split="dev")
    with pytest.raises(UserError, match=r"data\.filter"):
        gym(filter={"level": [1]})
    one_digit = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(UserError, match=r"only \d+ distinct problems of the 1000"):
        gym(size=1000, options=one_digit)


def test_tiny_arithmetic_is_a_source_with_three_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    problems = load_problems(config("tiny:arithmetic", split="test", size=50, seed=3))
    assert len(problems) == 50
    for problem in problems:
        terms = [int(term) for term in problem.prompt.removesuffix("=").split("+")]
        assert problem.answer == str(sum(terms))
    with pytest.raises(UserError, match="'train'"):
        load_problems(config("tiny:arithmetic", split="trian"))
    with pytest.raises(UserError, match="tiny:arithmetic"):
        load_problems(config("tiny:arithmetics"))
    monkeypatch.setattr(arithmetic, "MAX_TERMS", 3)  # a small space, soon exhausted
    with pytest.raises(UserError, match="distinct"):
        load_problems(config("tiny:arithmetic", split="test", size=1000))


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside the repository")
@pytest.mark.parametrize(
    ("file", "rows", "settings"),
    [
        ("math/math500.jsonl", 500, {}),
        ("math/math_train.jsonl.gz", 7498, {}),
        ("math/gsm8k_test.jsonl", 1319, {}),
        ("math/olympiadbench_math_en.jsonl.gz", 675, {}),
        ("code/humaneval.jsonl", 164, {"prompt_field": "prompt"}),
        ("code/mbpp.jsonl", 974, {"prompt_field": "prompt"}),
    ],
)
def test_real_files_load_whole(file: str, rows: int, settings: dict[str, Any]) -> None:
    problems = load_problems(config(SHARED / "data" / file, **settings))
    assert len(problems) == len({p.id for p in problems}) == rows


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside the repository")
def test_the_boxed_answer_of_maths_solutions_is_the_files_gold() -> None:
    source = SHARED / "data/math/math500.jsonl"
    gold = {p.prompt: p.answer for p in load_problems(config(source))}
    boxed = load_problems(config(source, answer_field="solution", options={"answer_in": "boxed"}))
    differing = [p.id for p in boxed if p.answer != gold[p.prompt]]
    assert len(differing) <= 5  # golds that the file's makers rewrote by hand
