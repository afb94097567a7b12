"""Which run a command means: a new one, or one to go on with, begun with the same settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r1zero.config import StageConfig
from r1zero.errors import UserError
from r1zero.runs.checkpoint import latest_checkpoint, step_of
from r1zero.runs.folder import RunFolder, plain
from r1zero.runs.tracking import say

# What a resumed run may have otherwise than it began with: where, how long and how fast it runs, not what it computes.
_MAY_CHANGE = re.compile(
    r"run\.(?!seed$)|health|engine(?!\.(?:name|dtype)$)|eval|optimizer\.(?:micro_batch_tokens|max_skipped)$"
    r"|reward\.(?:workers|deadline_seconds|memory_gib)$"
)


# Where a setting's value of the version before is now: a run begun then goes on with it.
_MOVED = {
    "r1zero.models.tiny_preferences:": "r1zero.data.miniature.preferences:",
    "r1zero.models.tiny_style:": "r1zero.data.miniature.style:",
    "r1zero.models.tiny_tasks:": "r1zero.data.miniature.tasks:",
}


def find_run(config: StageConfig, *, resume: bool) -> tuple[RunFolder, Path | None]:
    """The run's folder, not yet opened, and the checkpoint to go on from.

    Raises UserError for a run that is there and not to be resumed, or the other way round, and for one that was begun
    with other settings: it would not be the same run.
    """
    folder = RunFolder(config.run.root, config.run.name)
    if folder.exists and not resume:
        raise UserError(
            f"{folder.path} holds a run already: add --resume to go on with it, give --run.name another name, "
            f"or delete the folder"
        )
    if resume and not folder.exists:
        raise UserError(f"nothing to resume: {folder.path} holds no run")
    if folder.exists:
        begun, now = _flat(_moved(folder.read_config())), _flat(plain(config))
        # A setting that only one side has came or went with a version of the program.
        changed = [key for key in now if key in begun and begun[key] != now[key] and not _MAY_CHANGE.match(key)]
        if changed:
            raise UserError(
                f"{folder.path} was begun with other settings: "
                + ", ".join(f"{key} {begun[key]!r}, now {now[key]!r}" for key in changed[:5])
                + ("" if len(changed) <= 5 else f" and {len(changed) - 5} more")
                + ": resume it with the settings it began with, or give --run.name another name"
            )
    return folder, latest_checkpoint(folder.checkpoints)


def _moved(settings: Any) -> Any:
    """`settings` with the names of today."""
    if isinstance(settings, Mapping):
        return {key: _moved(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [_moved(value) for value in settings]
    if isinstance(settings, str):
        for old, new in _MOVED.items():
            settings = settings.replace(old, new)
    return settings


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    pairs: dict[str, Any] = {}
    for key, value in settings.items():
        pairs |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return pairs


def complete(folder: RunFolder, checkpoint: Path | None, steps: int) -> bool:
    """True, said aloud, where the run has its last step already."""
    if checkpoint is None or step_of(checkpoint) < steps:
        return False
    say(f"{folder.path} is complete: its last checkpoint is {checkpoint}; --run.steps N goes on to step N")
    return True
