"""Public data sets by one word: `data.source: preset:gsm8k`. Each is a YAML file beside this one.

A file says where the set is (`source`, `config`, `split`), how its rows are read (settings of `DataConfig`, or of the
text stages' data), who judges it (`verifier`), its `licence`, and `count`, the rows it should have before any filter.
What the user sets besides `source` goes before what the preset says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import yaml

from r1zero.config.data import DataConfig
from r1zero.config.offline import TextDataConfig
from r1zero.errors import UserError, unknown_name

PREFIX = "preset:"
C = TypeVar("C", DataConfig, TextDataConfig)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What one file says."""

    name: str
    kind: str
    """`math`, `code`, `instructions`: problems; `text`: demonstrations or preferences."""
    settings: Mapping[str, Any]
    """Of the data section."""
    licence: str
    count: int
    """Rows of the split, before any filter."""


def names() -> list[str]:
    """The presets that ship with the package."""
    entries = resources.files(__name__).iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml"))


@cache
def get(name: str) -> Preset:
    """The preset called so. Raises UserError with the near names."""
    if name not in names():
        raise unknown_name("preset", name, names())
    said = yaml.safe_load(resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8"))
    about = {key: said.pop(key) for key in ("kind", "licence", "count")}
    return Preset(name=name, settings=said, **about)


def resolve(config: C) -> C:
    """`config` with its preset's settings, if its source is one, where the user has not set another value.

    Raises UserError for an unknown preset and for one of the other kind of stage.
    """
    if not config.source.startswith(PREFIX):
        return config
    preset = get(config.source.removeprefix(PREFIX))
    if (preset.kind == "text") != isinstance(config, TextDataConfig):
        wanted = (
            "sft, dpo and reward_model" if preset.kind == "text" else "stages that train on problems with a verifier"
        )
        raise UserError(f"preset {preset.name!r} is for {wanted}")
    defaults = type(config)()
    untouched = {
        key: value
        for key, value in preset.settings.items()
        if key != "source" and getattr(config, key) == getattr(defaults, key)
    }
    return replace(config, source=preset.settings["source"], **untouched)
