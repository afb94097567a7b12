"""CPU threads of the runs of one machine: who else runs here, and what to set.

Two runs that each take every core slow each other far more than twofold: torch's threads wait for one another, and one
that is not scheduled holds up all. Each run keeps a locked file in the machine's temporary folder; the system frees the
lock when the process ends, however it ends, so nothing has to be cleaned up.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_held: list[IO[str]] = []
"""This process's own file, open and so locked until it ends."""


def available_cores() -> int:
    """Cores that this process may run on (a container or `taskset` may leave fewer than the machine has)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trainer_threads(asked: int, folder: Path | None = None) -> tuple[int, str]:
    """`(threads, note)` for a run that starts now: `asked` where it is set, else every core.

    Where other runs are under way the note says what to set; else it is empty. The number itself does not depend on
    them: another number adds floats in another order, and a resumed run would not be the same run. folder: where runs
    sign in (default: one of this user's in the temporary folder); one that cannot be written to means no note.
    """
    cores = available_cores()
    others = _sign_in(folder or Path(tempfile.gettempdir()) / f"r1zero-runs-{os.getuid()}")
    if asked or not others:
        return asked or cores, ""
    share = max(cores // (others + 1), 1)
    return cores, (
        f"{others} other run{'s are' if others > 1 else ' is'} under way on this machine: runs that each take all "
        f"{cores} cores slow one another far more than twofold; start them with --run.threads {share}"
    )


def _sign_in(folder: Path) -> int:
    """Lock a file of our own; how many other processes hold one."""
    others = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.lock"):
            if path.name == f"{os.getpid()}.lock":
                continue
            with path.open("a") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    others += 1
                else:  # its process has ended
                    with suppress(FileNotFoundError):
                        path.unlink()
        if not _held:
            own = (folder / f"{os.getpid()}.lock").open("w")
            fcntl.flock(own, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _held.append(own)
            atexit.register(own.close)
    except OSError:
        return others
    return others
