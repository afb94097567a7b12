"""Recipes: a name or a YAML file, and overrides, in; a checked config out. Imports neither torch nor vLLM.

A recipe names what differs from the defaults; `extends: OTHER` starts from another recipe instead, so that two
algorithms are a short diff of one another.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from r1zero.config import (
    DPOConfig,
    GRPOConfig,
    LabConfig,
    MeasureConfig,
    PipelineConfig,
    PPOConfig,
    RejectionSamplingConfig,
    RewardModelConfig,
    SFTConfig,
    StageConfig,
)
from r1zero.config.plain import plain
from r1zero.config.stage_links import ordered
from r1zero.errors import EXIT_CODES, UserError, first_line, unknown_name

C = TypeVar("C")
_PARSERS: dict[type, ArgumentParser] = {}

STAGES: dict[str, type[StageConfig]] = {
    "grpo": GRPOConfig,
    "ppo": PPOConfig,
    "sft": SFTConfig,
    "dpo": DPOConfig,
    "reward_model": RewardModelConfig,
    "rejection_sampling": RejectionSamplingConfig,
    "lab": LabConfig,
    "pipeline": PipelineConfig,
}
"""Stage -> its config; what runs it is in `r1zero.pipelines.stages`."""


def setting_names() -> list[str]:
    """Every dotted setting of every stage, for a shell's completion."""
    return sorted({key for config in STAGES.values() for key in _keys(config)})


def names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in resources.files("r1zero.config").joinpath("recipes").iterdir()
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
        text = resources.files("r1zero.config").joinpath("recipes", f"{name_or_path}.yaml").read_text(encoding="utf-8")
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
        raise UserError(f"recipe {name_or_path} is not YAML: {first_line(error)}") from error
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
    stage, prepared = _prepare(name_or_path, settings or {})
    if stage is PipelineConfig:
        return _load_pipeline(prepared, overrides, f"recipe {name_or_path}")
    return checked(stage, prepared, overrides, f"recipe {name_or_path}")


def from_settings(settings: Mapping[str, Any], overrides: Sequence[str], where: str) -> StageConfig:
    """The checked config of settings that are no recipe's; `where` names them in errors."""
    return checked(_stage_class(settings, where), settings, overrides, where)


def checked(config: type[C], settings: Mapping[str, Any], overrides: Sequence[str], where: str) -> C:
    """`config` made of `settings` with `overrides` laid on them. Raises UserError as `load` does."""
    known = _keys(config)
    _refuse_unknown([key for key, _ in _flat(settings)], known, where)
    options = [word[2:].partition("=")[0] for word in overrides if word.startswith("--")]
    _refuse_unknown(options, {*known, "print_config"}, f"options of {where}")
    for option in options:
        if option not in known and option.rpartition(".")[0] not in {*known, ""}:
            # The parser would take it for one new key and forget the others.
            raise UserError(f"--{option} reaches too deep into a setting that is a mapping: set it in a recipe file")
    parser = _parser(config)
    try:
        # A copy: the parser puts its own objects into what it is given.
        namespace = parser.parse_args(list(overrides), namespace=parser.parse_object(deepcopy(dict(settings))))
        return config(**vars(parser.instantiate(namespace)))
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise UserError(f"{where}: {_plainly(str(error))}") from error


def _plainly(message: str) -> str:
    """The parser's message on one line, without the names of its own and Python's machinery."""
    message = re.sub(r'^Parser key "([^"]+)":', r"\1:", " ".join(message.split()))
    if entry := re.search(r"^(\S+): .*class_path '([\w.]+)': Option '([^']+)' is not accepted", message):
        key, path, option = entry.groups()  # of a list's entry, such as one of reward.terms
        fields = dataclasses.fields(getattr(sys.modules[path.rpartition(".")[0]], path.rpartition(".")[2]))
        return str(unknown_name(f"setting in {key}", option, (one.name for one in fields)))
    return re.sub(r"<class '(\w+)'>", r"\1", message).replace("typing.Literal[", "Literal[")


OFTEN_CHANGED = (
    *("model.path", "data.source", "template", "sampling.max_tokens", "sampling.temperature", "reward.terms"),
    *("algorithm.prompts_per_step", "algorithm.group_size", "algorithm.loss", "algorithm.beta"),
    *("algorithm.clip_low", "algorithm.clip_high"),
    *("batch_size", "epochs", "optimizer.lr", "optimizer.micro_batch_tokens", "engine.name", "eval.data.source"),
    *("eval.every", "run.name", "run.root", "run.steps", "run.seed", "run.checkpoint_every", "run.threads"),
)
"""The settings that people change, in the order of the line; `--help` of a stage shows those that it has."""


def help_text(name_or_path: str, *, every: bool = False) -> str:
    """The settings people change with this recipe's values, or `every` one with its type, default and meaning."""
    parser = _parser(_prepare(name_or_path, {})[0])
    parser.prog = f"r1zero train {name_or_path}"
    if every:
        return parser.format_help()
    values = dict(_flat(plain(load(name_or_path))))
    meanings = {action.dest: " ".join((action.help or "").split()) for action in parser._actions}
    lines = [f"usage: {parser.prog} [--resume] [--section.key value ...]", ""]
    for key in OFTEN_CHANGED:
        if key in values:
            value = yaml.safe_dump(values[key], default_flow_style=True, width=10_000).partition("\n")[0]
            meaning = textwrap.shorten(meanings.get(key, "").partition(" (type")[0], 110, placeholder=" …")
            lines.append(f"  --{key} {value[:60]}\n{'':<8}{meaning}" if meaning else f"  --{key} {value[:60]}")
    return "\n".join(
        [*lines, "", f"shown with this recipe's values; {parser.prog} --help-all: every setting", EXIT_CODES]
    )


