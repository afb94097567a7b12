"""Scalars: numbers, expressions and quantities; ratios, times of day and numerals with a base."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from r1zero.verifiers.math import units
from r1zero.verifiers.math.exact import exact
from r1zero.verifiers.math.nodes import (
    EMPTY,
    INF,
    PI,
    Add,
    BaseN,
    Call,
    Colon,
    Const,
    Degrees,
    Mul,
    Node,
    Num,
    Percent,
    Pow,
    Quantity,
    Relation,
    Sym,
    Text,
    UndefinedError,
    canonical,
    divide,
    rebuild,
)
from r1zero.verifiers.math.numerals import digits_of
from r1zero.verifiers.math.numeric import NotRealError, OpaqueError, atoms, context, evaluate
from r1zero.verifiers.math.symbolic import Result, same_value
from r1zero.verifiers.math.words import EMPTY_WORDS, words_of


def words_in(node: Node) -> str | None:
    match node:
        case Text(words):
            return words
        case Sym(name):
            return words_of(name)
        case Mul(factors) if all(isinstance(f, Sym) and len(f.name) == 1 for f in factors):
            return words_of("".join(f.name for f in factors if isinstance(f, Sym)))
        case Const("e" | "i" as name):
            return name
        case Relation(operands, ops):
            parts = [words_in(operand) for operand in operands]
            return "=".join(part or "?" for part in parts) if all(parts) and set(ops) == {"="} else None
        case _:
            return None


_INFINITE_WORDS = {"infinity", "infinite", "infinitely many", "inf"}


def same_text(gold: Node, pred: Node) -> Result:
    for one, other in ((gold, pred), (pred, gold)):
        if isinstance(one, Text) and isinstance(other, Const):
            same = (other == INF and one.words in _INFINITE_WORDS) or (other == EMPTY and one.words in EMPTY_WORDS)
            return Result(same, "text")
        if isinstance(one, Text) and isinstance(other, Relation) and other.ops == ("in",):  # x in the empty set
            return Result(other.operands[1] == EMPTY and one.words in EMPTY_WORDS, "text")
    first, second = words_in(gold), words_in(pred)
    if first == "no real solution" and second == "no solution":
        return Result(True, "text")
    return Result(first is not None and first == second, "text")


def same_ratio(gold: Node, pred: Node) -> Result:
    if not (isinstance(gold, Colon) and isinstance(pred, Colon)):
        ratio, other = (gold, pred) if isinstance(gold, Colon) else (pred, gold)
        assert isinstance(ratio, Colon)
        if len(ratio.parts) == 2 and not ratio.suffix and isinstance(other, (Num, Mul)) and ratio is gold:
            return same_scalar(divide(*ratio.parts), other)
        return Result(False, "ratio")
    if gold.suffix and pred.suffix and gold.suffix != pred.suffix:
        return Result(False, "ratio")
    if len(gold.parts) != len(pred.parts):
        return Result(False, "ratio")
    if all(same_scalar(g, p).equal for g, p in zip(gold.parts, pred.parts, strict=True)):
        return Result(True, "ratio")
    if gold.suffix or pred.suffix:
        return Result(False, "ratio")
    # 6:10 is 3:5, but 2:30 is no 1:15, as far as both may be times of day; with a zero in it it is no ratio.
    if gold.is_clock and pred.is_clock:
        return Result(False, "ratio")
    first, second = gold.parts[0], pred.parts[0]
    if any(exact(part) == 0 for part in (*gold.parts, *pred.parts)):
        return Result(False, "ratio")
    cross = (same_value(Mul((g, second)), Mul((p, first))) for g, p in zip(gold.parts, pred.parts, strict=True))
    return Result(all(result.equal for result in cross), "ratio")


def same_numeral(gold: Node, pred: Node) -> Result:
    """A numeral with a base: same digits and same base; the base may be left out, but not changed."""
    if isinstance(gold, BaseN) and isinstance(pred, BaseN):
        same = _numeral(gold.digits) == _numeral(pred.digits) and gold.base == pred.base
        return Result(same, "base")
    if isinstance(pred, BaseN):
        return Result(False, "base")
    assert isinstance(gold, BaseN)
    if isinstance(pred, Num):
        return Result(_numeral(digits_of(pred)) == _numeral(gold.digits), "base")
    words = words_in(pred)
    return Result(words is not None and words.upper() == gold.digits.upper(), "base")


def _numeral(digits: str) -> str:
    digits = digits.upper().lstrip("0") or "0"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


# Scalars: numbers, quantities, expressions


def number_of(node: Node) -> Node | None:
    """The expression of a scalar without its unit, degree sign or percent sign."""
    match node:
        case Quantity(value, _) | Degrees(value):
            return value
        case Percent(value):
            return canonical(node) if isinstance(value, Num) else Mul((value, Num(Fraction(1, 100))))
        case Num() | Sym() | Const() | Add() | Mul() | Pow() | Call():
            return node
        case _:
            return None


def same_scalar(gold: Node, pred: Node) -> Result:
    if isinstance(gold, Add) and any(isinstance(term, Quantity) for term in gold.terms):
        gold = _add_quantities(gold) or gold
    if isinstance(pred, Add) and any(isinstance(term, Quantity) for term in pred.terms):
        pred = _add_quantities(pred) or pred
    gold, pred = _signed_out(gold), _signed_out(pred)
    if isinstance(gold, Quantity) and not isinstance(pred, Quantity):
        pred = with_unit_letters(pred)
    elif isinstance(pred, Quantity) and not isinstance(gold, Quantity):
        gold = with_unit_letters(gold)
    if isinstance(gold, Degrees) or isinstance(pred, Degrees):
        return _degrees(gold, pred)
    if isinstance(gold, Percent) or isinstance(pred, Percent):
        return _percents(gold, pred)
    if isinstance(gold, Quantity) and isinstance(pred, Quantity):
        return _quantities(gold, pred)
    if isinstance(gold, Quantity):
        return same_scalar(gold.value, pred)
    if isinstance(pred, Quantity):
        return same_scalar(gold, pred.value)
    return _values(gold, pred)


def _signed_out(node: Node) -> Node:
    """-$5 and 2 * 30 degrees: the sign or factor goes inside the unit."""
    if isinstance(node, Mul):
        marked = [f for f in node.factors if isinstance(f, (Quantity, Degrees, Percent))]
        if len(marked) == 1:
            rest = tuple(f for f in node.factors if f is not marked[0])
            inner = marked[0]
            return rebuild(inner, (canonical(Mul((*rest, inner.value))),))
    return node


_UNIT_LETTERS = frozenset("msghNJWVKL")


def with_unit_letters(node: Node) -> Node:
    """5m, 10m/s, 9.8m/s^2 as a quantity, to be compared with another one; any other node as it is."""
    if not (isinstance(node, Mul) and isinstance(node.factors[0], Num) and len(node.factors) > 1):
        return node
    above, below = "", ""
    for factor in node.factors[1:]:
        match factor:
            case Sym(name):
                power = 1
            case Pow(Sym(name), Num(exponent)) if exponent.denominator == 1:
                power = int(exponent)
            case Pow(Pow(Sym(name), Num(exponent)), Num(outer)) if (exponent * outer).denominator == 1:
                power = int(exponent * outer)
            case _:
                return node
        if name not in _UNIT_LETTERS or not 0 < abs(power) < 10:
            return node
        if power > 0:
            above += f" {name}^{power}"
        else:
            below += f" / {name}^{-power}"
    return Quantity(node.factors[0], (above + below).strip())


def _values(gold: Node, pred: Node) -> Result:
    """Two plain expressions: equal exactly, or within the gold's own digits where it is a rounded decimal."""
    if not all(isinstance(node, (Num, Sym, Const, Add, Mul, Pow, Call)) for node in (gold, pred)):
        return Result(False, "structure")
    found = same_value(gold, pred)
    if not found.equal and isinstance(gold, Num) and _is_rounded(gold, pred) and is_within(pred, gold):
        return Result(True, "rounded")
    return found


