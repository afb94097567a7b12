"""Benchmarks of which no copy is at hand: on made-up rows of the published columns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r1zero.errors import UserError
from r1zero.eval import protocols, published
from r1zero.eval.benchmarks import BENCHMARKS, load
from r1zero.eval.templates import default_template
from r1zero.verifiers import Sample, VerifierPool
from r1zero.verifiers.sandbox import sandbox_status
from tests.tiny_models import char_tokenizer

GPQA = {
    "Question": "Which gas is most of the air?",
    "Correct Answer": "Nitrogen",
    "Incorrect Answer 1": "Oxygen",
    "Incorrect Answer 2": "Argon",
    "Incorrect Answer 3": "Neon\n",
    "High-level domain": "Chemistry",
}
MMLU = {
    "question_id": 7,
    "question": "2 + 3?",
    "options": ["4", "5", "6", "N/A"],
    "answer": "B",
    "answer_index": 1,
    "category": "math",
}
IFEVAL = {
    "key": 1,
    "prompt": "Say it without commas, in 5 words.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{"num_words": None, "relation": None}, {"num_words": 6, "relation": "less than"}],
}
LCB = {
    "question_content": "Print the sum.",
    "starter_code": "",
    "public_test_cases": '[{"input": "1 2", "output": "3", "testtype": "stdin"}]',
    "private_test_cases": "",
    "metadata": "{}",
    "contest_date": "2024-08-03T00:00:00",
    "difficulty": "easy",
    "platform": "atcoder",
    "question_title": "Sum",
}
ROWS: dict[str, dict[str, Any]] = {
    "aime2026": {"problem_idx": 1, "problem": "Q?", "answer": 70},
    "hmmt2025": {"problem_idx": 1, "problem": "Q?", "answer": "\\frac{9 \\sqrt{23}}{23}", "problem_type": ["Algebra"]},
    "brumo2025": {"problem_idx": 1, "problem": "Q?", "answer": "\\frac{5}{3}", "problem_type": ["Geometry"]},
    "gpqa-diamond": GPQA,
    "mmlu-pro": MMLU,
    "ifeval": IFEVAL,
    "livecodebench": LCB,
}


def copy_of(name: str, folder: Path, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> str:
    """A local copy of so many rows, and the benchmark taken to have no more."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"{BENCHMARKS[name].files[0]}.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.setitem(BENCHMARKS, name, replace(BENCHMARKS[name], num_problems=len(rows)))
    return str(folder)


def test_sizes_are_as_published() -> None:
    assert {name: published.BENCHMARKS[name].num_problems for name in ROWS} == {
        "aime2026": 30,
        "hmmt2025": 30,
        "brumo2025": 30,
        "gpqa-diamond": 198,
        "mmlu-pro": 12_032,
        "ifeval": 541,
        "livecodebench": 1055,
    }


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("ifeval", "livecodebench")])
def test_gold_answers_are_right_and_another_is_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(name, data_dir=copy_of(name, tmp_path, [ROWS[name]], monkeypatch))
    (problem,) = loaded.problems
    other = {"A": "B", "B": "C", "C": "D", "D": "A"}.get(problem.answer, "71")
    with VerifierPool(1, deadline_seconds=30.0) as pool:
        said = [f"<think>So.</think> The answer is \\boxed{{{answer}}}." for answer in (problem.answer, other)]
        samples = [Sample(completion=text, answer=problem.answer, problem=problem) for text in said]
        verdicts = list(pool.verify((loaded.verifier, sample) for sample in samples))
    assert [verdict.correct for verdict in verdicts] == [True, False]


def test_gpqa_options_stand_in_an_order_of_the_questions_own() -> None:
    problem = BENCHMARKS["gpqa-diamond"].row(GPQA)
    assert problem is not None
    assert problem == BENCHMARKS["gpqa-diamond"].row(dict(GPQA))
    assert sorted(problem.data["choices"]) == ["Argon", "Neon", "Nitrogen", "Oxygen"]
    assert problem.data["choices"]["ABCD".index(problem.answer)] == "Nitrogen"
    assert f"{problem.answer}) Nitrogen" in problem.prompt
    golds = set()
    for i in range(40):
        asked = BENCHMARKS["gpqa-diamond"].row({**GPQA, "Question": f"Question {i}?"})
        assert asked is not None
        golds.add(asked.answer)
    assert golds == {"A", "B", "C", "D"}


def test_mmlu_pro_options_that_fill_up_are_no_options() -> None:
    problem = BENCHMARKS["mmlu-pro"].row(MMLU)
    assert problem is not None
    assert problem.data["choices"] == ["4", "5", "6"]
    assert (problem.answer, problem.data["subject"]) == ("B", "math")
    with pytest.raises(ValueError, match="name no one option"):
        BENCHMARKS["mmlu-pro"].row({**MMLU, "answer_index": 2})


def test_ifeval_keeps_the_instructions_and_the_kwargs_that_say_something() -> None:
    problem = BENCHMARKS["ifeval"].row(IFEVAL)
    assert problem is not None
    assert problem.data == {
        "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
        "kwargs": [{}, {"num_words": 6, "relation": "less than"}],
    }


