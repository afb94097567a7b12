"""The audit: a small labelled file whose errors are counted by hand, and a run's rollouts."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import zstandard

from r1zero.commands import verifiers as cli
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, VerifierPool, VerifierSpec
from r1zero.verifiers.running.audit import audit, disagreements, read_rows, report, summary
from tests import TESTS

GOOD = "<think>a</think><answer>A</answer>"
ROWS: list[dict[str, Any]] = [
    {"id": "a", "gold": "A", "output": GOOD, "correct": True},
    {"id": "b", "gold": "B", "output": GOOD, "correct": True, "kind": "x"},  # choice: a false negative
    {"id": "c", "gold": "A", "output": "<answer>A</answer>", "correct": False, "kind": "x"},  # choice: a false positive
    {"id": "d", "gold": "A", "output": "none", "correct": False},
    {"id": "e", "gold": "B", "output": GOOD, "correct": True, "debatable": True},
    {"id": "f", "gold": "A", "output": GOOD},
]


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run_cli(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["verifiers", *arguments])
    code: int = parsed.run(parsed)
    return code


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(TESTS))
        with VerifierPool(workers=1, deadline_seconds=0.5) as pool:
            yield pool


def test_accuracy_and_errors_are_counted_against_the_labels(tmp_path: Path, pool: VerifierPool) -> None:
    result = audit(read_rows(write(tmp_path / "rows.jsonl", ROWS)), [VerifierSpec(name="choice")], pool)
    figures = summary(result)["verifiers"]["choice"]
    assert figures["labelled"] == 4  # e is debatable, f has no label
    assert (figures["right"], figures["accuracy"]) == (2, 0.5)
    assert (figures["false_positives"], figures["false_negatives"], figures["no_verdict"]) == (1, 1, 0)
    assert figures["outcomes"]["unparseable"] == 1
    assert sum(figures["outcomes"].values()) == 6


def test_a_timeout_or_an_error_is_neither_right_nor_a_false_negative(
    tmp_path: Path, pool: VerifierPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(TESTS))
    rows = [{"output": "sleep 60", "correct": False}, {"output": "raise x", "correct": True}]
    result = audit(read_rows(write(tmp_path / "r.jsonl", rows)), [VerifierSpec(name="hostile_verifiers:hostile")], pool)
    figures = summary(result)["verifiers"]["hostile_verifiers:hostile"]
    assert (figures["right"], figures["false_positives"], figures["false_negatives"]) == (0, 0, 0)
    assert figures["no_verdict"] == 2


def test_a_verifier_that_could_judge_no_row_is_exit_code_1_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "rows.jsonl", [{"output": "so it is 4"}])
    assert run_cli("audit", str(path), "--verifier", "math", "--workers", "1") == 1
    assert "math judged none of 1 rows; 1 times:" in capsys.readouterr().err


def test_the_rows_on_which_verifiers_disagree_are_found(tmp_path: Path, pool: VerifierPool) -> None:
    specs = [VerifierSpec(name="choice"), VerifierSpec(name="answer_tags")]
    result = audit(read_rows(write(tmp_path / "rows.jsonl", ROWS)), specs, pool)
    assert summary(result)["disagreements"] == ["b", "c", "e"]
    assert [one.verdict.outcome for one in disagreements(result)[1]] == [Outcome.CORRECT, Outcome.WRONG]


def test_the_report_has_a_row_for_each_verdict(tmp_path: Path, pool: VerifierPool) -> None:
    result = audit(read_rows(write(tmp_path / "rows.jsonl", ROWS)), [VerifierSpec(name="choice")], pool)
    rows = report(result)["rows"]
    assert [row["expected"] for row in rows] == [True, True, False, False, None, None]
    assert set(rows[0]) == {"id", "verifier", "outcome", "score", "reason", "extracted", "seconds", "expected"}
    assert (rows[0]["id"], rows[0]["outcome"], rows[0]["score"], rows[0]["extracted"]) == ("a", "correct", 1.0, "A")


def test_the_command_prints_the_table_and_writes_the_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(tmp_path / "rows.jsonl", ROWS), tmp_path / "out.json"
    assert (
        run_cli("audit", str(path), "--verifier", "choice", "--by", "kind", "--workers", "1", "--json", str(out)) == 0
    )
    printed = capsys.readouterr().out
    assert "50.00" in printed
    assert "not as labelled: 2" in printed
    assert json.loads(out.read_text())["summary"]["verifiers"]["choice"]["groups"]["x"]["labelled"] == 2


def test_fields_have_other_names_and_files_other_packings(tmp_path: Path) -> None:
    rows = [
        {"answer": 2, "pred": "two", "expected": 1},
        {"gold": "2", "output": "whole text", "pred": "2", "finish_reason": "length", "num_tokens": 7},
    ]
    plain = write(tmp_path / "r.jsonl", rows)
    (tmp_path / "r.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "r.jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    for name in ("r.jsonl", "r.jsonl.gz", "r.jsonl.zst"):
        first, second = read_rows(tmp_path / name)
        assert (first.sample.answer, first.sample.completion, first.expected) == ("2", "two", True)
        assert (second.sample.completion, second.expected) == ("whole text", None)
        assert (second.sample.finish_reason, second.sample.num_tokens) == ("length", 7)
        assert [first.id, second.id] == [f"{name}:1", f"{name}:2"]


def test_a_problem_file_gives_tests_and_gold(tmp_path: Path) -> None:
    problems = write(tmp_path / "p.jsonl", [{"id": "p1", "prompt": "Add.", "tests": "assert 1", "answer": "2"}])
    rows = write(tmp_path / "r.jsonl", [{"id": "r", "problem_id": "p1", "output": "x", "correct": True}])
    (row,) = read_rows(rows, problems=problems)
    assert (row.id, row.sample.answer, row.sample.problem.prompt) == ("r", "2", "Add.")
    assert row.sample.problem.data == {"tests": "assert 1"}
    with pytest.raises(UserError, match="problem_id 'p2' is not among the 1 problems"):
        read_rows(write(tmp_path / "s.jsonl", [{"problem_id": "p2", "output": "x"}]), problems=problems)


def rollout(step: int, text: str, outcome: str) -> dict[str, Any]:
    verdict = {"outcome": outcome, "score": None, "reason": "", "extracted": None}
    return {
        "step": step,
        "problem_id": "p",
        "answer": "A",
        "prompt": "Which?",
        "completion": text,
        "finish_reason": "stop",
        "num_tokens": 9,
        "verdicts": {"choice": verdict, "answer_tags": {**verdict, "outcome": "wrong"}},
        "reward": 1.0,
        "advantage": 0.5,
    }


def test_a_runs_rollouts_are_audited_against_the_verdicts_trained_on(
    tmp_path: Path, pool: VerifierPool, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run" / "rollouts"
    folder.mkdir(parents=True)
    steps = {
        1: [rollout(1, GOOD, "correct"), rollout(1, "<answer>A</answer>", "correct")],
        2: [rollout(2, GOOD, "error")],
    }
    for step, rows in steps.items():
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (folder / f"step-{step:06d}.jsonl.zst").write_bytes(zstandard.compress(text))
    result = audit(read_rows(tmp_path / "run", "step"), [VerifierSpec(name="answer_tags")], pool)
    figures = summary(result)["verifiers"]["answer_tags"]
    # The second completion was paid for, and answer_tags would not have; the third has no verdict to compare with.
    assert (figures["labelled"], figures["right"], figures["false_negatives"]) == (2, 1, 1)
    assert figures["groups"]["1"]["right"] == 1
    assert run_cli("audit", str(tmp_path / "run"), "--verifier", "answer_tags", "--workers", "1") == 0
    assert "step-000001.jsonl.zst:2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"gold": "2"}\n', "needs one of the fields output, completion, pred"),
        ('{"output": "x"}\nnot json\n', "line 2: not JSON"),
        ("[1]\n", "line 1: a JSON object is needed"),
        ("", "no rows"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        read_rows(path)


def test_a_missing_file_an_unknown_field_and_an_unknown_option_are_the_users_mistakes(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(UserError, match=r"neither a \.jsonl file"):
        read_rows(tmp_path / "nothing.jsonl")
    with pytest.raises(UserError, match="no row has a field 'knd'"):
        read_rows(path, "knd")
    with pytest.raises(UserError, match="none of answer_tags has it"):
        run_cli("audit", str(path), "--verifier", "answer_tags", "--option", "min_chars=3")
    with pytest.raises(UserError, match="NAME=VALUE"):
        run_cli("audit", str(path), "--verifier", "answer_tags", "--option", "min_chars")
    with pytest.raises(UserError, match="did you mean 'answer'"):
        run_cli("audit", str(path), "--verifier", "anser")


def test_an_option_reaches_the_verifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", [{"output": GOOD, "correct": True}])
    run_cli("audit", str(path), "--verifier", "answer_tags", "--option", "min_think_chars=5", "--workers", "1")
    assert "fewer than 5" in capsys.readouterr().out


def test_list_show_and_check_print_what_a_user_asks(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("list") == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("answer_tags", "math", "code", "reasoning_gym", "overlong"))
    assert run_cli("show", "answer_tags") == 0
    assert "min_think_chars: 1" in capsys.readouterr().out
    assert run_cli("check", "overlong") == 0
    assert "checks passed" in capsys.readouterr().out
    assert run_cli("check", "r1zero.verifiers.running.conformance:in_a_thread") == 1  # no example
