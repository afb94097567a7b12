"""What stands behind the paths given to `r1zero report`: runs, evaluations, or folders that hold several of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from r1zero.errors import UserError
from r1zero.runs.folder import RunFolder

_DEPTH = 2
"""Folders down from the one given in which runs are looked for: a lab's runs, a pipeline's stages."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as its folder tells it."""

    path: Path
    name: str
    """Its folder's name, with the one above it where two runs share it."""
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    lineage: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    """metrics.jsonl."""

    @property
    def stage(self) -> str:
        return str(self.config.get("stage", ""))

    @property
    def seed(self) -> Any:
        return self.config.get("run", {}).get("seed")

    @property
    def experiment(self) -> str:
        """The settings as text without seeds and names: equal for the seeds of one experiment."""
        settings = {key: value for key, value in self.config.items() if key != "run"}
        settings["run"] = {k: v for k, v in self.config.get("run", {}).items() if k not in ("name", "root", "seed")}
        settings["data"] = {k: v for k, v in self.config.get("data", {}).items() if k != "seed"}
        return re.sub(r"seed-\d+", "seed-*", json.dumps(settings, sort_keys=True, default=str))

    def files(self, kind: str) -> list[tuple[int, Path]]:
        """Step and path of the `kind` (`rollouts` or `eval`) files, in order of steps."""
        found = (self.path / kind).glob("step-*.jsonl.zst")
        return sorted((int(path.name[5:-10]), path) for path in found if path.name[5:-10].isdigit())

    @property
    def terms(self) -> list[Mapping[str, Any]]:
        """The reward's verifier terms, each with its `key` in the rollouts."""
        terms = self.config.get("reward", {}).get("terms", [])
        return [{**term, "key": term.get("name") or term["verifier"]} for term in terms]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """One finished evaluation."""

    path: Path
    name: str
    results: Mapping[str, Any]
    """results.json."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A pipeline's or lab's own summary, as it printed it."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Found:
    runs: tuple[Run, ...]
    evaluations: tuple[Evaluation, ...]
    tables: tuple[Table, ...]


def find(paths: Sequence[Path]) -> Found:
    """Everything in `paths`, in their order, each once. Raises UserError for a path that holds nothing to show."""
    runs: dict[Path, Path] = {}
    evaluations: dict[Path, Path] = {}
    tables = []
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is no folder: name a run's folder, such as runs/tiny-cpu, or an evaluation's")
        mine = list(run_folders(path))
        for run in mine:
            runs.setdefault(run.resolve(), run)
        if not mine and ((path / "results.json").is_file() or (path / "manifest.json").is_file()):
            evaluations.setdefault(path.resolve(), path)
        elif not mine:
            raise UserError(f"{path} holds no run (no metrics.jsonl) and no evaluation (no results.json)")
        if mine and (path / "table.txt").is_file():
            tables.append(Table(name=path.name, text=(path / "table.txt").read_text(encoding="utf-8")))
    return Found(
        runs=tuple(_run(path, name) for path, name in _named(list(runs.values()))),
        evaluations=tuple(
            Evaluation(path=path, name=name, results=_results(path))
            for path, name in _named(list(evaluations.values()))
        ),
        tables=tuple(tables),
    )


def run_folders(path: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The run folders at or under `path`, in the order in which they were begun."""
    if (path / "metrics.jsonl").is_file() and (path / "config.yaml").is_file():
        yield path
    elif depth:
        inner = [folder for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
        found = [run for folder in inner for run in run_folders(folder, depth - 1)]
        yield from sorted(found, key=_begun)


def evaluation_folders(path: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """The folders of finished evaluations at or under `path`, by name."""
    if (path / "results.json").is_file() and (path / "results.md").is_file():
        yield path
    elif depth and not (path / "metrics.jsonl").is_file():
        for folder in sorted(path.iterdir()):
            if folder.is_dir() and not folder.name.startswith("."):
                yield from evaluation_folders(folder, depth - 1)


def _begun(run: Path) -> tuple[float, str]:
    """When the run wrote its manifest, which it does once, at its start."""
    manifest = run / "manifest.json"
    return (manifest if manifest.is_file() else run / "config.yaml").stat().st_mtime, str(run)


def _run(path: Path, name: str) -> Run:
    try:
        config = RunFolder(path.parent, path.name).read_config()
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path / 'config.yaml'} cannot be read ({error})") from error
    if not isinstance(config, Mapping):
        raise UserError(f"{path / 'config.yaml'} holds no settings")
    return Run(
        path=path,
        name=name,
        config=config,
        manifest=_json(path / "manifest.json"),
        lineage=_json(path / "lineage.json"),
        rows=[row for row in RunFolder(path.parent, path.name).metrics() if isinstance(row, Mapping) and "step" in row],
    )


def _named(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Each path with the shortest end of it that no other has."""
    parts = [path.resolve().parts for path in paths]
    named = []
    for path, own in zip(paths, parts, strict=True):
        length = 1
        while length < len(own) and sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        named.append((path, "/".join(own[-length:])))
    return named


def _results(path: Path) -> Mapping[str, Any]:
    """results.json. Raises UserError where the evaluation was not finished."""
    from r1zero.eval.folder import read_results  # imports torch, which a page of runs does not wait for

    return read_results(path)


def _json(path: Path) -> Mapping[str, Any]:
    """A file's object; empty where there is no such file: a run that was killed has no lineage."""
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} cannot be read ({error})") from error
    return found if isinstance(found, Mapping) else {}
