"""Several sources in one run: shares, order, verifiers of their own, what is left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from r1zero.config import DataConfig, MixedSource
from r1zero.data.datasets import fingerprint, load, load_problems
from r1zero.data.order import mix, take
from r1zero.errors import UserError


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_sources_come_in_their_shares_at_every_place() -> None:
    for start in (0, 3, 997, 5000):
        sources = [source for source, _ in mix([100, 100, 100], [2, 1, 1], start, 40, 7)]
        assert Counter(sources) == {0: 20, 1: 10, 2: 10}, start


def test_a_stream_taken_in_other_portions_holds_the_same_problems() -> None:
    whole = mix([5, 3], [3, 1], 0, 2400, 1)
    parts = [place for start in range(0, 2400, 48) for place in mix([5, 3], [3, 1], start, 48, 1)]
    assert Counter(parts) == Counter(whole)
    # 1,800 of five problems and 600 of three: whole passes only.
    assert Counter(whole) == {**{(0, i): 360 for i in range(5)}, **{(1, i): 200 for i in range(3)}}


def test_a_call_repeated_after_a_kill_gives_the_same_order() -> None:
    assert mix([9, 9], [1, 2], 96, 32, 5) == mix([9, 9], [1, 2], 96, 32, 5)
    assert mix([9, 9], [1, 2], 96, 32, 5) != mix([9, 9], [1, 2], 96, 32, 6)


def test_no_process_of_four_gets_one_source_only() -> None:
    for rank in range(4):
        sources = {source for source, _ in mix([99, 99, 99], [2, 1, 1], 0, 64, 0)[rank::4]}
        assert sources == {0, 1, 2}


def test_a_weight_too_small_to_come_up_is_refused() -> None:
    with pytest.raises(UserError, match="source 2 has less than 1/1000"):
        mix([5, 5], [10_000, 1], 0, 1, 0)


def test_one_source_is_drawn_as_before_mixing_was_there() -> None:
    assert take(5, 0, 5, 0) == [0, 1, 4, 3, 2]


def mixed(tmp_path: Path, **settings: Any) -> DataConfig:
    math = jsonl(tmp_path / "math.jsonl", [{"id": "1", "problem": f"{i}+1?", "answer": str(i + 1)} for i in range(3)])
    code = jsonl(tmp_path / "code.jsonl", [{"id": "1", "q": "Add.", "tests": "assert f(1) == 2", "entry_point": "f"}])
    return DataConfig(
        sources=[
            MixedSource(source=math, name="math", weight=2),
            MixedSource(
                source=code, name="code", prompt_field="q", verifier="code", verifier_options={"memory_mb": 256}
            ),
        ],
        **settings,
    )


def test_each_source_is_read_by_its_own_settings_and_ids_stay_apart(tmp_path: Path) -> None:
    problems = load_problems(mixed(tmp_path))
    assert [p.source for p in problems] == ["math"] * 3 + ["code"]
    assert len({p.id for p in problems}) == 4
    assert [(p.verifier, dict(p.verifier_options)) for p in problems] == [("", {})] * 3 + [("code", {"memory_mb": 256})]
    assert problems[3].prompt == "Add."


def test_a_row_may_name_its_verifier_through_a_map_and_others_use_the_sources(tmp_path: Path) -> None:
    rows = [{"problem": q, "answer": "1", "kind": kind} for q, kind in [("a", "gsm8k"), ("b", "answer"), ("c", "")]]
    path = jsonl(tmp_path / "rows.jsonl", rows)
    problems = load_problems(
        DataConfig(source=path, verifier="exact", verifier_field="kind", verifiers={"gsm8k": "math"})
    )
    assert {p.prompt: p.verifier for p in problems} == {"a": "math", "b": "answer", "c": "exact"}


def test_who_judges_is_part_of_the_fingerprint_and_one_source_keeps_its_old_one(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"id": "a", "problem": "1+1?", "answer": "2"}])
    plain = fingerprint(load_problems(DataConfig(source=path)))
    # sha256 of '["1+1?", "2", {}]' and a zero byte, as before problems could name a verifier
    assert plain == "947df4bfd8d684cc"
    assert fingerprint(load_problems(DataConfig(source=path, verifier="math"))) != plain


def test_repeated_questions_are_counted_and_dropped_where_asked(tmp_path: Path) -> None:
    rows = [{"problem": q, "answer": "2"} for q in ("1 + 1?", "1  +  1?", "2?")]
    path = jsonl(tmp_path / "p.jsonl", rows)
    kept = load(DataConfig(source=path))
    assert (len(kept.kept), kept.repeated) == (3, 1)
    assert kept.said() == ["1 of 3 problems repeat an earlier question (data.duplicates)"]
    dropped = load(DataConfig(source=path, duplicates="drop"))
    assert (len(dropped.kept), dropped.repeated) == (2, 0)
    assert dropped.said() == ["1 problems left out: a question that stood before"]


def test_problems_too_easy_or_too_hard_are_left_out_by_their_solve_rate(tmp_path: Path) -> None:
    rows = [{"problem": str(i), "answer": "2", "solve_rate": rate} for i, rate in enumerate((0, 0.1, 0.5, 0.9, 1))]
    path = jsonl(tmp_path / "p.jsonl", rows)
    loaded = load(DataConfig(source=path, solve_rate=[0.1, 0.9]))
    assert sorted(p.prompt for p in loaded.kept) == ["1", "2", "3"]
    assert sorted(loaded.said()) == [
        "1 problems left out: too easy (solve rate over 0.9)",
        "1 problems left out: too hard (solve rate under 0.1)",
    ]


def test_a_filter_by_a_solve_rate_that_was_never_measured_is_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "p.jsonl", [{"id": "a", "problem": "1+1?", "answer": "2"}])
    with pytest.raises(UserError, match="'a' has no number 'solve_rate'"):
        load(DataConfig(source=path, solve_rate=[0.1, 0.9]))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"source": "a.jsonl", "sources": [MixedSource(source="b.jsonl")]}, "set one"),
        ({"sources": [MixedSource(source="b.jsonl"), MixedSource(source="b.jsonl")]}, "give them names"),
        ({"source": "a.jsonl", "verifier_options": {"x": 1}}, "set that too"),
        ({"source": "a.jsonl", "solve_rate": [0.9, 0.1]}, "lowest, highest"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        DataConfig(**settings)


def test_a_weight_must_be_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        MixedSource(source="b.jsonl", weight=0)
