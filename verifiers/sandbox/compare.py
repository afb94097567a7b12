"""Whether a program printed what it should have."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?")
_INTEGER = re.compile(r"[+-]?\d+")


def same_output(printed: str, expected: str, *, strict: bool = False, tolerance: float = 0.0) -> bool:
    """True when both hold the same lines of the same tokens: blanks around a token and empty lines do not count.

    strict: the same lines, blanks at the end of a line and empty lines at the end of the text aside. tolerance: two
    numbers, one of them no integer, are the same within it: absolute up to 1, relative above.
    """
    if strict:
        return _lines(printed) == _lines(expected)
    mine, theirs = _rows(printed), _rows(expected)
    if mine == theirs or not tolerance:
        return mine == theirs
    return len(mine) == len(theirs) and all(
        len(a) == len(b) and all(x == y or _near(x, y, tolerance) for x, y in zip(a, b, strict=True))
        for a, b in zip(mine, theirs, strict=True)
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _rows(text: str) -> list[list[str]]:
    return [tokens for line in text.split("\n") if (tokens := line.split())]


def _near(printed: str, expected: str, tolerance: float) -> bool:
    if not _NUMBER.fullmatch(printed) or not _NUMBER.fullmatch(expected):
        return False
    if _INTEGER.fullmatch(printed) and _INTEGER.fullmatch(expected):
        return False
    return abs(float(printed) - float(expected)) <= tolerance * max(1.0, abs(float(expected)))
