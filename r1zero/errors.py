"""The one exception that is the user's to mend: the CLI prints it on one line and exits with 2, without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake in a file, a name, a setting or the machine; the message says what to do about it."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that nothing is registered under: says the near ones first, then all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    known = f"known: {', '.join(names) or 'none'}" if len(names) <= 40 or not near else ""
    return UserError(f"unknown {kind} {name!r}: {hint}{known}".rstrip())
