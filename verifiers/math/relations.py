"""Equations and inequalities as wholes: what of them needs no comparison of other kinds of answer."""

from __future__ import annotations

from fractions import Fraction

from r1zero.verifiers.math.nodes import (
    EMPTY,
    INF,
    Call,
    Group,
    Mul,
    Node,
    Num,
    Percent,
    Relation,
    Seq,
    Sym,
    Text,
    UndefinedError,
    contains,
    minus,
    number,
    substitute,
)
from r1zero.verifiers.math.numeric import OpaqueError, atoms
from r1zero.verifiers.math.scalars import is_within, number_of, words_in
from r1zero.verifiers.math.sets import FLIP
from r1zero.verifiers.math.symbolic import proportional, sign_of


def between(node: Node) -> Node:
    """a < x < b as the interval (a, b), for ends that are not numbers; any other tree as it is."""
    match node:
        case Relation((low, Sym(), high), ("<" | "<=" as first, "<" | "<=" as second)):
            return Group("(" if first == "<" else "[", (low, high), ")" if second == "<" else "]")
    return node


def is_closed_number(node: Node) -> bool:
    try:
        plain = number_of(node)
        return plain is not None and not atoms(plain) and not contains(plain, INF, EMPTY)
    except OpaqueError:
        return False


def rounds_to(value: Node, shown: Node) -> bool:
    """True for `2/3 ~ 0.67`: the right side is the left one, rounded or cut off at its own digits."""
    if isinstance(value, (Group, Seq)) and isinstance(shown, (Group, Seq)):
        pairs = zip(value.items, shown.items, strict=False)
        return len(value.items) == len(shown.items) and all(rounds_to(one, other) for one, other in pairs)
    first, second = number_of(value), number_of(shown)
    if first is None or second is None:
        return False
    if isinstance(shown, Percent) and isinstance(shown.value, Num):  # 1/3 ~ 33.3%
        first, second = Mul((first, number(100))), shown.value
    if isinstance(second, Num):
        return is_within(first, second, cut=True)
    factor = proportional(first, second)  # x ~ 22/7, x ~ 3.14 r^2
    return factor is not None and is_within(factor, Num(Fraction(1), 2, 3))


def same_argument(gold: Relation, pred: Relation) -> Relation:
    """f(t) = 3t with the gold's name for the argument, f(x) = 3x."""
    match gold.operands[0], pred.operands[0]:
        case Call("apply", (first, Sym() as ours)), Call("apply", (second, Sym() as theirs)) if first == second:
            renamed = substitute(pred, {theirs: ours})
            if isinstance(renamed, Relation) and not contains(pred, ours):
                return renamed
    return pred


def same_equation(gold: Relation, pred: Relation) -> bool:
    """L = R and its multiples: L - R is a constant times L' - R'."""
    if any(_words_only(node) for node in (*gold.operands, *pred.operands)):
        return {words_in(node) for node in gold.operands} == {words_in(node) for node in pred.operands}
    left, right = minus(*gold.operands), minus(*pred.operands)
    try:
        if not atoms(left) or not atoms(right):
            return False
        return proportional(left, right) is not None
    except (OpaqueError, UndefinedError):
        return False


def _words_only(node: Node) -> bool:
    return isinstance(node, Text)


def same_inequalities(gold: Relation, pred: Relation) -> bool:
    """The same pairs `e > 0`, up to a positive factor, in any order: f(2) < f(1) < f(4) and f(4) > f(1) > f(2)."""
    try:
        first, second = _pairs(gold), _pairs(pred)
        if first is None or second is None or len(first) != len(second):
            return False
        for strict, left in first:
            for at, (other, right) in enumerate(second):
                if strict == other and _same_sign(left, right, strict == "!="):
                    del second[at]
                    break
            else:
                return False
        return not second
    except (OpaqueError, UndefinedError):
        return False


def _pairs(chain: Relation) -> list[tuple[str, Node]] | None:
    pairs = []
    for left, op, right in zip(chain.operands, chain.ops, chain.operands[1:], strict=False):
        if op not in FLIP or op == "=":
            return None
        if op in ("<", "<="):
            left, right, op = right, left, FLIP[op]
        pairs.append((op, minus(left, right)))
    return pairs


def _same_sign(left: Node, right: Node, either: bool) -> bool:
    factor = proportional(left, right)
    return factor is not None and (either or sign_of(factor) == 1)
