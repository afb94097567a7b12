"""`calculator`: exact arithmetic by a parser of its own. Costs are gated before anything is computed; nothing is
evaluated."""

from __future__ import annotations

import re
from fractions import Fraction

MAX_CHARS, MAX_DEPTH, MAX_BITS = 2000, 50, 20_000
"""Of an expression; of its parentheses and signs; of any number on the way, numerator and denominator together."""
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*|\.\d+)|(\*\*|[-+*/%^()]))")


class CalculationError(ValueError):
    """What is wrong with an expression, for the policy to read."""


def calculator(expression: str) -> str:
    """Computes an arithmetic expression exactly.

    Args:
        expression: Numbers with + - * / % ^ and parentheses, such as "(12 + 3) * 4 ^ 2".
    """
    try:
        return written(calculate(expression))
    except CalculationError as error:
        return f"error: {error}"


def calculate(expression: str) -> Fraction:
    """The value of `expression`. Raises CalculationError."""
    if len(expression) > MAX_CHARS:
        raise CalculationError(f"an expression has at most {MAX_CHARS} characters")
    parser = _Parser(_tokens(expression))
    value = parser.sum(0)
    if parser.at < len(parser.tokens):
        raise CalculationError(f"{parser.tokens[parser.at]!r} is not expected there")
    return value


def written(value: Fraction) -> str:
    """An integer, an exact decimal where one of at most 30 places is, else a fraction and about how much it is."""
    if value.denominator == 1:
        return _digits(value.numerator)
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest == 1 and places <= 30:
        whole = _digits(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        return f"{'-' if value < 0 else ''}{whole[:-places]}.{whole[-places:]}"
    fraction = f"{_digits(value.numerator)}/{_digits(value.denominator)}"
    try:
        return f"{fraction} (about {float(value):.12g})"
    except OverflowError:
        return fraction


def _digits(number: int) -> str:
    """Decimal text of an integer of up to MAX_BITS bits: Python's own refuses over 4,300 digits."""
    sign, number = "-" if number < 0 else "", abs(number)
    parts = []
    while number >= 10**4000:
        number, part = divmod(number, 10**4000)
        parts.append(str(part).rjust(4000, "0"))
    return sign + str(number) + "".join(reversed(parts))


def _tokens(expression: str) -> list[str]:
    tokens, at = [], 0
    text = expression.rstrip().replace("×", "*").replace("÷", "/").replace("−", "-")
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or not text.isascii():
            raise CalculationError(f"cannot read {text[at : at + 20]!r}: numbers, + - * / % ^ and parentheses only")
        tokens.append(match[1] or match[2].replace("**", "^"))
        at = match.end()
    return tokens


class _Parser:
    """Recursive descent: sum > product > sign > power > atom."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def sum(self, depth: int) -> Fraction:
        value = self.product(depth)
        while self.peek() in ("+", "-"):
            operator, other = self.take(), self.product(depth)
            value = _gated(value + other if operator == "+" else value - other)
        return value

    def product(self, depth: int) -> Fraction:
        value = self.sign(depth)
        while self.peek() in ("*", "/", "%"):
            operator, other = self.take(), self.sign(depth)
            if operator != "*" and other == 0:
                raise CalculationError("division by zero")
            value = _gated(value * other if operator == "*" else value / other if operator == "/" else value % other)
        return value

    def sign(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise CalculationError(f"nested over {MAX_DEPTH} deep")
        if self.peek() in ("+", "-"):
            return self.sign(depth + 1) if self.take() == "+" else -self.sign(depth + 1)
        return self.power(depth)

    def power(self, depth: int) -> Fraction:
        base = self.atom(depth)
        if self.peek() != "^":
            return base
        self.take()
        exponent = self.sign(depth + 1)  # to the right first: 2^3^2 = 2^9, and 2^-1
        if exponent.denominator != 1:
            raise CalculationError("an exponent must be a whole number")
        if base == 0 and exponent < 0:
            raise CalculationError("division by zero")
        if abs(exponent) > MAX_BITS or abs(exponent) * _bits(base) > MAX_BITS:
            if base not in (0, 1, -1):
                raise CalculationError("the power is too large")
            exponent %= 2 if base == -1 else 1
            exponent += base == 0
        return _gated(Fraction(base ** int(exponent)))

    def atom(self, depth: int) -> Fraction:
        if not self.peek():
            raise CalculationError("the expression ends too early")
        token = self.take()
        if token == "(":
            value = self.sum(depth + 1)
            if self.peek() != ")":
                raise CalculationError("a parenthesis is not closed")
            self.take()
            return value
        if token[0] not in ".0123456789":
            raise CalculationError(f"{token!r} is not expected there")
        return Fraction(token if token[-1] != "." else token[:-1])


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _gated(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise CalculationError("the number has too many digits")
    return value
