"""`math` on real data: every gold against itself and against changed ones, the hard cases, real outputs with labels.

The data are not part of the project; without them these tests skip and say so.
"""

import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from r1zero.verifiers.math import math
from tests import SHARED

MATHS = ("math500", "aime2024", "aime2025", "amc2023", "gsm8k_test", "minerva_math", "olympiadbench_math_en")
pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="needs the shared data folder beside the project")

ATTACKS = ("hack_", "parse_corruption", "empty")
# Labels that the policy contradicts, with the reason; the agreement is counted without them.
MISLABELLED = {
    "qwen25math_math_cot_100x8": "the source strips units from its gold ('4:30p..') and braces from 10{,}000",
    "zeroshotcot_gsm8k_davinci002": "the source takes the first number of '100 + 20 = 120', and no number words",
    "mrmath_abel_wizardmath": "csc x for cot x, 0.(35625) for .35625, {2, 3} for 2 are labelled right",
    "mrgsm8k_wrong_solutions": "labels of the reasoning, golds that are prompts, programs without an answer",
}


def rows(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.splitlines()]


def files(folder: str) -> list[Path]:
    return sorted((SHARED / folder).glob("*.jsonl*")) if SHARED.exists() else []


def golds(name: str) -> list[str]:
    (path,) = (path for path in files("data/math") if path.name.split(".")[0] == name)
    return [str(row["answer"]) for row in rows(path)]


@pytest.mark.parametrize("name", [*MATHS, "aime_1983_2023", "math_train", "math_test_minus_math500"])
def test_every_gold_equals_itself_in_a_box_as_it_is_and_restyled(name: str) -> None:
    failed = []
    for gold in golds(name):
        restyled = gold.replace(r"\frac", r"\dfrac").replace("+", " + ")
        for text in (rf"So \boxed{{{gold}}}.", rf"So $\boxed{{ {restyled} }}$."):
            verdict = math(text, gold)
            if not verdict.correct:
                failed.append((gold, verdict.outcome, verdict.reason))
    assert not failed


@pytest.mark.parametrize("name", MATHS)
def test_a_changed_gold_is_not_accepted(name: str) -> None:
    accepted = []
    for gold in golds(name):
        for changed in perturbed(gold):
            verdict = math(rf"\boxed{{{changed}}}", gold)
            if verdict.correct:
                accepted.append((gold, changed, verdict.reason))
    assert not accepted


def perturbed(gold: str) -> list[str]:
    """Wrong answers made from a right one: another last digit, another sign, one more item, a factor."""
    changed = []
    digits = list(re.finditer(r"(?<![_\d.,{])\d(?![\d,.}])", gold))
    if digits:
        at = digits[-1].start()
        changed.append(gold[:at] + str((int(gold[at]) + 1) % 10 or 1) + gold[at + 1 :])
    if re.fullmatch(r"[-\d.\\a-z{}/ ]*\d[-\d.\\a-z{}/ ]*", gold) and "pm" not in gold and "text" not in gold:
        nonzero = re.search(r"[1-9]", gold) is not None
        if "\\" not in gold and nonzero and "e" not in gold:
            changed += [
                f"-{gold}" if not gold.startswith("-") else gold[1:],
                f"{gold}0" if "." not in gold else f"1{gold}",
            ]
        changed += [f"{gold}, 12345", f"({gold}) + 1/1000"]
        if nonzero:
            changed.append(f"1001/1000 ({gold})")
    return [text for text in changed if text != gold]


def test_the_hard_cases_are_judged_as_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = SHARED / "cases" / "verify_math.jsonl"
    if not path.exists():
        pytest.skip("needs the shared cases")
    monkeypatch.chdir(tmp_path)  # the injection cases try to write a file here
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    false_positives = []
    for row in rows(path):
        if row.get("debatable"):
            continue
        group = "attack" if row["kind"].startswith(ATTACKS) else "sincere"
        verdict = math(row["pred"], row["gold"])
        total[group] += 1
        right[group] += verdict.correct == row["expected"]
        if verdict.correct and not row["expected"]:
            false_positives.append((row["id"], verdict.reason))
    assert right["sincere"] >= 0.98 * total["sincere"]
    assert right["attack"] >= 0.995 * total["attack"]
    assert len(false_positives) <= 2, false_positives
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", files("data/outputs"), ids=lambda path: path.name.split(".")[0])
def test_real_outputs_are_judged_as_labelled(path: Path) -> None:
    name = path.name.split(".")[0]
    differ = labelled = 0
    for row in rows(path):
        verdict = math(row["output"], row["gold"])
        assert verdict.outcome != "error", (row["id"], verdict.reason)
        if row.get("correct") is not None:
            labelled += 1
            differ += verdict.correct != row["correct"]
    # Each difference was read by hand; the limits are what was found then, so that a new one shows.
    known = {"prmbench_multi_solutions": 9, "think_qwen25_15b_sft_vs_rlvr_gsm8k": 9, "tora_gsm8k": 3,
             "qwen25math_math_cot_100x8": 9, "zeroshotcot_gsm8k_davinci002": 34, "mrmath_abel_wizardmath": 4,
             "mrgsm8k_wrong_solutions": 8}  # fmt: skip
    assert differ <= known.get(name, 0), f"{differ} of {labelled} differ; known: {MISLABELLED.get(name, 'none')}"
