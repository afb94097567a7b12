"""References between the stages of a pipeline, or the variants of a lab: `stage:NAME` is the last checkpoint of
another, `stage:NAME/FILE` a file it wrote. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from r1zero.errors import UserError, unknown_name

PREFIX = "stage:"
S = TypeVar("S", bound=Mapping[str, Any])


def substituted(settings: Any, place: Callable[[str, str], str]) -> Any:
    """`settings` with each reference replaced by `place(stage, file)`; file is empty for a checkpoint."""
    if isinstance(settings, Mapping):
        return {key: substituted(value, place) for key, value in settings.items()}
    if isinstance(settings, list | tuple):
        return [substituted(value, place) for value in settings]
    if isinstance(settings, str) and settings.startswith(PREFIX):
        stage, _, file = settings.removeprefix(PREFIX).partition("/")
        return place(stage, file)
    return settings


def references(settings: Any, key: str = "") -> Iterator[tuple[str, str, str]]:
    """(dotted key, stage, file) of every reference in a stage's settings."""
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield from references(value, f"{key}.{name}" if key else str(name))
    elif isinstance(settings, list | tuple):
        for number, value in enumerate(settings):
            yield from references(value, f"{key}.{number}")
    elif isinstance(settings, str) and settings.startswith(PREFIX):
        stage, _, file = settings.removeprefix(PREFIX).partition("/")
        yield key, stage, file


def ordered(stages: Mapping[str, S], where: str) -> dict[str, S]:
    """`stages` in the order they can run: as written, but each after those it refers to.

    So a recipe that extends another can put a stage between two of that one's. Raises UserError for a reference to no
    stage, and for stages that refer to one another in a ring.
    """
    for name, settings in stages.items():
        for key, stage, _ in references(settings):
            if stage not in stages:
                raise UserError(f"stage {name} of {where}: {key}: {unknown_name('stage', stage, stages)}")
    result: dict[str, S] = {}
    while len(result) < len(stages):
        waiting = {name: settings for name, settings in stages.items() if name not in result}
        ready = [name for name in waiting if all(stage in result for _, stage, _ in references(waiting[name]))]
        if not ready:
            raise UserError(f"{where}: stages start from one another in a ring: {' -> '.join(_ring(waiting))}")
        result[ready[0]] = waiting[ready[0]]
    return result


def _ring(waiting: Mapping[str, S]) -> list[str]:
    """One ring among stages that all wait for another of them."""
    path = [next(iter(waiting))]
    while path.count(path[-1]) == 1:
        path.append(next(stage for _, stage, _ in references(waiting[path[-1]]) if stage in waiting))
    return path[path.index(path[-1]) :]
