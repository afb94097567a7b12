"""The conformance suite: built-ins pass it, and each fault it looks for is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from r1zero.verifiers.running import conformance

FAULTS = '''
import os, signal, time
from r1zero.verifiers import Outcome, Sample, Verdict, register

EXAMPLE = Sample(completion="<answer>2</answer>", answer="2")

def judge(completion, answer):
    return Verdict(Outcome.CORRECT if f"<answer>{answer}</answer>" in completion else Outcome.WRONG)

@register("sound", example=EXAMPLE)
def sound(completion: str, answer: str) -> Verdict:
    """Correct when the tag holds the answer."""
    return judge(completion, answer)

@register("silent", example=EXAMPLE)
def silent(completion: str, answer: str) -> Verdict:
    return judge(completion, answer)

@register("without_example")
def without_example(completion: str, answer: str) -> Verdict:
    """Correct when the tag holds the answer."""
    return judge(completion, answer)

@register("always", example=EXAMPLE)
def always(completion: str, answer: str) -> Verdict:
    """Correct."""
    return Verdict(Outcome.CORRECT)

@register("needs_main_thread", example=EXAMPLE)
def needs_main_thread(completion: str, answer: str) -> Verdict:
    """Correct when the tag holds the answer, found under an alarm."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    return judge(completion, answer)

@register("moody", example=EXAMPLE)
def moody(completion: str, answer: str) -> Verdict:
    """Correct when the tag holds the answer, most of the time."""
    return Verdict(Outcome.CORRECT, score=0.5 + (time.perf_counter_ns() % 1000) / 2000)

@register("evaluates", example=EXAMPLE)
def evaluates(completion: str, answer: str) -> Verdict:
    """Correct when the tag's value is the answer's."""
    text = completion.rpartition("<answer>")[2].partition("</answer>")[0]
    try:
        value = eval(text)
    except BaseException:
        value = None
    return Verdict(Outcome.CORRECT if value == int(answer.split(".")[0]) else Outcome.WRONG)

@register("slow_on_length", example=EXAMPLE)
def slow_on_length(completion: str, answer: str) -> Verdict:
    """Correct when the tag holds the answer; quadratic."""
    if len(completion) > 100_000:
        time.sleep(60)
    return judge(completion, answer)

@register("fails_on_null", example=EXAMPLE)
def fails_on_null(completion: str, answer: str) -> Verdict:
    """Correct when the tag holds the answer."""
    if "\\\\0" in completion:
        raise ValueError("null byte")
    return judge(completion, answer)

@register("set_option", example=EXAMPLE)
def set_option(completion: str, answer: str, *, words: object = frozenset({"a"})) -> Verdict:
    """Correct when the tag holds the answer."""
    return judge(completion, answer)
'''


@pytest.fixture(autouse=True)
def _importable(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "faulty_verifiers.py").write_text(FAULTS.replace("\\\\0", "\\x00"))
    monkeypatch.syspath_prepend(str(folder))


def failed(name: str) -> dict[str, str]:
    return {check.name: check.note for check in conformance.check(name) if not check.passed}


@pytest.mark.parametrize(
    ("name", "check", "note"),
    [
        ("silent", "says in its docstring what counts as correct", "no docstring"),
        ("without_example", "accepts its own example", "no example: @register"),
        ("always", "stands empty text", "'' (0 characters): correct, score 1"),
        ("always", "refuses its example against another gold", "is correct against gold"),
        ("needs_main_thread", "works off the main thread", "signal only works in main thread"),
        ("moody", "gives the same verdict again", "then correct, score 0."),
        ("evaluates", "evaluates no text of the model's in the worker", "was run"),
        ("slow_on_length", "stands 1 MB text", "ran over 1 s: killed"),
        ("fails_on_null", "stands null bytes", "raised ValueError: null byte"),
        ("set_option", "options can be written in a recipe", "frozenset"),
    ],
)
def test_each_fault_is_found(name: str, check: str, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "DEADLINE_SECONDS", 1.0)
    assert note in failed(f"faulty_verifiers:{name}")[check]


def test_a_sound_verifier_passes() -> None:
    assert failed("faulty_verifiers:sound") == {}


@pytest.mark.parametrize("name", ["answer_tags", "think_format", "choice", "language", "overlong", "repetition"])
def test_built_in_verifiers_pass(name: str) -> None:
    assert failed(name) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["math", "answer", "cosine_length", "reasoning_gym", "exact", "f1", "regex", "json_schema", "instructions"],
)
def test_larger_built_in_verifiers_pass(name: str) -> None:
    if name in ("reasoning_gym", "json_schema"):
        pytest.importorskip("jsonschema" if name == "json_schema" else name)
    assert failed(name) == {}


def test_the_check_runs_where_it_is_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    conformance.check("faulty_verifiers:evaluates")
    assert list(tmp_path.iterdir()) == []
