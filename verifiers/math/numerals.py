"""Numerals: what the digits of an answer are worth, and how they were written."""

from __future__ import annotations

from fractions import Fraction

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.nodes import BaseN, Mul, Node, Num, OverLimitError, Pow, UnreadableError
from r1zero.verifiers.math.tokens import Token


def read_number(text: str) -> Num:
    """A numeral: exact for a whole number; a decimal keeps the places and digits it is written with."""
    mantissa, _, ten = text.lower().partition("e")
    exponent = int(ten or 0)
    if abs(exponent) + len(mantissa) > cost.MAX_TEN_EXPONENT:
        raise OverLimitError("an exponent of ten over the limit")
    whole, point, rest = mantissa.partition(".")
    value = Fraction(int((whole + rest) or "0"), 10 ** len(rest)) * Fraction(10) ** exponent
    if not point and not ten:
        return Num(value)
    return Num(value, len(rest) - exponent, len((whole + rest).lstrip("0")))


def read_going_on(text: str) -> Num:
    """`0.333...`: the digits at the end that are written at least twice go on for ever. Raises UnreadableError else."""
    whole, _, digits = text.partition(".")
    for size in range(1, len(digits) // 2 + 1):
        period = digits[-size:]
        if digits.endswith(2 * period):
            head = Fraction(int((whole or "0") + digits), 10 ** len(digits))
            return Num(head + Fraction(int(period), (10**size - 1) * 10 ** len(digits)))
    raise UnreadableError("digits that go on without repeating")


def digits_of(node: Node) -> str:
    if isinstance(node, BaseN):
        return node.digits
    assert isinstance(node, Num)
    if node.places is None:
        return str(node.value)
    whole = node.value * 10**node.places
    text = str(int(whole)).rjust(node.places + 1, "0")
    return f"{text[: len(text) - node.places]}.{text[len(text) - node.places :]}" if node.places else text


_WORD_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
               "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip


def flat(tokens: list[Token]) -> str:
    """An index as a name: `{\\text{eight}}` is 8, `{MB}` is MB."""
    flat = "".join(
        token.value.lower() if token.kind == "text" else token.value for token in tokens if token.value not in "{}"
    )
    return _WORD_BASES.get(flat, flat)


def is_mixed(whole: Num, part: Node) -> bool:
    """True for a whole number before a proper fraction of whole numbers, written as one (\\frac)."""
    if whole.places is not None or whole.value.denominator != 1 or whole.value < 1:
        return False
    if not (isinstance(part, Mul) and len(part.factors) == 2 and isinstance(part.factors[1], Pow)):
        return False
    top, bottom = part.factors[0], part.factors[1].base
    return (
        isinstance(top, Num)
        and isinstance(bottom, Num)
        and top.value.denominator == bottom.value.denominator == 1
        and 0 < top.value < bottom.value
    )
