"""Public sets by one word, on made-up rows of the published shape in a local folder laid out as the hub is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r1zero.config import DataConfig, DemonstrationDataConfig
from r1zero.data import presets
from r1zero.data.datasets import load_problems
from r1zero.errors import UserError

PAIR = [{"role": "system", "content": "Think."}, {"role": "user", "content": "Half of 6?"}]
CODE_TESTS = json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})

# Preset -> a row of the published columns, and the question and the answer that are to be read from it.
ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "gsm8k": ({"question": "Half of 6?", "answer": "6/2=<<6/2=3>>3\n#### 3"}, "Half of 6?", "3"),
    "math": (
        {"problem": "Half of 6?", "level": "Level 1", "type": "Algebra", "solution": "It is $\\boxed{\\frac{6}{2}}$."},
        "Half of 6?",
        "\\frac{6}{2}",
    ),
    "dapo-math-17k": (
        {"prompt": "Half of 6?", "solution": "3", "data_source": "math_dapo", "reward_model": {"ground_truth": "3"}},
        "Half of 6?",
        "3",
    ),
    "deepscaler": ({"problem": "Half of 6?", "answer": "3", "solution": "…"}, "Half of 6?", "3"),
    "big-math": (
        {"problem": "Half of 6?", "answer": "3", "source": "orca_math", "llama8b_solve_rate": 0.5},
        "Half of 6?",
        "3",
    ),
    "openr1-math": ({"problem": "Half of 6?", "solution": "…", "answer": "3", "uuid": "u"}, "Half of 6?", "3"),
    "numinamath": (
        {
            "problem": "Half of 6?",
            "answer": "3",
            "question_type": "math-word-problem",
            "problem_is_valid": "Yes",
            "solution_is_valid": "Yes",
        },
        "Half of 6?",
        "3",
    ),
    "open-reasoner-zero": (
        {
            "0": {"from": "human", "value": "Half of 6?", "ground_truth": None},
            "1": {"from": "assistant", "value": "", "ground_truth": {"value": "3", "pass_at_n": None}},
        },
        "Half of 6?",
        "3",
    ),
    "skywork-or1-math": ({"prompt": PAIR, "reward_model": {"ground_truth": '["3"]'}}, "Half of 6?", "3"),
    "skywork-or1-code": ({"prompt": PAIR, "reward_model": {"ground_truth": "[]"}}, "Half of 6?", ""),
    "apps": ({"question": "Add.", "input_output": CODE_TESTS, "starter_code": ""}, "Add.", ""),
    "taco": ({"question": "Add.", "input_output": CODE_TESTS, "difficulty": "EASY"}, "Add.", ""),
    "livecodebench": (
        {"question_content": "Add.", "public_test_cases": "[]", "contest_date": "2025-01-04T00:00:00"},
        "Add.",
        "",
    ),
    "prime-code": (
        {"prompt": PAIR, "ability": "code", "reward_model": {"ground_truth": CODE_TESTS, "style": "rule"}},
        "Half of 6?",
        "",
    ),
    "prime-math": (
        {"prompt": PAIR, "ability": "math", "reward_model": {"ground_truth": "3", "style": "rule"}},
        "Half of 6?",
        "3",
    ),
    "kodcode": ({"question": "Add.", "test": "def test_add(): assert add(1, 2) == 3", "style": "complete"}, "Add.", ""),
    "ifeval-like": (
        {"prompt": "No commas.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": "[{}]"},
        "No commas.",
        "",
    ),
    "tulu3-rlvr": ({"messages": PAIR, "ground_truth": "3", "dataset": "gsm8k"}, "Half of 6?", "3"),
}


def hub_copy(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """A data set's folder as the hub lays it out: OWNER/NAME, a file a split, and the configurations in the card."""
    said = presets.get(name).settings
    place = folder / said["source"]
    place.mkdir(parents=True)
    split = said.get("split", "train")
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    card = f"configs:\n- config_name: {said.get('config', 'default')}\n  data_files:\n  - split: {split}\n"
    (place / "README.md").write_text(f"---\n{card}    path: rows.jsonl\n---\n", encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_row_of_the_published_shape_is_a_problem(name: str, tmp_path: Path) -> None:
    row, question, answer = ROWS[name]
    folder = hub_copy(tmp_path, name, [row])
    (problem,) = load_problems(DataConfig(source=f"preset:{name}", folder=str(folder)))
    assert (problem.prompt, problem.answer) == (question, answer)
    wanted = "math" if presets.get(name).kind == "math" or name == "tulu3-rlvr" else presets.get(name).kind
    assert problem.verifier == wanted


def test_every_preset_of_problems_has_a_row_here() -> None:
    assert {name for name in presets.names() if presets.get(name).kind != "text"} == set(ROWS)


def test_every_preset_says_where_it_is_its_licence_and_its_size() -> None:
    for name in presets.names():
        preset = presets.get(name)
        assert preset.kind in ("math", "code", "instructions", "text"), name
        assert preset.settings["source"].count("/") == 1, name
        assert preset.licence, name
        assert preset.count >= 1000, name


def test_a_row_keeps_what_its_verifier_reads(tmp_path: Path) -> None:
    folder = hub_copy(tmp_path, "apps", [ROWS["apps"][0]])
    (problem,) = load_problems(DataConfig(source="preset:apps", folder=str(folder)))
    assert problem.data["input_output"] == CODE_TESTS


def test_what_the_user_sets_goes_before_the_preset(tmp_path: Path) -> None:
    folder = hub_copy(tmp_path, "gsm8k", [{"question": "Half of 6?", "answer": "#### 3", "plain": "6/2"}])
    config = DataConfig(
        source="preset:gsm8k", folder=str(folder), answer_field="plain", options={"answer_in": ""}, verifier="answer"
    )
    (problem,) = load_problems(config)
    assert (problem.answer, problem.verifier) == ("6/2", "answer")


def test_an_unknown_preset_and_one_of_another_kind_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'gsm8k'"):
        load_problems(DataConfig(source="preset:gsm8"))
    with pytest.raises(UserError, match="is for sft, dpo"):
        load_problems(DataConfig(source="preset:alpaca"))
    with pytest.raises(UserError, match="is for stages that train on problems"):
        presets.resolve(DemonstrationDataConfig(source="preset:gsm8k"))
