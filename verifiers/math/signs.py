"""Plus-minus signs written out."""

from __future__ import annotations

from itertools import product as combinations

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.nodes import (
    MINUS_ONE,
    ONE,
    Braces,
    Const,
    Node,
    OverLimitError,
    Relation,
    Seq,
    children,
    contains,
    rebuild,
)

PLUS_MINUS, MINUS_PLUS = Const("pm"), Const("mp")


def expand_signs(node: Node) -> Node:
    """Every ± written out: a list of the values it stands for.

    Signs in one item are independent, unless a ∓ ties them together. `x != ±5` means both.
    """
    if isinstance(node, (Seq, Braces)):
        items: list[Node] = []
        for item in node.items:
            written_out = expand_signs(item)
            items += written_out.items if isinstance(written_out, Seq) and contains_sign(item) else (written_out,)
        return Seq(tuple(items), node.joiner) if isinstance(node, Seq) else Braces(tuple(items))
    if isinstance(node, Relation) and not contains_sign(node.operands[0]):
        expanded = _alternatives(node)
        return Seq(tuple(expanded), "and" if "!=" in node.ops else "or") if len(expanded) > 1 else node
    expanded = _alternatives(node)
    return Seq(tuple(expanded), "or") if len(expanded) > 1 else node


def contains_sign(node: Node) -> bool:
    return contains(node, PLUS_MINUS, MINUS_PLUS)


def _alternatives(node: Node) -> list[Node]:
    places = _count(node)
    if not places:
        return [node]
    tied = contains(node, MINUS_PLUS)
    if not tied and 2**places > cost.MAX_ALTERNATIVES:
        raise OverLimitError(f"more than {cost.MAX_ALTERNATIVES} values of plus-minus signs")
    choices = [(1,) * places, (-1,) * places] if tied else list(combinations((1, -1), repeat=places))
    return [_with_signs(node, iter_signs) for iter_signs in (list(choice) for choice in choices)]


def _count(node: Node) -> int:
    if node in (PLUS_MINUS, MINUS_PLUS):
        return 1
    return sum(_count(child) for child in children(node))


def _with_signs(node: Node, signs: list[int]) -> Node:
    if node in (PLUS_MINUS, MINUS_PLUS):
        sign = signs.pop(0)
        return ONE if (sign > 0) == (node == PLUS_MINUS) else MINUS_ONE
    parts = children(node)
    return rebuild(node, tuple(_with_signs(part, signs) for part in parts)) if parts else node
