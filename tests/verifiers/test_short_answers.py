"""`exact`, `f1`, `regex` and `json_schema`: right values, near misses, and inputs made to be costly."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from r1zero.data.records import Problem
from r1zero.verifiers import Outcome, Sample, Verdict, VerifierPool, VerifierSpec, get
from r1zero.verifiers.pattern import compiled_pattern

CORRECT, WRONG, ERROR, UNPARSEABLE = Outcome.CORRECT, Outcome.WRONG, Outcome.ERROR, Outcome.UNPARSEABLE


def judged(name: str, completion: str, answer: str = "", data: dict[str, Any] | None = None, **options: Any) -> Verdict:
    problem = Problem(id="1", prompt="", answer=answer, data=data or {})
    return get(name)(Sample(completion=completion, answer=answer, problem=problem), options)


@pytest.mark.parametrize(
    ("said", "gold", "same"),
    [
        ("The Eiffel Tower.", "eiffel tower", True),
        ("well-known", "Well-known!", True),
        ("1,000", "1000", True),
        ("a dog", "dog", True),
        ("3.5", "35", False),
        (".5", "5", False),
        ("-5", "5", False),
        ("$5", "5", True),
        ("Paris or Lyon", "Paris", False),
        ("man bites dog", "dog bites man", False),
        ("", "Paris", False),
    ],
)
def test_exact(said: str, gold: str, same: bool) -> None:
    assert judged("exact", f"<think>x</think><answer>{said}</answer>", gold).correct is same


def test_exact_takes_any_of_several_golds_and_the_usual_places() -> None:
    data = {"answers": {"text": ["Bonn", "the city of Berlin"], "answer_start": [0, 1]}}
    assert judged("exact", "<answer>City of Berlin</answer>", data=data).correct
    assert judged("exact", "The answer is \\boxed{Bonn}", data={"answers": '["Bonn"]'}).correct
    assert judged("exact", "Bonn", data=data).correct
    assert judged("exact", "<answer>Rome</answer>", data=data).outcome is WRONG
    assert judged("exact", "<answer>Rome</answer>").outcome is ERROR
    assert judged("exact", "<think>Bonn", data=data).outcome is UNPARSEABLE


def test_f1_is_the_overlap_in_words() -> None:
    # 2 words in common, 3 said and 2 in the gold: 2 * 2 / 5.
    verdict = judged("f1", "<answer>red green blue</answer>", "blue, red")
    assert (verdict.outcome, verdict.score) == (WRONG, pytest.approx(0.8))
    assert judged("f1", "<answer>red green blue</answer>", "blue, red", threshold=0.8).outcome is CORRECT
    assert judged("f1", "<answer>red green blue</answer>", "blue, red", partial_credit=False).score == 0.0
    assert judged("f1", "<answer>the red blue</answer>", "blue red").score == 1.0
    assert judged("f1", "<answer>red red</answer>", "red").score == pytest.approx(2 / 3)
    assert judged("f1", "<answer>green</answer>", "red").score == 0.0


@pytest.mark.parametrize(
    ("pattern", "text", "options", "outcome"),
    [
        (r"\d{4}", "2024", {}, CORRECT),
        (r"\d{4}", "20245", {}, WRONG),
        (r"\d{4}", "in 20245", {"search": True}, CORRECT),
        (r"(a|b)+", "abba", {}, CORRECT),
        (r"(.)\1", "aa", {}, CORRECT),
        (r"(.)\1", "ab", {}, WRONG),
        (r"a(?!b).*", "ab", {}, WRONG),
        (r"yes", "Yes", {}, WRONG),
        (r"(", "x", {}, ERROR),
        (r"x", "\ud800", {}, WRONG),
    ],
)
def test_regex(pattern: str, text: str, options: dict[str, Any], outcome: Outcome) -> None:
    verdict = judged("regex", f"<think>q</think><answer>{text}</answer>", data={"regex": pattern}, **options)
    assert verdict.outcome is outcome, verdict
    assert judged("regex", f"<answer>{text}</answer>", pattern=pattern, **options).outcome is outcome


def test_regex_needs_a_pattern() -> None:
    assert judged("regex", "x").outcome is ERROR


def test_a_regex_bomb_takes_no_time_with_re2() -> None:
    pytest.importorskip("re2")
    began = time.monotonic()
    assert judged("regex", "a" * 50_000 + "!", data={"regex": "(a+)+"}).outcome is WRONG
    assert time.monotonic() - began < 2


def test_a_regex_bomb_without_re2_ends_at_the_deadline() -> None:
    # A look-ahead, which re2 does not know, has Python's own engine take over.
    bomb = Sample(completion="a" * 60 + "!", problem=Problem(id="1", prompt="", data={"regex": "(?=a)(a|a)+"}))
    with VerifierPool(workers=1, deadline_seconds=1) as pool:
        assert pool.verify([(VerifierSpec(name="regex"), bomb)])[0].outcome is Outcome.TIMEOUT


def test_without_re2_pythons_own_engine_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    compiled_pattern.cache_clear()
    assert judged("regex", "ab", data={"regex": "a."}).correct
    compiled_pattern.cache_clear()


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}, "self": {"$ref": "#"}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"name": "A", "age": 3}', CORRECT),
        ('Here:\n```json\n{"name": "A"}\n```\nDone.', CORRECT),
        ('<think>{"name": 1}</think><answer>{"name": "A"}</answer>', CORRECT),
        ('{"name": "A", "self": {"name": "B"}}', CORRECT),
        ('{"name": "A", "self": {"name": 1}}', WRONG),
        ('{"name": "A", "age": -1}', WRONG),
        ('{"name": "A", "age": 1.5}', WRONG),
        ('{"name": "A", "more": 1}', WRONG),
        ("[]", WRONG),
        ('{"name": "A", "name": "B"}', UNPARSEABLE),
        ('{"name": "A", "age": NaN}', UNPARSEABLE),
        ('{"name": "A"', UNPARSEABLE),
        ("It is fine.", UNPARSEABLE),
        ("[" * 100_000, UNPARSEABLE),
        ("", UNPARSEABLE),
    ],
)
def test_json_schema(text: str, outcome: Outcome) -> None:
    pytest.importorskip("jsonschema")
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        verdict = judged("json_schema", text, data={"json_schema": schema})
        assert verdict.outcome is outcome, verdict


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "no schema"),
        ("{", "no JSON"),
        (7, "neither an object"),
        ({"type": "nothing"}, "the schema is none"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "not in it"),
        ({"$ref": "file:///etc/passwd"}, "not in it"),
        ({"$ref": "#/$defs/none"}, "not in it"),
        ({"$ref": "#"}, "without end"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "end"),
        ({"const": "x" * 200_000}, "over 100000"),
    ],
)
def test_a_schema_at_fault_is_an_error_and_fetches_nothing(schema: object, says: str) -> None:
    pytest.importorskip("jsonschema")
    verdict = judged("json_schema", "{}", data={} if schema is None else {"json_schema": schema})
    assert verdict.outcome is ERROR, verdict
    assert says in verdict.reason


def test_a_schema_bomb_ends_at_the_deadline() -> None:
    pytest.importorskip("jsonschema")
    doubling: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {"$ref": "#/$defs/d0", "$defs": doubling | {"d40": {"type": "object"}}}
    sample = Sample(completion="{}", problem=Problem(id="1", prompt="", data={"json_schema": schema}))
    with VerifierPool(workers=1, deadline_seconds=2) as pool:
        assert pool.verify([(VerifierSpec(name="json_schema"), sample)])[0].outcome is Outcome.TIMEOUT
