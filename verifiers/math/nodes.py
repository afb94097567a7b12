"""The typed tree that both answers are read into, and its canonical form. Data only: nothing here can run anything.

Every node is frozen and hashable, so equal structure is `==`. A difference is `Add(a, Mul(-1, b))` and a quotient is
`Mul(a, Pow(b, -1))`: one way to write each thing, so that order and notation drop out in `canonical`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

MAX_FOLD_BITS = 4096  # canonical() multiplies out numbers up to this size and leaves larger powers as written


class UnreadableError(ValueError):
    """The text is not an answer in the grammar."""


class OverLimitError(ValueError):
    """Reading or evaluating it would cost more than the gate allows."""


class UndefinedError(ValueError):
    """It has no value: a division by zero, log 0, infinity minus infinity."""


@dataclass(frozen=True, slots=True)
class Num:
    value: Fraction
    places: int | None = None
    """Digits after the point as written (negative after an e-notation), None for a number written exactly."""
    digits: int = 0
    """Significant digits as written; 0 for a number written exactly."""


@dataclass(frozen=True, slots=True)
class Sym:
    name: str
    """With its subscript: `x_1`."""


@dataclass(frozen=True, slots=True)
class Const:
    name: str
    """pi, e, i, inf, emptyset, reals (and other number sets), dots, pm, mp."""


@dataclass(frozen=True, slots=True)
class Add:
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mul:
    factors: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pow:
    base: Node
    exponent: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A known function (`sin`), or an opaque one: `apply` (f(x)), `index` (F_{n-1}), `int`, `lim`, `d`."""

    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """A list without brackets; joiner is `,` `;` `and` or `or`."""

    items: tuple[Node, ...]
    joiner: str = ","


@dataclass(frozen=True, slots=True)
class Group:
    """Two or more items in round, square or angle brackets: a tuple, a vector or an interval."""

    left: str
    items: tuple[Node, ...]
    right: str


@dataclass(frozen=True, slots=True)
class Braces:
    """A set by its members."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class SetOp:
    """op: `union`, `inter` or `minus`."""

    op: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain: operands[0] ops[0] operands[1] ...; ops are = < > <= >= != ~ in."""

    operands: tuple[Node, ...]
    ops: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Text:
    words: str
    """Lower case, without articles, punctuation and plural s."""