def _prepare(name_or_path: str, over: Mapping[str, Any]) -> tuple[type[StageConfig], dict[str, Any]]:
    settings = merged(read(name_or_path), over)
    config = _stage_class(settings, f"recipe {name_or_path}")
    if isinstance(settings.setdefault("run", {}), dict):
        settings["run"].setdefault("name", Path(name_or_path).stem)
    return config, settings


def _stage_class(settings: Mapping[str, Any], where: str) -> type[StageConfig]:
    """The config class that `settings` are for, once each of its sections is a mapping."""
    name = settings.get("stage", "grpo")
    if name not in STAGES:
        raise unknown_name("stage", str(name), STAGES)
    config = STAGES[name]
    for field in dataclasses.fields(config):
        is_section = dataclasses.is_dataclass(cast(object, field.default_factory))
        if is_section and not isinstance(settings.get(field.name, {}), dict):
            raise UserError(f"{where}: section {field.name} must be a mapping, is {settings[field.name]!r}")
    return config


def _parser(config: type) -> ArgumentParser:
    """Made once a class: reading the docstrings takes a tenth of a second, and a pipeline has many stages."""
    if config not in _PARSERS:
        set_parsing_settings(docstring_parse_attribute_docstrings=True)
        parser = ArgumentParser(exit_on_error=False, usage="%(prog)s [--section.key value ...]")
        parser.add_class_arguments(config)
        _PARSERS[config] = parser
    return _PARSERS[config]


# -- pipelines -------------------------------------------------------------------------------------------------------


def _load_pipeline(settings: Mapping[str, Any], overrides: Sequence[str], where: str) -> PipelineConfig:
    """A pipeline with the complete settings of all its stages, each checked as a recipe of its own is."""
    own, inner = _split_overrides(overrides)
    parts: dict[str, dict[str, Any]] = {}
    for kind in ("stages", "measures"):
        entries = settings.get(kind) or {}
        if not isinstance(entries, dict) or not all(isinstance(entry, dict | None) for entry in entries.values()):
            raise UserError(f"{where}: {kind} must map names to settings")
        # `NAME: null` takes away one of the recipe that is extended.
        entries = {name: entry for name, entry in entries.items() if entry is not None}
        parts[kind] = entries
        for other, name in inner:
            if other == kind and name not in entries:
                raise unknown_name(f"name in --{kind}.{name}", name, entries)
    outer = {key: value for key, value in settings.items() if key != "measures"}
    pipeline = checked(PipelineConfig, {**outer, "stages": parts["stages"]}, own, where)
    folder = str(Path(pipeline.run.root) / pipeline.run.name)
    stages: dict[str, dict[str, Any]] = {}
    for name, entry in parts["stages"].items():
        place = f"stage {name} of {where}"
        recipe = entry.get("recipe", "")
        full = merged(read(recipe) if recipe else {}, {key: value for key, value in entry.items() if key != "recipe"})
        if full.get("stage") in ("pipeline", "lab"):
            raise UserError(f"{place}: a {full['stage']} cannot be a stage of a pipeline")
        full = merged({"run": {"seed": pipeline.run.seed}}, merged(full, {"run": {"name": name, "root": folder}}))
        config = from_settings(full, inner.get(("stages", name), ()), place)
        if (config.run.name, config.run.root) != (name, folder):
            raise UserError(f"{place}: the pipeline names its stages' runs: leave out run.name and run.root")
        stages[name] = {"recipe": recipe, **plain(config)}
    measures = {
        name: checked(MeasureConfig, entry, inner.get(("measures", name), ()), f"measure {name} of {where}")
        for name, entry in parts["measures"].items()
    }
    return dataclasses.replace(pipeline, stages=ordered(stages, where), measures=measures)


def _split_overrides(overrides: Sequence[str]) -> tuple[list[str], dict[tuple[str, str], list[str]]]:
    """A pipeline's own overrides, and those of each stage and measure with `--stages.NAME.` taken off."""
    known = {"print_config", *(field.name for field in dataclasses.fields(PipelineConfig))}
    own: list[str] = []
    inner: dict[tuple[str, str], list[str]] = {}
    current = own
    for word in overrides:
        if word.startswith("--"):
            kind, _, rest = word[2:].partition("=")[0].partition(".")
            name, _, key = rest.partition(".")
            if kind not in known:
                raise unknown_name("setting of a pipeline", kind, known)
            if kind in ("stages", "measures"):
                if not key:
                    raise UserError(f"{word}: say which of its settings, as --{kind}.NAME.section.key VALUE")
                current = inner.setdefault((kind, name), [])
                word = "--" + word.removeprefix(f"--{kind}.{name}.")
            else:
                current = own
        current.append(word)
    return own, inner


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
