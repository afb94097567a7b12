"""Ctrl-C and SIGTERM as a wish to stop, heeded where a run can be gone on with."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from r1zero.runs.tracking import say


class StopRequest:
    requested = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Ctrl-C or SIGTERM asks for a stop after the step under way; a second one stops at once."""
    stop = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        say("stopping after this step, with a checkpoint; once more to stop at once", style="bold yellow")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
