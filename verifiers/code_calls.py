"""Tests by call, as rows in JSON have them (APPS, LiveCodeBench), written as a script for the sandbox's tester."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a function: JSON texts, compared as values."""

    name: str
    args: str
    """A JSON list."""
    expected: str
    wrapped: bool = False
    """`expected` may be a list around the value, as APPS writes it: either is right."""


def call_script(calls: Sequence[Call], tolerance: float) -> str:
    """The calls as asserts: a method of `class Solution` where the program has one, else a function. A tuple is a list
    and a key its text, as in JSON; numbers are equal within `tolerance`, relative above 1."""
    lines = [_CALLS.replace("TOLERANCE", repr(float(tolerance)))]
    for name in dict.fromkeys(call.name for call in calls):
        lines.append(_FUNCTION.replace("NAME", name))
    for call in calls:
        got = f"_get_{call.name}()(*_args({call.args!r}))"
        kind = "_either" if call.wrapped else "_value"
        lines.append(f"assert _plain({got}) == {kind}({call.expected!r})")
    return "\n".join(lines)


_FUNCTION = """
def _get_NAME():
    try:
        solution = Solution
    except NameError:
        return NAME
    return solution().NAME
"""

# In the tester's sandbox. A number with a tolerance is a value of ours on the right: its `__eq__` is asked last, after
# the left's, which for plain data says NotImplemented.
_CALLS = """
import decimal as _decimal, json as _json_module

def _json(text, **hooks):
    try:
        return _json_module.loads(text, **hooks)
    except ValueError:
        return _json_module.loads(text, parse_int=lambda digits: int(_decimal.Decimal(digits)), **hooks)

def _keys(pairs):
    whole = pairs and all(key.lstrip("-").isdigit() for key in pairs)
    return {int(key): value for key, value in pairs.items()} if whole else pairs

def _args(text):
    return _json(text, object_hook=_keys)

def _plain(value):
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    return value

class _Near:
    def __init__(self, *values):
        self.values = values
    def __eq__(self, other):
        return any(_near(other, value) for value in self.values)
    def __repr__(self):
        return " or ".join(map(repr, self.values))

def _near(got, wanted):
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(_near, got, wanted))
    if isinstance(wanted, dict):
        return isinstance(got, dict) and got.keys() == wanted.keys() and all(_near(got[k], wanted[k]) for k in wanted)
    if TOLERANCE and (isinstance(wanted, float) or isinstance(got, float)):
        number = isinstance(got, (int, float))
        return number and (got == wanted or abs(got - wanted) <= TOLERANCE * max(1, abs(wanted)))
    return got == wanted

def _value(text):
    return _Near(_json(text)) if TOLERANCE else _json(text)

def _either(text):
    value = _json(text)
    return _Near(value, value[0])
"""
