"""A part of a run in a process of its own, by the command line a user would type. Imports neither torch nor vLLM."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from r1zero.errors import REQUEUE, Requeue, UserError

Launch = Callable[[str, Sequence[str]], None]
"""Run `python -m MODULE ARGUMENTS` to its end. Raises UserError where it fails, KeyboardInterrupt where stopped, of
which `Requeue` is the one by SIGTERM."""
PR_SET_PDEATHSIG = 1
"""Linux, prctl(2): the signal a process gets when its parent dies."""


def launch(module: str, arguments: Sequence[str]) -> None:
    """A `Launch` in a new process. Ctrl-C and SIGTERM are handed on to it and waited for; it dies with us.

    Its own session, so that a Ctrl-C at the terminal reaches it once, through us.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

    def die_with_parent() -> None:
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    stopped = 0
    child = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=sys.stderr.fileno(),  # stdout is for the pipeline's own result
        start_new_session=True,
        preexec_fn=die_with_parent,
    )

    def hand_on(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = number
        child.send_signal(number)

    # Python hands signals to a program's main thread alone.
    heard = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, hand_on) for number in heard}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    command = f"`{' '.join([module, *arguments])}`"
    # Where the child ended before it could heed the signal, the pipeline heeds it.
    if code == REQUEUE or (stopped == signal.SIGTERM and code != 130):
        raise Requeue
    if code == 130 or stopped:
        raise KeyboardInterrupt
    if code < 0:
        name = signal.Signals(-code).name
        memory = " (the system does that when memory runs out)" if -code == signal.SIGKILL else ""
        raise UserError(f"{command} was killed by {name}{memory}: mend it, then go on with --resume")
    if code:
        raise UserError(f"{command} failed, as said above: mend it, then go on with --resume")
