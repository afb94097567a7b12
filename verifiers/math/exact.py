"""Exact values: closed rational expressions as fractions, rational functions as residues in a prime field.

Sizes are bounded before each power, factorial and sum (cost gate). Two rational functions of degree d that differ have
the same residue at a random point of a prime field with probability at most d/p (Schwartz-Zippel), and (x+1)^5000
costs one modular power."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.nodes import (
    Add,
    Call,
    Const,
    Mul,
    Node,
    Num,
    OverLimitError,
    Percent,
    Pow,
    Sym,
    UndefinedError,
    bits,
    substitute,
)

PRIMES = (2305843009213693921, 2305843009213693693)
"""Two primes below 2^61 that are 1 modulo 4, so that -1 has a square root (for i)."""


def exact(node: Node) -> Fraction | None:
    """The value of a closed rational expression; None when it is not one. Raises OverLimitError and UndefinedError."""
    cost.spend()
    match node:
        case Num(value):
            return value
        case Add(terms):
            total = Fraction(0)
            for term in terms:
                part = exact(term)
                if part is None:
                    return None
                total += part
                cost.spend(bits(total) // 2000)
            return total
        case Mul(factors):
            product = Fraction(1)
            for factor in factors:
                part = exact(factor)
                if part is None:
                    return None
                product *= part
                cost.spend(bits(product) // 2000)
                if product.numerator.bit_length() + product.denominator.bit_length() > 2 * cost.MAX_BITS:
                    raise OverLimitError("a product of more than 2^18 bits")
            return product
        case Pow(base, exponent):
            power = exact(exponent)
            bottom = exact(base)
            if power is None or bottom is None:
                return None
            return _exact_power(bottom, power)
        case Percent(inner):
            whole = exact(inner)
            return None if whole is None else whole / 100
        case Call(name, args):
            return _exact_call(name, args)
        case _:
            return None


def _exact_power(base: Fraction, power: Fraction) -> Fraction | None:
    if base == 0:
        if power <= 0:
            raise UndefinedError("zero to a power that is not positive")
        return base
    if power.denominator == 1:
        return cost.checked_power(base, power.numerator)
    if base < 0 or power.denominator > 64:
        return None
    top, bottom = _whole_root(base.numerator, power.denominator), _whole_root(base.denominator, power.denominator)
    if top is None or bottom is None:
        return None
    return cost.checked_power(Fraction(top, bottom), power.numerator)


def _whole_root(value: int, index: int) -> int | None:
    """The whole index-th root of value >= 0, or None."""
    if index == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value.bit_length() > 4096:
        return None
    low, high = 0, 1 << (value.bit_length() // index + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**index <= value else (low, middle - 1)
    return low if low**index == value else None


def _exact_call(name: str, args: tuple[Node, ...]) -> Fraction | None:
    if name in ("sum", "prod"):
        return _exact_range(name, args)
    if name not in ("factorial", "gamma", "binom", "abs", "floor", "ceil", "mod", "root", "gcd", "lcm", "max", "min"):
        return None
    values: list[Fraction] = []
    for arg in args:
        value = exact(arg)
        if value is None:
            return None
        values.append(value)
    match name, values:
        case "factorial", [n]:
            if n.denominator != 1 or n < 0:
                return None
            if n > cost.MAX_FACTORIAL:
                raise OverLimitError(f"the factorial of more than {cost.MAX_FACTORIAL}")
            return Fraction(math.factorial(int(n)))
        case "gamma", [n]:
            if n.denominator != 1 or n < 1:
                return None
            return _exact_call("factorial", (Num(n - 1),))
        case "binom", [n, k]:
            if n.denominator != 1 or k.denominator != 1 or n < 0:
                return None
            if n > cost.MAX_FACTORIAL:
                raise OverLimitError(f"a binomial of more than {cost.MAX_FACTORIAL}")
            return Fraction(math.comb(int(n), int(k)) if k >= 0 else 0)
        case "abs", [x]:
            return abs(x)
        case "floor", [x]:
            return Fraction(math.floor(x))
        case "ceil", [x]:
            return Fraction(math.ceil(x))
        case "mod", [a, b]:
            if b == 0:
                raise UndefinedError("modulo zero")
            return a % b
        case "root", [x, n]:
            if n.denominator != 1 or not 0 < n <= 64:
                return None
            if x < 0 and n % 2:
                positive = _exact_power(-x, 1 / n)
                return None if positive is None else -positive
            return _exact_power(x, 1 / n) if x else x
        case (("gcd" | "lcm"), _) if all(v.denominator == 1 for v in values):
            whole = [int(v) for v in values]
            return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
        case "max", _:
            return max(values)
        case "min", _:
            return min(values)
    return None


def _exact_range(name: str, args: tuple[Node, ...]) -> Fraction | None:
    bounds = term_range(args)
    if bounds is None:
        return None
    body, variable, start, stop = bounds
    total = Fraction(0 if name == "sum" else 1)
    for k in range(start, stop + 1):
        value = exact(substitute(body, {variable: Num(Fraction(k))}))
        if value is None:
            return None
        total = total + value if name == "sum" else total * value
        cost.spend(bits(total) // 2000)
        if total.numerator.bit_length() > cost.MAX_BITS:
            raise OverLimitError("a sum of more than 2^17 bits")
    return total


def term_range(args: tuple[Node, ...]) -> tuple[Node, Node, int, int] | None:
    """Body, index and whole bounds of a sum; None for bounds that are no numbers. Raises OverLimitError."""
    body, variable, low, high = args
    start, stop = exact(low), exact(high)
    if start is None or stop is None or start.denominator != 1 or stop.denominator != 1:
        return None
    if stop - start >= cost.MAX_SUM_TERMS:
        raise OverLimitError(f"a sum of more than {cost.MAX_SUM_TERMS} terms")
    return body, variable, int(start), int(stop)


# Prime field


def residue(node: Node, point: Mapping[Node, int], prime: int) -> int | None:
    """The value of a rational function modulo `prime` at `point`; None when it is not one. Raises UndefinedError.

    Symbols, pi and e are independent unknowns; i is a square root of -1.
    """
    cost.spend()
    match node:
        case Num(value):
            bottom = value.denominator % prime
            return value.numerator % prime * pow(bottom, -1, prime) % prime if bottom else None
        case Sym() | Const():
            return point.get(node)
        case Add(terms):
            total = 0
            for term in terms:
                part = residue(term, point, prime)
                if part is None:
                    return None
                total += part
            return total % prime
        case Mul(factors):
            product = 1
            for factor in factors:
                part = residue(factor, point, prime)
                if part is None:
                    return None
                product = product * part % prime
            return product
        case Pow(base, exponent):
            power = exact(exponent)
            if power is None or power.denominator != 1:
                return None
            if power.numerator.bit_length() > cost.MAX_MODULAR_EXPONENT_BITS:
                raise OverLimitError("an exponent of more than 2,048 bits")
            bottom_value = residue(base, point, prime)
            if bottom_value is None:
                return None
            if bottom_value == 0 and power <= 0:
                raise UndefinedError("division by zero")
            return int(pow(bottom_value, power.numerator, prime))
        case Percent(inner):
            hundredfold = residue(inner, point, prime)
            return None if hundredfold is None else hundredfold * pow(100, -1, prime) % prime
        case Call("apply" | "index" | "prime" | "overline" | "dot" | "hat" | "vec"):
            return point.get(node)
        case Call("factorial" | "binom"):
            whole = exact(node)
            return None if whole is None else residue(Num(whole), point, prime)
        case _:
            return None


@lru_cache(maxsize=4)
def root_of_minus_one(prime: int) -> int:
    """A square root of -1 modulo a prime that is 1 modulo 4."""
    for base in range(2, 100):
        root = pow(base, (prime - 1) // 4, prime)
        if root * root % prime == prime - 1:
            return root
    raise AssertionError("no root of -1: not such a prime")
