"""The registry: a verifier is a function that returns a `Verdict`, found by name.

Three ways in: the decorator (built-ins and a recipe's own module), the entry-point group `r1zero.verifiers`
(installed plugins), and `package.module:function` written in a recipe.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import entry_points
from typing import Any

from r1zero.errors import UserError, unknown_name
from r1zero.records import FinishReason, Problem
from r1zero.verifiers.verdict import Outcome, Verdict

ENTRY_POINT_GROUP = "r1zero.verifiers"


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
    example: Sample | None
    """A sample it must call correct; `r1zero verifiers check` starts from it."""

    def __call__(self, sample: Sample, options: Mapping[str, Any] | None = None) -> Verdict:
        """The verdict on `sample`, timed. What the function raises propagates; the pool turns it into `error`.

        A completion cut off at the limit in which no answer was found is `truncated`, not `unparseable`, whichever
        verifier looked: one rule here instead of one in each.
        """
        began = time.perf_counter()
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


_registry: dict[str, Verifier] = {}


def register(name: str, *, example: Sample | None = None) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Register a verifier function under `name`; returns the function unchanged.

    Positional parameters are taken from `Sample` by name; keyword-only parameters are options and need defaults.
    Raises ValueError at import when the name is taken or a parameter is none of `Sample`'s fields.
    """

    def decorate(function: Callable[..., Verdict]) -> Callable[..., Verdict]:
        known = _registry.get(name)
        if known is not None and _identity(known.function) != _identity(function):
            raise ValueError(f"verifier name {name!r} is taken by {_identity(known.function)}: choose another")
        _registry[name] = describe(name, function, example)
        return function

    return decorate


def describe(name: str, function: Callable[..., Verdict], example: Sample | None = None) -> Verifier:
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
    return Verifier(name=name, function=function, inputs=tuple(inputs), options=options, example=example)


def _identity(function: Callable[..., Verdict]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def get(name: str) -> Verifier:
    """The verifier registered as `name`, or named `package.module:function`. Raises UserError with the near names."""
    load_plugins()
    if name in _registry:
        return _registry[name]
    if ":" in name:
        module_name, _, attribute = name.partition(":")
        try:
            function = getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError) as error:
            raise UserError(f"verifier {name!r} cannot be imported: {error}") from error
        for verifier in _registry.values():
            if verifier.function is function:
                return verifier
        return describe(name, function)
    raise unknown_name("verifier", name, _registry)


def resolve(spec: VerifierSpec) -> Verifier:
    """The verifier of `spec`, after checking its options. Raises UserError for an unknown option."""
    verifier = get(spec.name)
    for option in spec.options:
        if option not in verifier.options:
            raise unknown_name(f"option of verifier {spec.name!r}", option, verifier.options)
    return verifier


def names() -> list[str]:
    """All registered names, built-in and plugin, sorted."""
    load_plugins()
    return sorted(_registry)


_plugins_loaded = False


def load_plugins() -> None:
    """Import the built-ins and every installed plugin, once. A plugin that fails to import is named in the error."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    importlib.import_module("r1zero.verifiers.builtin")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = entry.load()
        except Exception as error:
            raise UserError(f"verifier plugin {entry.name!r} ({entry.value}) cannot be imported: {error}") from error
        # An entry point may name a decorated function, or a module whose import registers several.
        if callable(loaded) and all(v.function is not loaded for v in _registry.values()):
            register(entry.name)(loaded)
