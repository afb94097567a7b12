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

import importlib
import inspect
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from r1zero.data.records import Problem
from r1zero.environments.base import Environment
from r1zero.errors import UserError, unknown_name
from r1zero.verifiers.registry import same_kind

ENTRY_POINT_GROUP = "r1zero.environments"
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


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec:
    """An environment as a recipe names it: picklable, resolved again in each worker."""

    name: str
    """A registered name or `package.module:Class`."""
    options: Mapping[str, Any] = field(default_factory=dict)


_registry: dict[str, Registered] = {}
_broken: dict[str, str] = {}
_loading = threading.RLock()
_loaded = False


def environment(name: str, *, example: Example | None = None) -> Callable[[E], E]:
    """Register a class (or a factory) under `name`; returns it unchanged.

    Raises ValueError at import when the name is taken or a parameter is no option (keyword-only, with a default).
    """

    def decorate(factory: E) -> E:
        known = _registry.get(name)
        if known is not None and _identity(known.factory) != _identity(factory):
            raise ValueError(f"environment name {name!r} is taken by {_identity(known.factory)}: choose another")
        _registry[name] = describe(name, factory, example)
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


def _identity(factory: Callable[..., Any]) -> str:
    return f"{factory.__module__}:{factory.__qualname__}"


def get(name: str) -> Registered:
    """The environment of that name, or `package.module:Class`. Raises UserError with the near names."""
    load_plugins()
    if name in _broken:
        raise UserError(f"environment {name!r} cannot be used: {_broken[name]}")
    if name in _registry:
        return _registry[name]
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise UserError(f"{unknown_name('environment', name, _registry)}; one not installed is named module:Class")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
        return next((one for one in _registry.values() if one.factory is factory), None) or describe(name, factory)
    except Exception as error:  # whatever a user's module does at import is theirs to read, on one line
        raise UserError(f"environment {name!r} cannot be used: {type(error).__name__}: {error}") from error


def resolve(spec: EnvironmentSpec) -> Registered:
    """The environment of `spec`. Raises UserError for an unknown option or a value of another kind than its default."""
    registered = get(spec.name)
    for option, value in spec.options.items():
        if option not in registered.options:
            raise unknown_name(f"option of environment {spec.name!r}", option, registered.options)
        default = registered.options[option]
        if not same_kind(value, default):
            raise UserError(
                f"option {option!r} of environment {spec.name!r} is {value!r}, which is no {type(default).__name__} "
                f"(its default is {default!r})"
            )
    return registered


def names() -> list[str]:
    """All names that can be used, built-in and plugin, sorted."""
    load_plugins()
    return sorted(_registry.keys() - _broken.keys())


def load_plugins() -> None:
    """Import the built-ins and every installed plugin, once; one that fails keeps its reason and breaks nobody else."""
    global _loaded
    with _loading:
        if _loaded:
            return
        _loaded = True  # first: a plugin's own import may ask for a name
        importlib.import_module("r1zero.environments.tools.environment")
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            _load_plugin(entry)


def _load_plugin(entry: EntryPoint) -> None:
    try:
        loaded = entry.load()
        if callable(loaded) and all(one.factory is not loaded for one in _registry.values()):
            environment(entry.name)(loaded)
    except Exception as error:  # noqa: BLE001  it runs a stranger's code, and any failure of it is kept and named
        _broken[entry.name] = f"plugin {entry.value}: {type(error).__name__}: {error}"
