"""Folders that are made once and kept: written under a temporary name, renamed when whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from r1zero.config import cache_dir
from r1zero.errors import UserError


def make_once(name: str, make: Callable[[Path], None]) -> Path:
    """The cached folder `name`; `make(folder)` fills it where it is not there yet.

    Two processes that want it at once: one makes it, the other waits. One that is killed leaves nothing that could be
    taken for a whole folder. Raises UserError where the cache cannot be written.
    """
    root = Path(cache_dir())
    folder = root / name
    if folder.is_dir():
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # let go with the file, also when the process is killed
            if not folder.is_dir():
                _fill(folder, make)
    except OSError as error:
        raise UserError(
            f"the cache {root} cannot be written ({error}): set R1ZERO_CACHE to a folder that can"
        ) from error
    return folder


def _fill(folder: Path, make: Callable[[Path], None]) -> None:
    for left_over in folder.parent.glob(f".{folder.name}.tmp-*"):  # we hold the lock: these are of killed runs
        shutil.rmtree(left_over)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.tmp-", dir=folder.parent))
    temporary.chmod(0o755)
    try:
        make(temporary)
        for path in temporary.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        temporary.rename(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(temporary)
