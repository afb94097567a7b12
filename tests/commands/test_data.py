from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r1zero.commands.main import main
from r1zero.runs.folder import RunFolder
from tests.tiny_models import save_model, tiny_llama


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_show_prints_what_the_model_and_the_verifier_see(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"p{i}", "problem": f"{i}+1=?", "answer": str(i + 1), "level": 4} for i in range(5)]
    path = jsonl(tmp_path / "p.jsonl", [*rows, {"id": "again", "problem": "0+1=? ", "answer": "1"}])
    assert main(["data", "show", path, "--template", "plain", "--verifier", "math", "--count", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("-- the model sees") == 2
    assert "-- the verifier sees (math)" in out
    assert "level: 4" in out
    assert "6 problems" in out
    assert "1 of 6 problems repeat an earlier question" in out


def test_show_reads_a_recipes_mixed_data_and_shows_every_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    math = jsonl(tmp_path / "m.jsonl", [{"problem": "1+1?", "answer": "2"}] * 3)
    code = jsonl(tmp_path / "c.jsonl", [{"problem": "Add.", "tests": "assert f(1) == 2", "entry_point": "f"}])
    recipe = tmp_path / "mixed.yaml"
    sources = f"[{{source: {math}, name: math, weight: 2}}, {{source: {code}, name: code, verifier: code}}]"
    recipe.write_text(
        f"extends: tiny-cpu\ndata: {{source: '', duplicates: drop, sources: {sources}}}\n", encoding="utf-8"
    )
    assert main(["data", "show", str(recipe), "--count", "1"]) == 0
    out = capsys.readouterr().out
    assert "of math" in out
    assert "of code" in out
    assert "-- the verifier sees (code)" in out
    assert "-- the verifier sees (answer, {'rules': ['answer_tag']})" in out
    assert "2 problems left out: a question that stood before" in out


def test_presets_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "presets"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("gsm8k"))
    assert line.split() == ["gsm8k", "math", "math", "7,473", "MIT", "openai/gsm8k"]


def test_difficulty_of_a_runs_rollouts_is_the_share_of_right_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(str(tmp_path), "run")
    folder.open()
    for step, outcomes in enumerate([("correct", "wrong"), ("correct", "correct"), ("error", "timeout")], 1):
        rows = [
            {
                "problem_id": name,
                "question": f"{name}?",
                "answer": "1",
                "data": {"level": 2},
                "verdicts": {"accuracy": {"outcome": outcome}, "format": {"outcome": "correct"}},
            }
            for name, outcome in zip(("a", "b"), outcomes, strict=True)
        ]
        folder.save_rollouts(step, rows)
    folder.close()
    out = tmp_path / "rated.jsonl"
    assert main(["data", "difficulty", str(tmp_path / "run"), "--out", str(out)]) == 0
    rated = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    # b: one of two judged; a: two of two. The error and the timeout say nothing of the problem.
    assert [(row["id"], row["solve_rate"], row["level"]) for row in rated] == [("b", 0.5, 2), ("a", 1.0, 2)]
    assert "0 never solved, 1 always" in capsys.readouterr().out


def test_difficulty_of_a_model_is_measured_by_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests import ROOT

    monkeypatch.syspath_prepend(str(ROOT))
    model = save_model(tmp_path / "model", tiny_llama())
    path = jsonl(tmp_path / "p.jsonl", [{"id": f"p{i}", "problem": f"{i}+1=", "answer": "1"} for i in range(3)])
    out = tmp_path / "rated.jsonl"
    options = ["--k", "2", "--max-tokens", "12", "--template", "plain", "--engine", "transformers"]
    command = ["data", "difficulty", model, path, "--out", str(out), "--verifier", "tests.some_verifiers:short"]
    assert main([*command, *options]) == 0
    rated = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    samples = [
        json.loads(line)
        for line in (tmp_path / "rated.eval" / "answers" / "problems" / "samples.jsonl").read_text().splitlines()
    ]
    for row in rated:
        own = [s["num_tokens"] <= 8 for s in samples if s["problem_id"] == row["id"]]
        assert len(own) == 2
        assert row["solve_rate"] == sum(own) / 2
    assert len(rated) == 3


def test_a_chat_template_needs_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"problem": "1+1?", "answer": "2"}])
    assert main(["data", "show", path, "--template", "boxed_chat"]) == 2
    assert "--model" in capsys.readouterr().err