def test_ifeval_is_graded_by_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load("ifeval", data_dir=copy_of("ifeval", tmp_path, [IFEVAL], monkeypatch))
    (problem,) = loaded.problems
    with VerifierPool(1, deadline_seconds=30.0) as pool:
        samples = [Sample(completion=text, problem=problem) for text in ("It is as you say.", "It is, as you say.")]
        verdicts = list(pool.verify((loaded.verifier, sample) for sample in samples))
    assert [verdict.correct for verdict in verdicts] == [True, False]


IFEVAL_GOLD = [
    (("punctuation:no_comma", {}), "No comma here."),
    (("change_case:english_lowercase", {}), "all of it is small"),
    (("startend:quotation", {}), '"It is quoted."'),
    (("detectable_format:title", {}), "<<The sea>> It is wide."),
    (("keywords:existence", {"keywords": ["sea", "wide"]}), "The sea is wide."),
    (("startend:end_checker", {"end_phrase": "That is all."}), "It rains. That is all."),
]


def test_texts_that_follow_ifevals_instructions_score_100_percent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"key": key, "prompt": f"Ask {key}.", "instruction_id_list": [kind], "kwargs": [given]}
        for key, ((kind, given), _) in enumerate(IFEVAL_GOLD)
    ]
    loaded = load("ifeval", data_dir=copy_of("ifeval", tmp_path, rows, monkeypatch))
    gold = [text for _, text in IFEVAL_GOLD]
    with VerifierPool(1, deadline_seconds=30.0) as pool:
        samples = [Sample(completion=t, problem=p) for t, p in zip(gold, loaded.problems, strict=True)]
        verdicts = list(pool.verify((loaded.verifier, sample) for sample in samples))
    assert [verdict.correct for verdict in verdicts] == [True] * len(rows)


ADD = {
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:",
    "public_test_cases": '[{"input": "1\\n2", "output": "3", "testtype": "functional"}]',
    "private_test_cases": '[{"input": "-4\\n2", "output": "-2", "testtype": "functional"}]',
    "metadata": '{"func_name": "add"}',
}


@pytest.mark.skipif(sandbox_status() is not None, reason=sandbox_status() or "")
def test_right_programs_score_100_percent_on_livecodebench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load("livecodebench", data_dir=copy_of("livecodebench", tmp_path, [LCB, {**LCB, **ADD}], monkeypatch))
    printed = "```python\na, b = map(int, input().split())\nprint(a {} b)\n```"
    method = "```python\nclass Solution:\n    def add(self, a, b):\n        return a {} b\n```"
    with VerifierPool(1, deadline_seconds=60.0) as pool:
        samples = [
            Sample(completion=text.format(sign), problem=problem)
            for sign in "+-"
            for text, problem in zip((printed, method), loaded.problems, strict=True)
        ]
        verdicts = list(pool.verify((loaded.verifier, sample) for sample in samples))
    assert [verdict.correct for verdict in verdicts] == [True, True, False, False]


def test_livecodebench_is_cut_to_a_window_of_contest_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = ("2024-07-31", "2024-08-01", "2025-01-31", "2025-02-01")
    rows = [{**LCB, "contest_date": f"{day}T10:00:00"} for day in days]
    folder = copy_of("livecodebench", tmp_path, rows, monkeypatch)
    loaded = load("livecodebench@2024-08-01..2025-02-01", data_dir=folder)
    assert [p.data["contest_date"] for p in loaded.problems] == ["2024-08-01", "2025-01-31"]
    assert [p.id for p in loaded.problems] == ["livecodebench-0001", "livecodebench-0002"]
    assert loaded.name == "livecodebench@2024-08-01..2025-02-01"
    assert len(load("livecodebench", data_dir=folder).problems) == 4
    with pytest.raises(UserError, match="a window is two days"):
        load("livecodebench@2024", data_dir=folder)
    with pytest.raises(UserError, match="no contest is in that window"):
        load("livecodebench@2030-01-01..2031-01-01", data_dir=folder)


def test_a_benchmark_without_dates_has_no_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_of("aime2026", tmp_path, [ROWS["aime2026"]], monkeypatch)
    with pytest.raises(UserError, match="has no contest dates"):
        load("aime2026@2026-01-01..2026-03-01", data_dir=folder)


def test_livecodebench_asks_for_the_function_where_there_is_code_to_start_from() -> None:
    program = BENCHMARKS["livecodebench"].row(LCB)
    function = BENCHMARKS["livecodebench"].row({**LCB, "starter_code": "class Solution:\n    def add(self, a):"})
    assert program is not None
    assert function is not None
    assert "stdin" in program.prompt
    assert "class Solution:" in function.prompt
    assert program.data["public_test_cases"] == LCB["public_test_cases"]
    assert program.data["level"] == "easy"


def test_every_kind_has_its_number_of_samples_in_every_protocol_and_a_template() -> None:
    for entry in BENCHMARKS.values():
        assert all(protocol.k[entry.kind] >= 1 for protocol in protocols.PROTOCOLS.values())
    assert default_template(char_tokenizer(), "instructions") == "plain"
    assert default_template(char_tokenizer(), "choice") == "r1zero"
