"""Other readings of two answers, tried where the first ones are not equal: what people write for the same thing.

A free whole number or a constant of integration under another name; a vector by its unit vectors; a numeral by its
digits. Each is a pair of trees for `compare`, and each has a condition that keeps what differs apart: `n` is renamed
only where it counts turns or is said to be whole, and only `C` and its like are constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations

from r1zero.verifiers.math.compare import compare
from r1zero.verifiers.math.nodes import (
    EMPTY,
    IMAGINARY,
    ONE,
    PI,
    ZERO,
    Add,
    Braces,
    Call,
    Const,
    Degrees,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    Relation,
    Seq,
    Sym,
    Text,
    canonical,
    children,
    contains,
    number,
    rebuild,
    substitute,
)
from r1zero.verifiers.math.symbolic import Result, same_value


def compare_readings(gold: Node, pred: Node) -> Result:
    """`compare`, and where it finds no equality, other readings of the same two answers. Raises OverLimitError."""
    if Braces((EMPTY,)) in (gold, pred) and gold != pred:
        return Result(False, "set")  # the set of the empty set is not empty
    found = compare(gold, pred)
    if found.equal or (isinstance(gold, (Num, Text)) and isinstance(pred, (Num, Text))):
        return found
    for ours, theirs in _readings(gold, pred):
        second = compare(ours, theirs)
        if second.equal:
            return second
    return found


def _readings(gold: Node, pred: Node) -> Iterator[tuple[Node, Node]]:
    names = _names(gold) | _names(pred)
    if names:
        yield from _renamed(gold, pred)
    vectors = _as_vectors(gold, pred)
    if vectors is not None:
        yield vectors
    values = _harmonic(names)
    if values:
        yield substitute(gold, values), substitute(pred, values)
    if names and (_has_digits(gold) or _has_digits(pred)):
        yield written_out(gold), written_out(pred)


# A free whole number, a constant of integration

_WHOLE = frozenset("nkmlNj")
_CONSTANT = frozenset(("C", "c"))
_CONSTANT_TOO = frozenset(("K", "k", "A", "B", "D"))
_MAX_RENAMED = 3


def _renamed(gold: Node, pred: Node) -> Iterator[tuple[Node, Node]]:
    ours, theirs = _Free(gold), _Free(pred)
    if ours.tree is not gold or theirs.tree is not pred:
        yield ours.tree, theirs.tree
    mine, other = _names(ours.tree), _names(theirs.tree)
    missing, extra = sorted(mine - other), sorted(other - mine)
    if not 0 < len(missing) == len(extra) <= _MAX_RENAMED:
        return
    if not (
        all(ours.is_whole(name) for name in missing) and all(theirs.is_whole(name) for name in extra)
        if _WHOLE.issuperset(missing) and _WHOLE.issuperset(extra)
        else _are_constants(missing, extra, mine & other)
    ):
        return
    for order in permutations(missing):
        swap: dict[Node, Node] = {Sym(old): Sym(new) for old, new in zip(extra, order, strict=True)}
        yield ours.tree, substitute(theirs.tree, swap)


class _Free:
    """An answer without the condition `n \\in \\mathbb{Z}` behind it, and what is said there."""

    def __init__(self, node: Node) -> None:
        self.tree = node
        self.said: set[str] = set()
        if isinstance(node, Seq):
            rest = []
            for item in node.items:
                match item:
                    case Relation((Sym(name), Const("integers")), ("in",)):
                        self.said.add(name)
                    case _:
                        rest.append(item)
            if rest and self.said and self.said <= frozenset().union(*(_names(item) for item in rest)):
                self.tree = rest[0] if len(rest) == 1 else Seq(tuple(rest), node.joiner)
            else:
                self.said = set()

    def is_whole(self, name: str) -> bool:
        """True for a name that is said to be whole or that counts turns: n pi, 360 degrees n."""
        return name in self.said or _counts_turns(self.tree, Sym(name))


def _counts_turns(node: Node, name: Node) -> bool:
    if isinstance(node, Mul) and contains(node, name) and (contains(node, PI) or _holds_degrees(node)):
        return True
    if isinstance(node, Degrees) and contains(node, name):
        return True
    return any(_counts_turns(child, name) for child in children(node))


def _holds_degrees(node: Node) -> bool:
    return isinstance(node, Degrees) or any(_holds_degrees(child) for child in children(node))


def _are_constants(missing: list[str], extra: list[str], shared: frozenset[str]) -> bool:
    """Whether these names are constants in a function of something: the gold's by C, the prediction's by any custom."""
    if not shared:
        return False
    return all(_stem(name) in _CONSTANT for name in missing) and all(
        _stem(name) in _CONSTANT | _CONSTANT_TOO for name in extra
    )


def _stem(name: str) -> str:
    stem, _, index = name.partition("_")
    return stem if not index or index.isdigit() else name


def _names(node: Node) -> frozenset[str]:
    if isinstance(node, Sym):
        return frozenset((node.name,))
    return frozenset().union(*(_names(child) for child in children(node)))


_MAX_HARMONIC = 500


def _harmonic(names: frozenset[str]) -> dict[Node, Node]:
    """The harmonic numbers among the names of an answer, H_3, with their values."""
    found: dict[Node, Node] = {}
    for name in names:
        index = name.removeprefix("H_") if name.startswith("H_") else ""
        if index.isdigit() and 0 < int(index) <= _MAX_HARMONIC:
            found[Sym(name)] = number(sum(Fraction(1, k) for k in range(1, int(index) + 1)))
    return found


# Vectors

_UNITS: tuple[Node, ...] = (IMAGINARY, Sym("j"), Sym("k"))
_DRESSED: dict[Node, Node] = {Call(dress, (unit,)): unit for dress in ("hat", "vec") for unit in _UNITS}


def _as_vectors(gold: Node, pred: Node) -> tuple[Node, Node] | None:
    """Both as tuples where one is written by unit vectors, i + 2j, or as a row; None where neither is."""
    if isinstance(gold, Matrix) and isinstance(pred, Matrix):
        return None  # a row is no column
    ours, theirs = _plain(gold), _plain(pred)
    size = max(_size(ours), _size(theirs))
    if size:
        ours, theirs = _components(ours, size), _components(theirs, size)
    return (ours, theirs) if (ours, theirs) != (gold, pred) else None


def _plain(node: Node) -> Node:
    """i for \\hat{i} and \\vec{i}; a single row of numbers as a tuple."""
    if isinstance(node, (Call, Add, Mul)):
        return substitute(node, _DRESSED)
    return node


def _size(node: Node) -> int:
    match node:
        case Group("(", items, ")") if len(items) in (2, 3):
            return len(items)
        case Matrix(rows) if 1 in (len(rows), len(rows[0])) and max(len(rows), len(rows[0])) in (2, 3):
            return max(len(rows), len(rows[0]))
    return 0


def _components(node: Node, size: int) -> Node:
    """The tuple of what stands before i, j and k in a sum that is linear in them; any other tree as it is."""
    if _size(node) == size:
        return Group("(", children(node), ")")
    units = _UNITS[:size]
    held = [unit for unit in _UNITS if contains(node, unit)]
    if not isinstance(node, (Add, Mul, Sym)) or len(held) < (1 if held[:1] == [Sym("j")] else 2):
        return node
    if any(unit not in units for unit in held):
        return node
    parts = tuple(canonical(substitute(node, {u: ONE if u == unit else ZERO for u in _UNITS})) for unit in units)
    # Linear: with names for the units, so that i is no number here.
    names: dict[Node, Node] = {unit: Sym(f"unit{at}") for at, unit in enumerate(units)}
    model = Add(tuple(Mul((part, names[unit])) for part, unit in zip(parts, units, strict=True)))
    return Group("(", parts, ")") if same_value(substitute(node, names), model).equal else node


# Numerals by their digits


def _has_digits(node: Node) -> bool:
    return (isinstance(node, Call) and node.name == "digits") or any(_has_digits(child) for child in children(node))


def written_out(node: Node) -> Node:
    """\\overline{ab} as 10a + b, wherever it stands."""
    if isinstance(node, Call) and node.name == "digits":
        last = len(node.args) - 1
        return Add(tuple(Mul((number(10 ** (last - at)), digit)) for at, digit in enumerate(node.args)))
    parts = children(node)
    return rebuild(node, tuple(written_out(part) for part in parts)) if parts else node
