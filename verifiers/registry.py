"""The registry: a verifier is a function that returns a `Verdict`, found by name.

Three ways in: the decorator (built-ins and a recipe's own module), the entry-point group `r1zero.verifiers`
(installed plugins), and `package.module:function` written in a recipe. A verifier in ten lines, in its own package:

    # my_verifiers.py
    from r1zero.verifiers import Outcome, Sample, Verdict, register

    @register("palindrome", example=Sample(completion="<answer>abba</answer>", answer="4"))
    def palindrome(completion: str, answer: str, *, ignore_case: bool = False) -> Verdict:
        \"\"\"Correct when the last answer tag holds a palindrome of `answer` letters.\"\"\"
        _, tag, text = completion.rpartition("<answer>")
        word = text.partition("</answer>")[0].strip()
        if not tag:
            return Verdict(Outcome.UNPARSEABLE, reason="no answer tag")
        word = word.lower() if ignore_case else word
        good = word == word[::-1] and len(word) == int(answer)
        return Verdict(Outcome.CORRECT if good else Outcome.WRONG, reason=f"{len(word)} letters", extracted=word)

    # pyproject.toml
    [project.entry-points."r1zero.verifiers"]
    palindrome = "my_verifiers:palindrome"

Then `pip install .`, `r1zero verifiers check palindrome`, and `verifier: palindrome` in a recipe. What stands before
the `*` is taken from `Sample` by name; what stands after it is an option that a recipe may set.
"""

from __future__ import annotations

import importlib
import inspect
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError, unknown_name
from r1zero.verifiers.text.cut import has_closed_fence
from r1zero.verifiers.text.extract import CUT, is_committed

ENTRY_POINT_GROUP = "r1zero.verifiers"

Judges = Literal["answer", "format", "shaping"]
"""What a verifier judges: the answer; the form it stands in, whatever it says; or length, language, repetition and the
like, where an empty text may be without fault."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a verifier may ask for, by parameter name. Picklable: it crosses into the worker."""

    completion: str
    """The assistant's whole turn: the template's prefill, if it has one, then the text sampled."""
    answer: str = ""
    """The gold answer."""
    problem: Problem = field(default_factory=lambda: Problem(id="", prompt=""))
    """The whole problem, for a verifier that needs more than the answer (tests, options)."""
    prompt: str = ""
    """The prompt as sent, template applied."""
    finish_reason: FinishReason = "stop"
    num_tokens: int = 0
    """Tokens sampled."""


INPUTS = frozenset(f.name for f in fields(Sample))


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """A registered verifier."""

    name: str
    function: Callable[..., Verdict]
    inputs: tuple[str, ...]
    """Which fields of `Sample` it takes."""
    options: Mapping[str, Any]
    """Its keyword-only parameters and their defaults: what a recipe may set."""
    example: Sample | None = None
    """A sample it must call correct; `r1zero verifiers check` starts from it."""
    preload: tuple[str, ...] = ()
    """Modules that workers import before they take up a sample: slow imports that are not to cost a deadline."""
    judges: Judges = "answer"

    def __call__(self, sample: Sample, options: Mapping[str, Any] | None = None) -> Verdict:
        """The verdict on `sample`, timed. What the function raises propagates; the pool turns it into `error`.

        One rule for a completion cut off at the limit, whichever verifier looks: it counts only where it has committed
        itself to an answer (a closed answer tag, a complete box or marked answer with no open reasoning behind it, a
        closed fence). All else is `truncated`, never `wrong` or `unparseable`; penalties judge what is there.
        """
        began = time.perf_counter()
        cut = sample.finish_reason == "length" and self.judges != "shaping"
        if cut and not (is_committed(sample.completion) or has_closed_fence(sample.completion)):
            return Verdict(Outcome.TRUNCATED, reason=CUT, seconds=time.perf_counter() - began)
        verdict = self.function(**{name: getattr(sample, name) for name in self.inputs}, **(options or {}))
        if not isinstance(verdict, Verdict):
            raise TypeError(f"verifier {self.name!r} returned {type(verdict).__name__}, not a Verdict")
        outcome = verdict.outcome
        if outcome is Outcome.UNPARSEABLE and sample.finish_reason == "length":
            outcome = Outcome.TRUNCATED
        return replace(verdict, outcome=outcome, seconds=time.perf_counter() - began)


@dataclass(frozen=True, kw_only=True)
class VerifierSpec:
    """A verifier as a recipe names it: picklable, resolved again in each worker."""

    name: str
    """A registered name or `package.module:function`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values for the verifier's keyword-only parameters."""

    def of(self, problem: Problem) -> VerifierSpec:
        """Who judges `problem`: the verifier it names itself, else this one."""
        return VerifierSpec(name=problem.verifier, options=problem.verifier_options) if problem.verifier else self


_registry: dict[str, Verifier] = {}