@dataclass(frozen=True, slots=True)
class BaseN:
    digits: str
    base: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit, as written in words; `units.read` knows what it means."""

    value: Node
    unit: str


@dataclass(frozen=True, slots=True)
class Percent:
    value: Node


@dataclass(frozen=True, slots=True)
class Degrees:
    value: Node


@dataclass(frozen=True, slots=True)
class Colon:
    """A ratio or a time of day; suffix is `am`, `pm` or empty."""

    parts: tuple[Node, ...]
    suffix: str = ""
    is_clock: bool = False
    """True where it is written as times of day are: 2:30, not 2:5 or 4:60."""


Node: TypeAlias = (
    Num
    | Sym
    | Const
    | Add
    | Mul
    | Pow
    | Call
    | Seq
    | Group
    | Braces
    | SetOp
    | Relation
    | Matrix
    | Text
    | BaseN
    | Quantity
    | Percent
    | Degrees
    | Colon
)

ZERO, ONE, MINUS_ONE = Num(Fraction(0)), Num(Fraction(1)), Num(Fraction(-1))
INF, EMPTY, PI, IMAGINARY = Const("inf"), Const("emptyset"), Const("pi"), Const("i")


def number(value: int | Fraction) -> Num:
    return Num(Fraction(value))


def negate(node: Node) -> Node:
    """-node; a number keeps its written digits."""
    if isinstance(node, Num):
        return Num(-node.value, node.places, node.digits)
    return Mul((MINUS_ONE, node))


def divide(left: Node, right: Node) -> Node:
    return Mul((left, Pow(right, MINUS_ONE)))


def minus(left: Node, right: Node) -> Node:
    return Add((left, negate(right)))


def children(node: Node) -> tuple[Node, ...]:
    """The direct sub-nodes."""
    match node:
        case Add(terms):
            return terms
        case Mul(factors):
            return factors
        case Pow(base, exponent):
            return (base, exponent)
        case Call(_, args):
            return args
        case Seq(items, _) | Group(_, items, _) | Braces(items):
            return items
        case SetOp(_, left, right):
            return (left, right)
        case Relation(operands, _):
            return operands
        case Matrix(rows):
            return tuple(cell for row in rows for cell in row)
        case Quantity(value, _) | Percent(value) | Degrees(value):
            return (value,)
        case Colon(parts, _):
            return parts
        case _:
            return ()


def rebuild(node: Node, parts: tuple[Node, ...]) -> Node:
    """`node` with its sub-nodes replaced, in the order of `children`."""
    match node:
        case Add():
            return Add(parts)
        case Mul():
            return Mul(parts)
        case Pow():
            return Pow(*parts)
        case Call(name, _):
            return Call(name, parts)
        case Seq(_, joiner):
            return Seq(parts, joiner)
        case Group(left, _, right):
            return Group(left, parts, right)
        case Braces():
            return Braces(parts)
        case SetOp(op, _, _):
            return SetOp(op, *parts)
        case Relation(_, ops):
            return Relation(parts, ops)
        case Matrix(rows):
            width = len(rows[0])
            return Matrix(tuple(parts[at : at + width] for at in range(0, len(parts), width)))
        case Quantity(_, unit):
            return Quantity(parts[0], unit)
        case Percent():
            return Percent(parts[0])
        case Degrees():
            return Degrees(parts[0])
        case Colon(_, suffix, is_clock):
            return Colon(parts, suffix, is_clock)
        case _:
            return node


_MAX_DETERMINANT = 4


def determinant(matrix: Matrix) -> Node:
    """The determinant as a sum of products, of a square matrix of up to four rows; else the call, unevaluated."""
    rows = matrix.rows
    if len(rows) != len(rows[0]) or len(rows) > _MAX_DETERMINANT:
        return Call("det", (matrix,))
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for at, cell in enumerate(rows[0]):
        minor = determinant(Matrix(tuple(row[:at] + row[at + 1 :] for row in rows[1:])))
        terms.append(Mul((number(-1 if at % 2 else 1), cell, minor)))
    return Add(tuple(terms))


def contains(node: Node, *wanted: Node) -> bool:
    """True when one of the leaves `wanted` stands anywhere in `node`."""
    return node in wanted or any(contains(child, *wanted) for child in children(node))


def substitute(node: Node, values: dict[Node, Node]) -> Node:
    """`node` with every sub-node that is a key replaced by its value."""
    if node in values:
        return values[node]
    parts = children(node)
    return rebuild(node, tuple(substitute(part, values) for part in parts)) if parts else node


def order(node: Node) -> str:
    """A text that equal trees share and different ones do not: to sort by, and to seed from. Any size of number."""
    match node:
        case Num(value):
            return f"{value.numerator:x}/{value.denominator:x}"  # hexadecimal: linear in the digits
        case Sym(name) | Const(name) | Text(name):
            return f"{type(node).__name__}:{name}"
        case BaseN(digits, base):
            return f"{digits}_{base}"
    match node:
        case Call(label, _) | Seq(_, label) | SetOp(label, _, _) | Quantity(_, label) | Colon(_, label):
            pass
        case Group(left, _, right):
            label = left + right
        case Relation(_, ops):
            label = " ".join(ops)
        case Matrix(rows):
            label = str(len(rows))
        case _:
            label = ""
    return f"{type(node).__name__}:{label}({','.join(order(child) for child in children(node))})"


def canonical(node: Node) -> Node:
    """The same value with order and notation taken out: sums and products flat, sorted, their numbers folded.

    Sound: two trees with the same canonical form are equal wherever both are defined. Numbers larger than
    MAX_FOLD_BITS stay as they are written; nothing is expanded.
    """
    match node:
        case Num(value, places, _):
            return node if places is None else Num(value)
        case Add(terms):
            return _sum([canonical(term) for term in terms])
        case Mul(factors):
            return _product([canonical(factor) for factor in factors])
        case Pow(base, exponent):
            return _power(canonical(base), canonical(exponent))
        case Percent(value):
            return _product([canonical(value), Num(Fraction(1, 100))])
        case _:
            parts = children(node)
            return rebuild(node, tuple(canonical(part) for part in parts)) if parts else node


def _sum(terms: list[Node]) -> Node:
    constant, rest = Fraction(0), []
    for term in terms:
        for part in term.terms if isinstance(term, Add) else (term,):
            if isinstance(part, Num) and _small(part.value) and _small(constant):
                constant += part.value
            else:
                rest.append(part)
    if constant or not rest:
        rest.append(Num(constant))
    return rest[0] if len(rest) == 1 else Add(tuple(sorted(rest, key=order)))


def _product(factors: list[Node]) -> Node:
    constant, rest = Fraction(1), []
    for factor in factors:
        for part in factor.factors if isinstance(factor, Mul) else (factor,):
            if isinstance(part, Num) and _small(part.value) and _small(constant):
                constant *= part.value
            else:
                rest.append(part)
    # A zero stays beside what it multiplies: 0 * (1/0) has no value and must not become 0.
    if constant != 1 or not rest:
        rest.append(Num(constant))
    return rest[0] if len(rest) == 1 else Mul(tuple(sorted(rest, key=order)))


def _power(base: Node, exponent: Node) -> Node:
    if exponent == ONE:
        return base
    if base == ONE and _is_tower(exponent):  # 1 to a power too large to be worked out
        return ONE
    if isinstance(exponent, Num) and exponent.value.denominator == 1:
        power = int(exponent.value)
        if isinstance(base, Num) and (base.value or power > 0) and _power_bits(base.value, power) <= MAX_FOLD_BITS:
            return Num(base.value**power)
        if isinstance(base, Pow) and isinstance(base.exponent, Num):  # (a^m)^n = a^(mn) for whole n
            return _power(base.base, Num(base.exponent.value * power))
    return Pow(base, exponent)


def _is_tower(node: Node) -> bool:
    """True for a number, and for powers of numbers of 1 or more: it has a value, however large."""
    match node:
        case Num():
            return True
        case Pow(base, exponent):
            return isinstance(base, Num) and base.value >= 1 and _is_tower(exponent)
        case _:
            return False


def _small(value: Fraction) -> bool:
    return bits(value) <= MAX_FOLD_BITS


def bits(value: Fraction) -> int:
    """Size of a fraction: bits of numerator and denominator."""
    return value.numerator.bit_length() + value.denominator.bit_length()


def _power_bits(base: Fraction, power: int) -> int:
    return 0 if abs(base) == 1 else bits(base) * abs(power)


_PRECEDENCE_ATOM = 9


def show(node: Node) -> str:
    """A short plain form for a verdict's reason."""
    return _show(node)[0]


