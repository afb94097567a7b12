"""CPU threads shared out between the runs of one machine.

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
    """`(threads, note)` for a run that starts now: `asked` where it is set, else the cores shared among the runs alive.

    A run that is alone gets every core and an empty note; else the note says what was done and what to set. Runs that
    were there before keep what they have. folder: where runs sign in (default: one of this user's in the temporary
    folder); one that cannot be written to means no sharing.
    """
    cores = available_cores()
    others = _sign_in(folder or Path(tempfile.gettempdir()) / f"r1zero-runs-{os.getuid()}")
    if asked or not others:
        return asked or cores, ""
    threads = max(cores // (others + 1), 1)
    return threads, (
        f"{others} other run{'s are' if others > 1 else ' is'} under way on this machine: this one takes {threads} of "
        f"{cores} threads (--run.threads N sets it); the others slow down less if they are resumed with --run.threads "
        f"{threads}"
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
