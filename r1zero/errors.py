"""The one exception that is the user's to mend: the CLI prints it on one line and exits with 2, without a traceback."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable


class UserError(Exception):
    """A mistake in a file, a name, a setting or the machine; the message says what to do about it."""


REQUEUE = 75
"""Exit code of a run that SIGTERM ended with a checkpoint (`EX_TEMPFAIL` of sysexits.h): to be started again."""

EXIT_CODES = """\
exit codes: 0 done; 2 a mistake to mend; 130 stopped by Ctrl-C; 75 stopped by SIGTERM (a scheduler's): a run is then
stopped after the step under way, with a checkpoint: start it again with --resume"""


class Requeue(KeyboardInterrupt):
    """SIGTERM has stopped a run where it can be gone on with."""


def first_line(error: Exception) -> str:
    """What a library's error says, on one line; its type's name where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def at_least(low: float, kind: type[int] | type[float] = int) -> Callable[[str], float]:
    """An argparse `type` for numbers of `low` or more; argparse prints the message and exits with 2."""

    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' if kind is int else ''}number") from None
        if not value >= low:
            raise argparse.ArgumentTypeError(f"must be {low:g} or more, got {text}")
        return value

    return number


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that nothing is registered under: says the near ones first, then all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    known = f"known: {', '.join(names) or 'none'}" if len(names) <= 40 or not near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}{known}".rstrip())
