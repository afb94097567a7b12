"""Recipes: a name or a YAML file, and overrides, in; a checked config out. Imports neither torch nor vLLM.

A recipe names what differs from the defaults; `extends: OTHER` starts from another recipe instead, so that two
algorithms are a short diff of one another.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, cast, get_type_hints

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from r1zero.config import (
    DPOConfig,
    GRPOConfig,
    LabConfig,
    PPOConfig,
    RejectionSamplingConfig,
    RewardModelConfig,
    SFTConfig,
    StageConfig,
)
from r1zero.errors import UserError, unknown_name

STAGES: dict[str, tuple[type[StageConfig], str]] = {
    "grpo": (GRPOConfig, "r1zero.train.loop:train_grpo"),
    "ppo": (PPOConfig, "r1zero.train.loop:train_ppo"),
    "sft": (SFTConfig, "r1zero.train.sft:train_sft"),
    "dpo": (DPOConfig, "r1zero.train.dpo:train_dpo"),
    "reward_model": (RewardModelConfig, "r1zero.train.reward_model:train_reward_model"),
    "rejection_sampling": (RejectionSamplingConfig, "r1zero.train.rejection:train_rejection_sampling"),
    "lab": (LabConfig, "r1zero.lab:train_lab"),
}
"""Stage -> its config, and the function `(config, *, resume) -> last checkpoint` that runs it (imported when run)."""


def names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in resources.files("r1zero").joinpath("recipes").iterdir()
        if entry.name.endswith(".yaml")
    )


def read(name_or_path: str) -> dict[str, Any]:
    """A recipe's settings as nested dicts, what it extends merged in.

    Raises UserError for an unknown name, a file that is no YAML mapping, or recipes that extend one another in a ring.
    """
    return _read(name_or_path, ())


def _read(name_or_path: str, chain: tuple[str, ...]) -> dict[str, Any]:
    if name_or_path in chain:
        raise UserError(f"recipes extend one another in a ring: {' -> '.join([*chain, name_or_path])}")
    if name_or_path in names():
        text = resources.files("r1zero").joinpath("recipes", f"{name_or_path}.yaml").read_text(encoding="utf-8")
    elif name_or_path.endswith((".yaml", ".yml")) or "/" in name_or_path:
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"recipe {name_or_path} cannot be read: {error}") from error
    else:
        raise unknown_name("recipe", name_or_path, names())
    try:
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise UserError(f"recipe {name_or_path} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(settings, dict):
        raise UserError(f"recipe {name_or_path} must be a mapping of settings, is a {type(settings).__name__}")
    base = settings.pop("extends", None)
    if base is not None and not isinstance(base, str):
        raise UserError(f"recipe {name_or_path}: extends must name one recipe, is {base!r}")
    return merged(_read(base, (*chain, name_or_path)), settings) if base else settings


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mappings key by key, everything else replaced whole."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def load(name_or_path: str, overrides: Sequence[str] = (), *, settings: Mapping[str, Any] | None = None) -> StageConfig:
    """The checked config of a recipe with `settings` and then `--section.key value` overrides laid on it.

    Raises UserError for a key that does not exist (with the near one), a value of the wrong type or out of range.
    """
    stage, settings, parser = _prepare(name_or_path, settings or {})
    known = _keys(stage)
    _refuse_unknown([key for key, _ in _flat(settings)], known, f"recipe {name_or_path}")
    options = [word[2:].partition("=")[0] for word in overrides if word.startswith("--")]
    _refuse_unknown(options, {*known, "print_config"}, "options")
    for option in options:
        if option not in known and option.rpartition(".")[0] not in {*known, ""}:
            # The parser would take it for one new key and forget the others.
            raise UserError(f"--{option} reaches too deep into a setting that is a mapping: set it in a recipe file")
    try:
        namespace = parser.parse_args(list(overrides), namespace=parser.parse_object(settings))
        return stage(**vars(parser.instantiate(namespace)))
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise UserError(f"recipe {name_or_path}: {' '.join(str(error).split())}") from error


def help_text(name_or_path: str) -> str:
    """Every setting with its type, default and meaning."""
    return _prepare(name_or_path, {})[2].format_help()


def _prepare(name_or_path: str, over: Mapping[str, Any]) -> tuple[type[StageConfig], dict[str, Any], ArgumentParser]:
    settings = merged(read(name_or_path), over)
    name = settings.get("stage", "grpo")
    if name not in STAGES:
        raise unknown_name("stage", str(name), STAGES)
    config = STAGES[name][0]
    for field in dataclasses.fields(config):
        is_section = dataclasses.is_dataclass(cast(object, field.default_factory))
        if is_section and not isinstance(settings.get(field.name, {}), dict):
            raise UserError(
                f"recipe {name_or_path}: section {field.name} must be a mapping, is {settings[field.name]!r}"
            )
    if isinstance(settings.setdefault("run", {}), dict):
        settings["run"].setdefault("name", Path(name_or_path).stem)
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(
        exit_on_error=False, prog=f"r1zero train {name_or_path}", usage="%(prog)s [--section.key value ...]"
    )
    parser.add_class_arguments(config)
    return config, settings, parser


def run(config: StageConfig, *, resume: bool) -> Path:
    """Run the stage a config is of; returns its last checkpoint."""
    module, _, function = STAGES[config.stage][1].partition(":")
    checkpoint: Path = getattr(importlib.import_module(module), function)(config, resume=resume)
    return checkpoint


def _keys(config: type, prefix: str = "") -> set[str]:
    """Every dotted key of a config class, sections included."""
    keys = set()
    for name, hint in get_type_hints(config).items():
        keys.add(prefix + name)
        if dataclasses.is_dataclass(hint):
            keys |= _keys(cast(type, hint), f"{prefix}{name}.")
    return keys


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted keys and values of nested mappings; a mapping that is itself a value (a filter) is flattened too far, and
    `_refuse_unknown` looks at its known parent instead."""
    pairs: list[tuple[str, Any]] = []
    for key, value in settings.items():
        pairs += [(f"{prefix}{key}", value)]
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{key}.")
    return pairs


def _refuse_unknown(keys: Sequence[str], known: set[str], where: str) -> None:
    free = {key for key in known if not any(other.startswith(f"{key}.") for other in known)}
    for key in keys:
        parents = {".".join(key.split(".")[:n]) for n in range(1, key.count(".") + 1)}
        if key not in known and not parents & free:
            raise unknown_name(f"setting in {where}", key, known)