class NameTakenError(ValueError):
    """Two verifiers want one name."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(f"verifier name {name!r} is taken by {owner}: choose another")
        self.name = name


def register(
    name: str, *, example: Sample | None = None, preload: tuple[str, ...] = (), judges: Judges = "answer"
) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Register a verifier function under `name`; returns the function unchanged.

    Positional parameters are taken from `Sample` by name; keyword-only parameters are options and need defaults.
    example: a sample it calls correct; preload: modules its workers import beforehand; judges: see `Judges`.
    Raises ValueError at import when the name is taken or a parameter is none of `Sample`'s fields.
    """

    def decorate(function: Callable[..., Verdict]) -> Callable[..., Verdict]:
        known = _registry.get(name)
        if known is not None and _identity(known.function) != _identity(function):
            raise NameTakenError(name, _identity(known.function))
        _registry[name] = replace(describe(name, function), example=example, preload=preload, judges=judges)
        return function

    return decorate


def describe(name: str, function: Callable[..., Verdict]) -> Verifier:
    """Read a function's signature into a `Verifier`; raises ValueError where it does not fit."""
    inputs, options = [], {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                raise ValueError(f"verifier {name!r}: option {parameter.name!r} needs a default")
            options[parameter.name] = parameter.default
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.name in INPUTS:
            inputs.append(parameter.name)
        else:
            raise ValueError(
                f"verifier {name!r}: parameter {parameter.name!r} is not one of {', '.join(sorted(INPUTS))}; "
                "an option must be keyword-only (after `*`)"
            )
    return Verifier(name=name, function=function, inputs=tuple(inputs), options=options)


def _identity(function: Callable[..., Verdict]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def get(name: str) -> Verifier:
    """The verifier registered as `name`, or named `package.module:function`.

    Raises UserError with the near names, or with what kept the plugin of that name from being imported.
    """
    load_plugins()
    if name in _broken:
        raise UserError(f"verifier {name!r} cannot be used: {_broken[name]}")
    if name in _registry:
        return _registry[name]
    if ":" in name:
        return _imported(name)
    error = unknown_name("verifier", name, _registry)
    raise UserError(f"{error}; one that is not installed is named module:function")


def _imported(name: str) -> Verifier:
    """The verifier named `package.module:function`."""
    module_name, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:  # whatever a user's module does at import is theirs to read, on one line
        raise UserError(f"verifier {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    for verifier in _registry.values():
        if verifier.function is function:
            return verifier
    try:
        return describe(name, function)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name!r} is no verifier: {error}") from error


def resolve(spec: VerifierSpec) -> Verifier:
    """The verifier of `spec`, after checking its options. Raises UserError for an unknown option or a value of another
    kind than its default."""
    verifier = get(spec.name)
    for option, value in spec.options.items():
        if option not in verifier.options:
            raise unknown_name(f"option of verifier {spec.name!r}", option, verifier.options)
        default = verifier.options[option]
        if not same_kind(value, default):
            raise UserError(
                f"option {option!r} of verifier {spec.name!r} is {value!r}, which is no {type(default).__name__} "
                f"(its default is {default!r})"
            )
    return verifier


def same_kind(value: object, default: object) -> bool:
    """Whether `value` may stand where `default` does. YAML writes 1 for 1.0 and knows lists only."""
    if default is None:
        return True
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, list | tuple):
        return isinstance(value, list | tuple)
    if isinstance(default, int) and not isinstance(default, bool):
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, type(default))


def names() -> list[str]:
    """All registered names that can be used, built-in and plugin, sorted."""
    load_plugins()
    return sorted(_registry.keys() - _broken.keys())


def broken() -> dict[str, str]:
    """Plugins that cannot be used, by name: why not."""
    load_plugins()
    return dict(_broken)


_broken: dict[str, str] = {}
_plugins: Literal["unread", "reading", "read"] = "unread"
_reading = threading.RLock()


def load_plugins() -> None:
    """Import the built-ins and every installed plugin, once.

    A plugin that fails to import, or that wants a name that is taken, breaks nobody else: its name is kept in `broken`,
    and using that name raises the reason. A name that two want is then nobody's, so that none is taken for the other.
    """
    global _plugins
    if _plugins == "read":
        return
    with _reading:
        if _plugins != "unread":  # "reading": called by a plugin's own import, which has the built-ins by now
            return
        importlib.import_module("r1zero.verifiers.builtin")
        _plugins = "reading"
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            _load_plugin(entry)
        _plugins = "read"


def _load_plugin(entry: EntryPoint) -> None:
    try:
        loaded = entry.load()
        # An entry point may name a decorated function, or a module whose import registers several.
        if callable(loaded) and all(verifier.function is not loaded for verifier in _registry.values()):
            register(entry.name)(loaded)
    except NameTakenError as error:
        _broken[error.name] = f"plugin {entry.value}: {error}"
    except Exception as error:  # noqa: BLE001  it runs a stranger's code, and any failure of it is kept and named
        _broken[entry.name] = f"plugin {entry.value} cannot be imported: {type(error).__name__}: {error}"