def _show(node: Node) -> tuple[str, int]:
    def wrap(part: Node, level: int) -> str:
        text, precedence = _show(part)
        return text if precedence >= level else f"({text})"

    def listed(items: tuple[Node, ...], glue: str = ", ") -> str:
        return glue.join(show(item) for item in items)

    match node:
        case Num(value, _, _):
            if max(value.numerator.bit_length(), value.denominator.bit_length()) > 400:
                return f"<{bits(value)}-bit number>", 9
            text = str(value)
            return text, 3 if value < 0 else 5 if value.denominator != 1 else 9
        case Sym(name) | Const(name):
            return name, 9
        case Add(terms):
            return " + ".join(wrap(term, 4) for term in terms), 3
        case Mul(factors):
            return "*".join(wrap(factor, 5) for factor in factors), 5
        case Pow(base, exponent):
            return f"{wrap(base, 8)}^{wrap(exponent, 8)}", 7
        case Call(name, args):
            return f"{name}({listed(args)})", 9
        case Seq(items, joiner):
            return listed(items, f"{joiner} " if len(joiner) == 1 else f" {joiner} "), 0
        case Group(left, items, right):
            return f"{left}{listed(items)}{right}", 9
        case Braces(items):
            return f"{{{listed(items)}}}", 9
        case SetOp(op, left_set, right_set):
            return f"{wrap(left_set, 3)} {op} {wrap(right_set, 3)}", 2
        case Relation(operands, ops):
            rest = "".join(f" {op} {show(operand)}" for op, operand in zip(ops, operands[1:], strict=True))
            return show(operands[0]) + rest, 1
        case Matrix(rows):
            return "[" + "; ".join(listed(row) for row in rows) + "]", 9
        case Text(words):
            return repr(words), 9
        case BaseN(digits, base_name):
            return f"{digits} in base {base_name}", 5
        case Quantity(value, unit):
            return f"{wrap(value, 5)} {unit}", 5
        case Percent(value):
            return f"{wrap(value, 5)}%", 9
        case Degrees(value):
            return f"{wrap(value, 5)} degrees", 5
        case Colon(parts, suffix):
            return listed(parts, ":") + suffix, 5