def _is_rounded(gold: Num, pred: Node) -> bool:
    """Whether the tolerance applies: the gold is a decimal of three digits or more that may be rounded, and the
    prediction is exact (a fraction that does not end, a root, pi) or has more digits than a gold in e-notation.

    A last digit of zero says nothing of rounding: 12.0 is how a float is written, 3.50 a price. Both are exact.
    """
    if gold.places is None or gold.digits < 3 or gold.value == 0:
        return False
    in_thousands = gold.places < 0  # 1.43e13
    if not in_thousands and (gold.value * Fraction(10) ** (gold.places - 1)).denominator == 1:
        return False
    if isinstance(pred, Num):
        return pred.places is not None and in_thousands and pred.digits > gold.digits
    try:
        if atoms(pred):
            return False
        value = exact(pred)
    except (OpaqueError, UndefinedError):
        return False
    return value is None or not _terminates(value.denominator)


def _terminates(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def is_within(value: Node, rounded: Num, *, cut: bool = False) -> bool:
    """|value - rounded| <= half a unit of the last digit written; cut: or a whole unit, where digits were cut off."""
    places = rounded.places if rounded.places is not None else 0
    unit: Any = Fraction(1) / Fraction(10) ** places
    ctx = context(40)
    gap: Any
    plain = exact(value)
    if plain is not None:
        gap = plain - rounded.value
    else:
        try:
            real = evaluate(value, {}, ctx, True)
        except (NotRealError, OpaqueError, UndefinedError):
            return False
        gap = real - ctx.mpf(rounded.value.numerator) / rounded.value.denominator
        unit = ctx.mpf(unit.numerator) / unit.denominator
    outward = gap if rounded.value >= 0 else -gap
    return bool(abs(gap) <= unit / 2 or (cut and 0 <= outward < unit))


def _percents(gold: Node, pred: Node) -> Result:
    """28% is 0.28. The sign may be dropped: gold 28% accepts 28, and a gold over 1 (28) accepts 28%."""
    if isinstance(gold, Percent) and isinstance(pred, Percent):
        return same_scalar(gold.value, pred.value)
    hundredth = Num(Fraction(1, 100))
    if isinstance(gold, Percent):
        if isinstance(pred, Quantity):  # a percentage is no number of apples
            return Result(False, "unit")
        found = _values(canonical(gold), pred)
        return found if found.equal else _values(gold.value, pred)
    assert isinstance(pred, Percent)
    if isinstance(gold, Quantity):
        return Result(False, "unit")
    found = _values(gold, Mul((pred.value, hundredth)))
    if found.equal or not isinstance(gold, Num) or gold.value <= 1:
        return found
    return _values(gold, pred.value)


def _degrees(gold: Node, pred: Node) -> Result:
    """Degrees against degrees or a bare number: the sign may be dropped. Against radians: converted."""
    if isinstance(gold, Degrees) and isinstance(pred, Degrees):
        return _values(gold.value, pred.value)
    turned, other = (gold, pred) if isinstance(gold, Degrees) else (pred, gold)
    assert isinstance(turned, Degrees)
    radians = Mul((turned.value, PI, Num(Fraction(1, 180))))
    if isinstance(other, Quantity):
        read = units.read(other.unit)
        if read is not None and read[0] == frozenset({("angle", 1)}):
            return _values(radians, other.value)
        return Result(False, "unit")
    if isinstance(other, Percent):
        return Result(False, "unit")
    found = _values(turned.value, other) if turned is gold else _values(other, turned.value)
    if found.equal:
        return found
    return same_value(radians, other)


def _quantities(gold: Quantity, pred: Quantity) -> Result:
    """Both with units: the same dimensions, and the same value after conversion."""
    if gold.unit == pred.unit:
        return same_scalar(gold.value, pred.value)
    first, second = units.read(gold.unit), units.read(pred.unit)
    if first is None or second is None:
        return Result(False, "unit")
    if first[0] == second[0]:
        if first[1] == second[1]:
            return same_scalar(gold.value, pred.value)
        return same_value(Mul((gold.value, Num(first[1]))), Mul((pred.value, Num(second[1]))))
    # One of them only counts things or names no unit at all: nothing was changed.
    if not first[0] or not second[0]:
        return same_scalar(gold.value, pred.value)
    return Result(False, "unit")


def _add_quantities(total: Add) -> Quantity | None:
    """2 hours 30 minutes as one quantity, in the first one's unit."""
    first = total.terms[0]
    if not isinstance(first, Quantity):
        return None
    head = units.read(first.unit)
    values: list[Node] = []
    for term in total.terms:
        read = units.read(term.unit) if isinstance(term, Quantity) else None
        if read is None or head is None or read[0] != head[0] or not isinstance(term, Quantity):
            return None
        values.append(Mul((term.value, Num(read[1] / head[1]))))
    return Quantity(canonical(Add(tuple(values))), first.unit)
