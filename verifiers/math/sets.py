"""Sets of real numbers: intervals, unions, inequalities and memberships in one normal form.

A set is a sorted tuple of disjoint pieces with exact end points. An inequality in one unknown is solved where it is
linear or quadratic in it, or in its absolute value; others are compared as inequalities (`compare`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key

from r1zero.verifiers.math.exact import exact
from r1zero.verifiers.math.nodes import (
    EMPTY,
    INF,
    ZERO,
    Add,
    Braces,
    Call,
    Const,
    Group,
    Mul,
    Node,
    Num,
    Pow,
    Relation,
    Seq,
    SetOp,
    canonical,
    children,
    divide,
    minus,
    negate,
    number,
    substitute,
)
from r1zero.verifiers.math.numeric import OpaqueError, atoms
from r1zero.verifiers.math.symbolic import same_value, sign_of

MINUS_INF = canonical(negate(INF))
FLIP = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!=", "=": "="}


class NoSetError(ValueError):
    """The tree is not a set of real numbers that can be worked out."""


@dataclass(frozen=True)
class Piece:
    low: Node
    low_closed: bool
    high: Node
    high_closed: bool


@dataclass(frozen=True)
class RealSet:
    pieces: tuple[Piece, ...]
    name: Node | None = None
    """The unknown it was written with, if any: `x` in x > 5."""


REALS = RealSet((Piece(MINUS_INF, False, INF, False),))


def read_set(node: Node) -> RealSet:
    """The set of reals that a tree denotes. Raises NoSetError."""
    match node:
        case Const("reals"):
            return REALS
        case Const("emptyset"):
            return RealSet(())
        case Group(left, (low, high), right) if left in "([" and right in ")]":
            return _interval(low, left == "[", high, right == "]")
        case Braces(items):
            return _normal([Piece(item, True, item, True) for item in items])
        case SetOp(op, left_set, right_set):
            first, second = read_set(left_set), read_set(right_set)
            if op == "union":
                return _normal([*first.pieces, *second.pieces])
            return intersect(first, second if op == "inter" else complement(second))
        case Relation((name, members), ("in" | "=",)) if not isinstance(name, Num) and _is_setlike(members):
            found = read_set(members)
            return RealSet(found.pieces, canonical(name))
        case Relation():
            return _solve_chain(node)
        case Seq(items, joiner):
            parts = [read_set(item) for item in items]
            names = {part.name for part in parts}
            if names == {None} and all(_is_setlike(item) for item in items):  # [1,2] or [3,4]
                return _normal([p for part in parts for p in part.pieces])
            if len(names) != 1 or parts[0].name is None:
                raise NoSetError("several unknowns")
            if joiner == "or":
                return RealSet(_normal([p for part in parts for p in part.pieces]).pieces, parts[0].name)
            both = parts[0]
            for part in parts[1:]:
                both = intersect(both, part)
            if not both.pieces and joiner != "and":  # `x < 2, x > 3` means either
                both = _normal([p for part in parts for p in part.pieces])
            return RealSet(both.pieces, parts[0].name)
    raise NoSetError(type(node).__name__)


def _is_setlike(node: Node) -> bool:
    return isinstance(node, (Group, Braces, SetOp)) or node in (Const("reals"), EMPTY)


def is_set(node: Node) -> bool:
    """True for a tree that can only be a set of reals: a half-open or infinite interval, a union, an inequality."""
    match node:
        case Group(left, items, right):
            return len(items) == 2 and (left + right in ("(]", "[)") or any(_infinite(item) for item in items))
        case SetOp() | Const("reals") | Const("emptyset"):
            return True
        case Relation(operands, ops):
            if ops == ("=",):
                return is_set(operands[1]) or isinstance(operands[1], SetOp)
            return "=" not in ops and "~" not in ops
        case Seq(items, _):
            return bool(items) and all(isinstance(item, Relation) and is_set(item) for item in items)
        case _:
            return False


def _infinite(node: Node) -> bool:
    return canonical(node) in (INF, MINUS_INF)


def _interval(low: Node, low_closed: bool, high: Node, high_closed: bool) -> RealSet:
    low, high = canonical(low), canonical(high)
    for end in (low, high):
        if end not in (INF, MINUS_INF) and sign_or_none(end) is None:
            raise NoSetError("an end point that is no real number")
    order = compare_ends(low, high)
    if order > 0 or (order == 0 and not (low_closed and high_closed)):
        raise NoSetError("an interval whose ends are the wrong way round")
    return RealSet((Piece(low, low_closed and low != MINUS_INF, high, high_closed and high != INF),))


def sign_or_none(node: Node) -> int | None:
    try:
        if atoms(node):
            return None
        return sign_of(node)
    except OpaqueError:
        return None


def compare_ends(left: Node, right: Node) -> int:
    """-1, 0, 1 by value. Raises NoSetError where an end is no real number."""
    if left == right:
        return 0
    if left == MINUS_INF or right == INF:
        return -1
    if left == INF or right == MINUS_INF:
        return 1
    if isinstance(left, Num) and isinstance(right, Num):
        return (left.value > right.value) - (left.value < right.value)
    if same_value(left, right).equal:
        return 0
    sign = sign_or_none(minus(left, right))
    if sign is None:
        raise NoSetError("an end point that is no real number")
    return sign


def _normal(pieces: list[Piece]) -> RealSet:
    """Sorted, and joined where they touch or overlap."""

    def order(a: Piece, b: Piece) -> int:
        return compare_ends(a.low, b.low) or (b.low_closed - a.low_closed)

    for piece in pieces:
        compare_ends(piece.low, piece.high)
        if sign_or_none(piece.low) is None and piece.low not in (INF, MINUS_INF):
            raise NoSetError("an end point that is no real number")
    joined: list[Piece] = []
    for piece in sorted(pieces, key=cmp_to_key(order)):
        if joined:
            last = joined[-1]
            gap = compare_ends(last.high, piece.low)
            if gap > 0 or (gap == 0 and (last.high_closed or piece.low_closed)):
                further = compare_ends(piece.high, last.high)
                if further > 0:
                    joined[-1] = Piece(last.low, last.low_closed, piece.high, piece.high_closed)
                elif further == 0:
                    joined[-1] = Piece(last.low, last.low_closed, last.high, last.high_closed or piece.high_closed)
                continue
        joined.append(piece)
    return RealSet(tuple(joined))


def complement(whole: RealSet) -> RealSet:
    pieces, low, closed = [], MINUS_INF, False
    for piece in whole.pieces:
        if compare_ends(low, piece.low) < 0 or (closed and not piece.low_closed and low == piece.low):
            pieces.append(Piece(low, closed, piece.low, not piece.low_closed and piece.low != MINUS_INF))
        low, closed = piece.high, not piece.high_closed
    if low != INF:
        pieces.append(Piece(low, closed, INF, False))
    return RealSet(tuple(pieces), whole.name)


def intersect(first: RealSet, second: RealSet) -> RealSet:
    inverse = _normal([*complement(first).pieces, *complement(second).pieces])
    return RealSet(complement(inverse).pieces, first.name or second.name)


def same_set(left: RealSet, right: RealSet) -> bool:
    """Whether two sets are equal, piece by piece; two unknowns that are both named must be the same."""
    if len(left.pieces) != len(right.pieces):
        return False
    return all(
        a.low_closed == b.low_closed
        and a.high_closed == b.high_closed
        and compare_ends(a.low, b.low) == 0
        and compare_ends(a.high, b.high) == 0
        for a, b in zip(left.pieces, right.pieces, strict=True)
    )


def _solve_chain(chain: Relation) -> RealSet:
    found: RealSet | None = None
    for left, op, right in zip(chain.operands, chain.ops, chain.operands[1:], strict=False):
        part = _solve_or_name(left, op, right)
        if found is not None and found.name != part.name:
            raise NoSetError("several unknowns")
        found = part if found is None else intersect(found, part)
    assert found is not None
    return found


def _solve_or_name(left: Node, op: str, right: Node) -> RealSet:
    """The solutions in the unknown; where it cannot be solved for, the values of the side that has it."""
    try:
        return _solve(left, op, right)
    except NoSetError:
        if op not in FLIP or bool(atoms(left)) == bool(atoms(right)):
            raise
    side, bound, turned = (left, right, op) if atoms(left) else (right, left, FLIP[op])
    if sign_or_none(bound) is None:
        raise NoSetError("a bound that is no real number")
    return RealSet(_half_line(canonical(bound), turned).pieces, canonical(side))


def _solve(left: Node, op: str, right: Node) -> RealSet:
    """The solutions of `left op right` in its one unknown."""
    if op not in FLIP:
        raise NoSetError(op)
    if _infinite(left) or _infinite(right):
        unknown = right if _infinite(left) else left
        if len(atoms(unknown)) == 1 and op in ("<", ">") and canonical(unknown) in atoms(unknown):
            return RealSet(REALS.pieces, canonical(unknown))
        raise NoSetError("an infinite bound")
    unknowns = atoms(left) | atoms(right)
    if len(unknowns) != 1:
        raise NoSetError("not one unknown")
    (unknown,) = unknowns
    name = canonical(unknown)
    bars = _absolutes(difference := minus(left, right))
    if len(bars) == 1 and isinstance(bar := next(iter(bars)), Call):
        stand_in = Call("apply", (Const("stand-in"),))
        replaced = substitute(difference, {bar: stand_in})
        if unknown in atoms(replaced):
            raise NoSetError("an unknown inside and outside of bars")
        # |u| in S: u in S or -S, of the part of S that is not negative.
        positive = intersect(_roots(replaced, op, stand_in), RealSet((Piece(ZERO, True, INF, False),)))
        both = _normal([*positive.pieces, *_mapped(positive, number(-1), ZERO).pieces])
        zero = canonical(substitute(bar.args[0], {unknown: ZERO}))
        slope = canonical(minus(substitute(bar.args[0], {unknown: number(1)}), zero))
        if not same_value(bar.args[0], Add((zero, Mul((slope, unknown))))).equal or not sign_or_none(slope):
            raise NoSetError("bars around no linear expression")
        # u = zero + slope x, so x = (u - zero) / slope.
        return RealSet(_mapped(both, divide(number(1), slope), divide(negate(zero), slope)).pieces, name)
    return RealSet(_roots(difference, op, unknown).pieces, name)


def _mapped(whole: RealSet, factor: Node, shift: Node) -> RealSet:
    """The set of factor * u + shift."""
    falling = sign_or_none(factor) == -1

    def end(node: Node) -> Node:
        if node in (INF, MINUS_INF):
            return (MINUS_INF if node == INF else INF) if falling else node
        return _tidy(Add((Mul((factor, node)), shift)))

    pieces = [
        Piece(end(p.high), p.high_closed, end(p.low), p.low_closed)
        if falling
        else Piece(end(p.low), p.low_closed, end(p.high), p.high_closed)
        for p in whole.pieces
    ]
    return _normal(pieces)


def _absolutes(node: Node) -> frozenset[Node]:
    found: frozenset[Node] = frozenset((node,)) if isinstance(node, Call) and node.name == "abs" else frozenset()
    for child in children(node):
        found |= _absolutes(child)
    return found


def _roots(difference: Node, op: str, unknown: Node) -> RealSet:
    """The set where `difference op 0`, for a difference linear or quadratic in the unknown."""

    def at(value: int) -> Node:
        return canonical(substitute(difference, {unknown: number(value)}))

    # a + b x + c x^2 through three points; that it is the difference is then proved or refused.
    zero, plus, less = at(0), at(1), at(-1)
    c = canonical(divide(Add((plus, less, negate(Add((zero, zero))))), number(2)))
    b = canonical(divide(minus(plus, less), number(2)))
    model = Add((zero, Mul((b, unknown)), Mul((c, unknown, unknown))))
    if not same_value(difference, model).equal:
        raise NoSetError("neither linear nor quadratic")
    sign_c, sign_b = sign_or_none(c), sign_or_none(b)
    if sign_c is None or sign_b is None:
        raise NoSetError("coefficients that are no real numbers")
    if sign_c == 0:
        if sign_b == 0:
            raise NoSetError("no unknown left")
        root = _tidy(negate(divide(zero, b)))
        return _half_line(root, op if sign_b > 0 else FLIP[op])
    discriminant = canonical(minus(Mul((b, b)), Mul((number(4), c, zero))))
    if sign_or_none(discriminant) != 1:
        raise NoSetError("no two roots")
    spread = Pow(discriminant, Num(number(1).value / 2))
    ends = [
        _tidy(divide(Add((negate(b), sign)), Mul((number(2), c))))
        for sign in ((negate(spread), spread) if sign_c > 0 else (spread, negate(spread)))
    ]
    inside = (op in ("<", "<=")) == (sign_c > 0)
    if op in ("=", "!="):
        points = _normal([Piece(end, True, end, True) for end in ends])
        return points if op == "=" else complement(points)
    closed = op in ("<=", ">=")
    between = RealSet((Piece(ends[0], closed if inside else not closed, ends[1], closed if inside else not closed),))
    return between if inside else complement(between)


def _tidy(node: Node) -> Node:
    value = exact(node)
    return Num(value) if value is not None else canonical(node)


def _half_line(root: Node, op: str) -> RealSet:
    match op:
        case "<" | "<=":
            return RealSet((Piece(MINUS_INF, False, root, op == "<="),))
        case ">" | ">=":
            return RealSet((Piece(root, op == ">=", INF, False),))
        case "=":
            return RealSet((Piece(root, True, root, True),))
        case _:
            return complement(RealSet((Piece(root, True, root, True),)))
