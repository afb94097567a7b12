"""Environments by name: options, plugins, and the conformance check."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

import tests.some_environments  # noqa: F401  registers `guess`
from r1zero.data.records import Problem
from r1zero.environments import EnvironmentSpec, Example, environment, get, names, registry, resolve
from r1zero.environments.base import shortened
from r1zero.environments.conformance import check
from r1zero.errors import UserError
from tests.some_environments import Guess


def test_environments_are_found_by_name_and_by_module() -> None:
    assert {"guess", "tools"} <= set(names())
    assert get("tests.some_environments:Guess") is get("guess")
    with pytest.raises(UserError, match=r"unknown environment 'tool': did you mean 'tools'"):
        get("tool")
    with pytest.raises(UserError, match="cannot be imported: ModuleNotFoundError"):
        get("no_such_module:Thing")


def test_options_are_checked_before_a_run() -> None:
    assert resolve(EnvironmentSpec(name="guess", options={"slow_below": 3})).name == "guess"
    with pytest.raises(UserError, match="did you mean 'slow_below'"):
        resolve(EnvironmentSpec(name="guess", options={"slow_belov": 3}))
    with pytest.raises(UserError, match="is no int"):
        resolve(EnvironmentSpec(name="guess", options={"slow_below": "3"}))


def test_a_name_is_taken_once_and_a_parameter_must_be_an_option() -> None:
    with pytest.raises(ValueError, match=r"'guess' is taken by tests.some_environments:Guess"):

        @environment("guess")
        class Other(Guess):
            pass

    with pytest.raises(ValueError, match="'size' must be keyword-only"):

        @environment("sized")
        class Sized(Guess):
            def __init__(self, size: int) -> None:
                self.size = size


def test_a_plugin_that_fails_keeps_its_reason_and_one_that_works_is_found_by_its_entry_s_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry.PLUGINS, "known", dict(registry.PLUGINS.known))
    monkeypatch.setattr(registry.PLUGINS, "failed", {})
    for name, value in {"gone": "no_such_module:Thing", "endless": "tests.some_environments:Endless"}.items():
        registry.PLUGINS.load_entry(EntryPoint(name=name, value=value, group=registry.PLUGINS.group))
    assert get("endless").options["role"] == "user"
    with pytest.raises(UserError, match=r"'gone' cannot be used: plugin no_such_module:Thing cannot be imported"):
        get("gone")
    assert "gone" not in names()


def test_a_text_that_is_cut_says_how_much() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdefg", 4) == "ab\n[cut: 3 of 7 characters left out]\nfg"


@pytest.mark.parametrize("name", ["guess", "tools"])
def test_a_sound_environment_passes_the_conformance_check(name: str) -> None:
    checks = check(name)
    assert [c for c in checks if not c.passed] == []
    assert len(checks) == 11


@environment("moody", example=Example(problem=Problem(id="1", prompt="?", answer="1"), says=("hang",)))
class Moody:
    def start(self, problem: Problem) -> list[dict[str, str]]:
        return [{"role": "user", "content": problem.prompt}]

    def step(self, completion: object) -> object:
        raise RuntimeError("never")


def test_a_faulty_environment_is_found_out_by_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r1zero.environments.conformance.DEADLINE_SECONDS", 1.0)
    failed = {c.name: c.note for c in check("moody") if not c.passed}
    assert "no docstring" in failed["says in its docstring what counts as correct"]
    assert "RuntimeError: never" in failed["accepts its own example"]
    assert "stands unicode" in failed
