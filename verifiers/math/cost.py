"""The cost gate: what a reader of untrusted text may spend. Each bound is checked before the work it bounds.

Lengths and nesting are checked on the text, before the parser; sizes of numbers before each power, factorial or
product, by logarithms. What is over a bound raises `OverLimitError`: the verdict is `unparseable`, "over limit".
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from r1zero.verifiers.math.nodes import OverLimitError

MAX_ANSWER_CHARS = 4000
"""An answer; the longest gold of MATH, Minerva and OlympiadBench has about 400."""
MAX_NESTING = 32
"""Brackets of all kinds inside one another; the deepest gold has 5."""
MAX_DEPTH = 170
"""Nested rules of the grammar; a bracket takes five, `\\sqrt\\sqrt 2` and `2^2^2` one each."""
MAX_DIGITS = 4000
"""Digits of one written number (Python refuses to read more than 4,300)."""
MAX_BITS = 1 << 17
"""Bits of an exact number: 2024^4046 has 44,427 and 2024! has 19,279."""
MAX_TEN_EXPONENT = 4000
"""Digits of a number in e-notation, written out."""
MAX_MODULAR_EXPONENT_BITS = 2048
MAX_FACTORIAL = 5000
MAX_MATRIX_CELLS = 400
MAX_ITEMS = 1000
"""Items of a list, set or tuple."""
MAX_COMPARED_ITEMS = 100
"""Items left to compare pairwise after the structurally equal ones are taken out."""
MAX_SUM_TERMS = 1000
MAX_ALTERNATIVES = 64
"""Values that the plus-minus signs of one answer may stand for."""
MAX_STEPS = 30_000
"""Nodes evaluated for one verdict, at 40 digits or 2,000 bits; more digits and bits count more. About 0.2 s."""
MAX_NUMERIC_LOG2 = 1 << 22
"""|log2| of a number in floating point of any precision."""


class TinyPowerError(OverLimitError):
    """A power so close to 0 that an integral to infinity may take it for 0."""


_BRACKET = re.compile(r"[({\[]|[)}\]]")
_DIGITS = re.compile(rf"\d{{{MAX_DIGITS + 1},}}")


def check_text(text: str) -> None:
    """Raises OverLimitError for a text that is too long, too deeply nested or holds too long a number. Linear time."""
    if len(text) > MAX_ANSWER_CHARS:
        raise OverLimitError(f"{len(text)} characters, more than {MAX_ANSWER_CHARS}")
    if _DIGITS.search(text):
        raise OverLimitError(f"a number of more than {MAX_DIGITS} digits")
    depth = 0
    for found in _BRACKET.finditer(text):
        depth += 1 if found.group() in "({[" else -1
        if depth > MAX_NESTING:
            raise OverLimitError(f"more than {MAX_NESTING} brackets inside one another")


_spent = threading.local()


@contextmanager
def budget(steps: int = MAX_STEPS) -> Iterator[None]:
    """What `spend` may spend inside, in this thread: one verdict's work, however its parts multiply (nested sums)."""
    before = getattr(_spent, "left", None)
    _spent.left = steps
    try:
        yield
    finally:
        _spent.left = before


def spend(steps: int = 1) -> None:
    """Count work off the budget, if there is one. Raises OverLimitError when it is used up."""
    left = getattr(_spent, "left", None)
    if left is not None:
        _spent.left = left - steps
        if left < steps:
            raise OverLimitError("more work than one verdict may take")


def power_bits(base: Fraction, exponent: int) -> float:
    """Bits of base**exponent, from logarithms alone."""
    if abs(base) in (0, 1):
        return 1.0
    return float(max(base.numerator.bit_length(), base.denominator.bit_length())) * abs(exponent)


def checked_power(base: Fraction, exponent: int) -> Fraction:
    """base**exponent, exactly. Raises OverLimitError when the result would have more than MAX_BITS bits."""
    if exponent.bit_length() > 64 or power_bits(base, exponent) > MAX_BITS:
        if abs(base) in (0, 1):
            return base if exponent % 2 else base * base
        raise OverLimitError("a power of more than 2^17 bits")
    spend(int(power_bits(base, exponent)) // 2000)
    return base**exponent
