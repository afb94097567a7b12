"""The registry: how a verifier gets in, what it may ask for, and what a broken one costs."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, Verdict, VerifierSpec, get, names, register, registry, resolve


def word(completion: str, answer: str, *, ignore_case: bool = False, limit: float = 1.0) -> Verdict:
    """Correct when the completion is the answer."""
    same = completion.lower() == answer.lower() if ignore_case else completion == answer
    return Verdict(Outcome.CORRECT if same else Outcome.WRONG)


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    names()
    monkeypatch.setattr(registry.PLUGINS, "known", dict(registry.PLUGINS.known))
    monkeypatch.setattr(registry.PLUGINS, "failed", dict(registry.PLUGINS.failed))


def test_a_verifier_takes_what_it_names_and_its_options_have_defaults() -> None:
    register("word")(word)
    verifier = get("word")
    assert verifier.inputs == ("completion", "answer")
    assert verifier.options == {"ignore_case": False, "limit": 1.0}
    assert verifier(Sample(completion="Yes", answer="yes")).outcome is Outcome.WRONG
    assert verifier(Sample(completion="Yes", answer="yes"), {"ignore_case": True}).correct


def test_a_name_taken_twice_fails_but_the_same_function_again_does_not() -> None:
    register("word")(word)
    register("word")(word)
    with pytest.raises(ValueError, match=r"verifier name 'word' is taken by .*test_registry:word: choose another"):
        register("word")(lambda completion: Verdict(Outcome.WRONG))


def test_a_signature_that_does_not_fit_fails_at_import() -> None:
    def unknown(completion: str, gold: str) -> Verdict:
        return Verdict(Outcome.WRONG)

    def no_default(completion: str, *, limit: int) -> Verdict:
        return Verdict(Outcome.WRONG)

    with pytest.raises(ValueError, match="'gold' is not one of answer, completion"):
        register("unknown")(unknown)
    with pytest.raises(ValueError, match="option 'limit' needs a default"):
        register("no_default")(no_default)


def test_an_unknown_name_fails_with_the_near_ones() -> None:
    with pytest.raises(UserError, match=r"unknown verifier 'answer_tag': did you mean 'answer_tags'"):
        get("answer_tag")


def test_a_function_can_be_named_by_its_module() -> None:
    assert get("r1zero.verifiers.tags:answer_tags") is get("answer_tags")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"):
        get("no_such_module:f")
    with pytest.raises(UserError, match="has no attribute 'nothing'"):
        get("r1zero.verifiers.tags:nothing")
    with pytest.raises(UserError, match=r"is no verifier: .*parameter 'text'"):
        get("r1zero.verifiers.tags:visible")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ignore_cas": True}, "did you mean 'ignore_case'"),
        ({"ignore_case": 1}, "is 1, which is no bool"),
        ({"limit": "2"}, "is '2', which is no float"),
        ({"limit": True}, "is True, which is no float"),
    ],
)
def test_a_wrong_option_fails_before_anything_runs(options: dict[str, Any], message: str) -> None:
    register("word")(word)
    with pytest.raises(UserError, match=message):
        resolve(VerifierSpec(name="word", options=options))


def test_yaml_may_write_a_whole_number_for_a_float() -> None:
    register("word")(word)
    assert resolve(VerifierSpec(name="word", options={"limit": 2})).name == "word"


def test_unparseable_is_truncated_when_the_completion_was_cut_off() -> None:
    def blank(completion: str) -> Verdict:
        return Verdict(Outcome.UNPARSEABLE)

    register("blank")(blank)
    assert get("blank")(Sample(completion="so")).outcome is Outcome.UNPARSEABLE
    assert get("blank")(Sample(completion="so", finish_reason="length")).outcome is Outcome.TRUNCATED


def test_what_is_no_verdict_is_a_type_error() -> None:
    register("none")(lambda completion: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="returned NoneType, not a Verdict"):
        get("none")(Sample(completion=""))


def test_scores_default_by_outcome_and_stay_in_range() -> None:
    assert Verdict(Outcome.CORRECT).score == 1.0
    assert Verdict(Outcome.TIMEOUT).score == 0.0
    assert Verdict(Outcome.ERROR).score is None
    assert Verdict(Outcome.WRONG, score=-1.0).score == -1.0
    for score in (1.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="lies in"):
            Verdict(Outcome.CORRECT, score=score)
    with pytest.raises(ValueError, match="has no score"):
        Verdict(Outcome.ERROR, score=0.0)


def plugin(name: str, value: str) -> EntryPoint:
    return EntryPoint(name=name, value=value, group=registry.PLUGINS.group)


def test_a_plugin_that_cannot_be_imported_is_named_and_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken_plugin.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.PLUGINS.load_entry(plugin("broken", "broken_plugin:f"))
    with pytest.raises(UserError, match=r"'broken' cannot be used: plugin broken_plugin:f.*no_such_dependency"):
        get("broken")
    assert "broken" in registry.broken()
    assert "answer_tags" in names()


def test_a_name_that_a_plugin_and_a_built_in_want_is_nobodys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "greedy_plugin.py").write_text(
        "from r1zero.verifiers import Outcome, Verdict\n"
        "def f(completion: str) -> Verdict:\n    return Verdict(Outcome.CORRECT)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.PLUGINS.load_entry(plugin("answer_tags", "greedy_plugin:f"))
    with pytest.raises(UserError, match=r"'answer_tags' cannot be used: plugin greedy_plugin:f: .*is taken by"):
        get("answer_tags")
    assert "answer_tags" not in names()


def test_an_entry_point_may_name_a_plain_function_or_a_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "good_plugin.py").write_text(
        "from r1zero.verifiers import Outcome, Verdict, get, register\n"
        "get('answer_tags')\n"  # a plugin may use the others while it is imported
        "def plain(completion: str) -> Verdict:\n    return Verdict(Outcome.CORRECT)\n"
        "@register('good_second')\n"
        "def second(completion: str) -> Verdict:\n    return Verdict(Outcome.CORRECT)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.PLUGINS.load_entry(plugin("good_first", "good_plugin:plain"))
    registry.PLUGINS.load_entry(plugin("good", "good_plugin"))
    assert {"good_first", "good_second"} <= set(names())
    assert "good" not in names()
