"""Where a checkpoint came from: `lineage.json`, with every run on the way, its settings, its data and its parents.

A run's parents are found in its settings: whatever there is the path of a run folder, of a checkpoint in one, or of a
file one wrote. The record stands in the run's folder and in the checkpoint's own, so that it goes where the weights go.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from r1zero import models
from r1zero.config import StageConfig
from r1zero.runs.checkpoint import latest_checkpoint
from r1zero.runs.folder import RunFolder, write_atomically
from r1zero.training.reference_logprobs import model_fingerprint

FILE = "lineage.json"
_FROM_MANIFEST = ("command", "git", "versions", "template", "data")


def record(config: StageConfig, checkpoint: Path) -> None:
    """Write the lineage of a run that has ended with `checkpoint`."""
    if int(os.environ.get("RANK", "0")):  # one process of several writes
        return
    folder = RunFolder(config.run.root, config.run.name).path
    text = json.dumps(trace(folder), indent=1, ensure_ascii=False) + "\n"
    write_atomically(folder / FILE, text)
    if checkpoint.parent == folder / "checkpoints":
        write_atomically(checkpoint / FILE, text)


def trace(folder: Path) -> dict[str, Any]:
    """The lineage of a run folder: its last checkpoint, and all runs that led to it, parents first."""
    runs: dict[str, dict[str, Any]] = {}
    _visit(folder, latest_checkpoint(folder / "checkpoints"), runs)
    last = runs[_key(folder, latest_checkpoint(folder / "checkpoints"))]
    return {"checkpoint": last["checkpoint"], "weights": last["weights"], "runs": list(runs.values())}


def _visit(folder: Path, checkpoint: Path | None, runs: dict[str, dict[str, Any]]) -> None:
    """Add the run in `folder`, as it was at `checkpoint`, after its parents."""
    key = _key(folder, checkpoint)
    if key in runs:
        return
    settings = RunFolder(folder.parent, folder.name).read_config()
    parents = {}
    for name, value in _texts(settings):
        parent = _parent(value, runs)
        if parent is not None:
            parents[name] = parent
    model = settings.get("model", {}).get("path", "")
    if model and "model.path" not in parents:
        parents["model.path"] = {"path": model, "weights": model_fingerprint(models.resolve(model))}
    manifest = _json(folder / "manifest.json")
    runs[key] = {
        "run": str(folder),
        "stage": settings.get("stage"),
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "weights": None if checkpoint is None else model_fingerprint(checkpoint),
        "parents": parents,
        **{name: manifest[name] for name in _FROM_MANIFEST if name in manifest},
        "settings": settings,
    }


def _parent(value: str, runs: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """What a setting's text refers to, where that is another run's; that run is added to `runs`."""
    path = Path(value)
    if not value or not path.exists():
        return None
    if path.is_file():
        run, checkpoint = path.parent, None
    elif path.parent.name == "checkpoints":
        run, checkpoint = path.parent.parent, path
    else:
        run, checkpoint = path, latest_checkpoint(path / "checkpoints")
    if not ((run / "config.yaml").is_file() and (run / "manifest.json").is_file()):
        return _carried(path, runs)
    if path.is_file():
        checkpoint = latest_checkpoint(run / "checkpoints")
    _visit(run, checkpoint, runs)
    found = {"path": value, "run": str(run)}
    if path.is_file():
        return found | {"sha256": _sha256(path)}
    return found | (
        {} if checkpoint is None else {"checkpoint": str(checkpoint), "weights": model_fingerprint(checkpoint)}
    )


def _carried(path: Path, runs: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    """A checkpoint that was moved out of its run still has its lineage with it."""
    if not (path / FILE).is_file():
        return None
    known = _json(path / FILE)
    for run in known["runs"]:
        runs.setdefault(_key(Path(run["run"]), run["checkpoint"]), run)
    return {"path": str(path), "run": known["runs"][-1]["run"], "weights": model_fingerprint(path)}


def _key(folder: Path, checkpoint: Path | str | None) -> str:
    return f"{folder} {checkpoint}"


def _texts(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and value of each text in nested settings; list items have their number. The run's own folder is not
    looked at."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if prefix or key != "run":
                yield from _texts(value, f"{prefix}{key}.")
    elif isinstance(settings, list):
        for number, value in enumerate(settings):
            yield from _texts(value, f"{prefix}{number}.")
    elif isinstance(settings, str):
        yield prefix.removesuffix("."), settings


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
