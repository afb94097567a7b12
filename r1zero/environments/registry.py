"""The registry of environments, as `r1zero.verifiers.registry` is for verifiers: names, plugins, options.

@environment("guess", example=Example(problem=Problem(id="1", prompt="Guess.", answer="7"), says=("5", "7")))
class Guess:
    \"\"\"Correct when the number is guessed.\"\"\"
    def __init__(self, *, max_number: int = 9) -> None: ...
    def start(self, problem): ...
    def step(self, completion): ...

# pyproject.toml
[project.entry-points."r1zero.environments"]
guess = "my_environments:Guess"
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from r1zero.data.plugins import Plugins
from r1zero.data.records import Problem
from r1zero.environments.base import Environment

E = TypeVar("E", bound=Callable[..., Environment])


@dataclass(frozen=True, kw_only=True)
class Example:
    """An episode the environment must call correct: what the conformance check starts from."""

    problem: Problem
    says: tuple[str, ...]
    """The policy's turns, in order."""


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A registered environment."""

    name: str
    factory: Callable[..., Environment]
    options: Mapping[str, Any]
    """Its keyword-only parameters and their defaults: what a recipe may set."""
    example: Example | None = None

    @property
    def code(self) -> Callable[..., Environment]:
        """The factory, as a table of plugins asks for it."""
        return self.factory


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    """An environment as a recipe names it: picklable, resolved again in each worker."""

    name: str
    """A registered name or `package.module:Class`."""
    options: Mapping[str, Any] = field(default_factory=dict)


def environment(name: str, *, example: Example | None = None) -> Callable[[E], E]:
    """Register a class (or a factory) under `name`; returns it unchanged.

    Raises ValueError at import when the name is taken or a parameter is no option (keyword-only, with a default).
    """

    def decorate(factory: E) -> E:
        PLUGINS.add(name, describe(name, factory, example))
        return factory

    return decorate


def describe(name: str, factory: Callable[..., Environment], example: Example | None = None) -> Registered:
    """Read the factory's signature; raises ValueError where a parameter is no option."""
    options = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
            raise ValueError(
                f"environment {name!r}: parameter {parameter.name!r} must be keyword-only and have a default"
            )
        options[parameter.name] = parameter.default
    return Registered(name=name, factory=factory, options=options, example=example)


PLUGINS = Plugins(
    "environment",
    group="r1zero.environments",
    builtin="r1zero.environments.tools.environment",
    describe=describe,
    named="module:Class",
)
get, names, broken, load_plugins = PLUGINS.get, PLUGINS.names, PLUGINS.broken, PLUGINS.load


def resolve(spec: EnvironmentSpec) -> Registered:
    """The environment of `spec`. Raises UserError for an unknown one, an unknown option, or a value of another kind."""
    return PLUGINS.resolve(spec.name, spec.options)
