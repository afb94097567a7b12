"""Ctrl-C and SIGTERM as a wish to stop, heeded where a run can be gone on with."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from r1zero.errors import Requeue
from r1zero.runs.tracking import say


class StopRequest:
    """What has been asked for so far."""

    number = 0
    """The signal that asked for a stop; 0: none has."""

    @property
    def requested(self) -> bool:
        return self.number != 0


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Ctrl-C or SIGTERM asks for a stop after the step under way; a second one stops at once.

    Python hears signals in a program's main thread alone: a run in another one cannot be asked, and says so.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        say("not in the main thread: Ctrl-C and SIGTERM will not be waited for; the checkpoints are what stays")
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.number = number
        say("stopping after this step, with a checkpoint; once more to stop at once", style="bold yellow")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopped(number: int) -> KeyboardInterrupt:
    """What to raise for a run that heeded signal `number`; its exit code tells a scheduler what to do."""
    return Requeue() if number == signal.SIGTERM else KeyboardInterrupt()
