"""What stands on the left of an answer: `x`, `f(2)`, `AB`, `m + n`. Only then does an equation answer."""

from __future__ import annotations

from r1zero.verifiers.math.nodes import (
    MINUS_ONE,
    Add,
    Call,
    Colon,
    Degrees,
    Group,
    Mul,
    Node,
    Num,
    Pow,
    Quantity,
    Sym,
    Text,
    number,
)
from r1zero.verifiers.text.sentences import CHANGES, DENIES


def is_name(node: Node) -> bool:
    """True for what has no value but the one it is given: a letter, f(2), AB, |AB|, angle ABC, words, tuples of these.

    Not for `-x`, `|x|` or `sin x`: the value of one of those is not the value of its unknown.
    """
    match node:
        case Sym():
            return True
        case Text(words):
            return not CHANGES.search(words) and not DENIES.search(words)
        case Call("abs", (inner,)):
            return _is_segment(inner) or isinstance(inner, Call)
        case Call(name, _):
            return name in (
                "apply",
                "prime",
                "overline",
                "digits",
                "hat",
                "vec",
                "overrightarrow",
                "index",
                "dot",
                "ddot",
                "det",
            )
        case Mul(factors):
            is_angle = len(factors) == 2 and isinstance(factors[1], Sym) and factors[1].name.startswith("angle")
            return is_angle or _is_segment(node)
        case Group(_, items, _):
            return all(is_name(item) for item in items)
        case Colon(parts, _):
            return all(is_name(part) for part in parts)
        case Quantity(value, _) | Degrees(value):
            return is_name(value)
        case _:
            return False


def _is_segment(node: Node) -> bool:
    """AB, ABC: capital letters side by side; AA is a square."""
    if not isinstance(node, Mul) or not all(isinstance(f, Sym) and f.name[0].isupper() for f in node.factors):
        return False
    return len(node.factors) > 2 or node.factors[0] != node.factors[1]


def is_name_sum(node: Node) -> bool:
    """True for m + n, ab, p/q, a - b: what a problem asks for in names. Each name once, and none negated in front."""
    names = _names(node)
    return names is not None and len(set(names)) == len(names)


def _names(node: Node) -> list[Node] | None:
    if is_name(node):
        return [node]
    parts: list[list[Node] | None]
    match node:
        case Add(terms):
            parts = [_names(terms[0]), *(_names(_unsigned(term)) for term in terms[1:])]
        case Mul(factors):
            parts = [_names(factors[0]), *(_names(_upright(factor)) for factor in factors[1:])]
        case _:
            return None
    found: list[Node] = []
    for part in parts:
        if part is None:
            return None
        found += part
    return found


def _unsigned(term: Node) -> Node:
    match term:
        case Mul((first, rest)) if first == MINUS_ONE:
            return rest
    return term


def _upright(factor: Node) -> Node:
    match factor:
        case Pow(base, exponent) if exponent == MINUS_ONE:
            return base
    return factor


def under_a_bar(inner: Node) -> Node:
    """What \\overline{} over letters side by side means: a segment AB in any order, or a numeral by its digits abc."""
    if not isinstance(inner, Mul):
        return Call("overline", (inner,))
    digits: list[Node] = []
    for factor in inner.factors:
        match factor:
            case Sym(name) if len(name) == 1 and name.isalpha():
                digits.append(factor)
            case Num(value, None) if value.denominator == 1:
                digits += [number(int(digit)) for digit in str(value)]
            case _:
                return Call("overline", (inner,))
    capital = all(isinstance(digit, Sym) and digit.name.isupper() for digit in digits)
    if (capital and len(digits) == 2) or {digit.name for digit in digits if isinstance(digit, Sym)} <= set("zw"):
        return Call("overline", (inner,))
    return Call("digits", tuple(digits))


def under_an_arrow(name: str, inner: Node) -> Node:
    """A vector from A to B, whose letters keep their order; any other vector as it is."""
    return Call(name, inner.factors) if _is_segment(inner) and isinstance(inner, Mul) else Call(name, (inner,))
