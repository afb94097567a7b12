"""Equality by sympy's simplifier, on trees rebuilt node by node with sympy's constructors: no text reaches `sympify`,
`parse_expr` or `eval`. Behind the verifier `sympy`, and what `math` asks where it is told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.compare import assignment
from r1zero.verifiers.math.exact import exact
from r1zero.verifiers.math.nodes import (
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
    OverLimitError,
    Percent,
    Pow,
    Relation,
    Seq,
    Sym,
    UnreadableError,
    children,
)

_FUNCTIONS = {
    **{name: name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "binomial")},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "cot", "sinh", "cosh", "tanh")},
    **{"ln": "log", "abs": "Abs", "floor": "floor", "ceil": "ceiling", "factorial": "factorial", "binom": "binomial"},
    **{"max": "Max", "min": "Min", "gcd": "gcd", "lcm": "lcm", "re": "re", "im": "im", "sign": "sign", "mod": "Mod"},
    **{"gamma": "gamma", "zeta": "zeta"},
}
_CONSTANTS = {"pi": "pi", "e": "E", "i": "I", "inf": "oo"}
_MAX_NODES = 400
_MAX_EXPONENT = 200
"""sympy multiplies a power of a sum out to compare it: (x + 1)^200 has 201 terms."""


def check_cost(node: Node) -> None:
    """Raises OverLimitError for what sympy would work on for long: many nodes, and numbers that are large once worked
    out, wherever they stand."""
    waiting, count = [node], 0
    with cost.budget():
        while waiting:
            part = waiting.pop()
            count += 1
            if count > _MAX_NODES:
                raise OverLimitError(f"more than {_MAX_NODES} parts")
            if isinstance(part, (Add, Mul, Pow, Call)):
                value = exact(part)
                power = exact(part.exponent) if isinstance(part, Pow) and value is None else None
                if power is not None and max(abs(power.numerator), power.denominator) > _MAX_EXPONENT:
                    raise OverLimitError(f"a power of more than {_MAX_EXPONENT}")
            waiting += children(part)


def same_by_sympy(gold: Node, pred: Node) -> bool:
    """Whether sympy finds two answers equal. Raises UnreadableError, UndefinedError and OverLimitError."""
    check_cost(pred)
    return _same(gold, pred)


def _named(node: Node) -> tuple[Node | None, Node]:
    """Name and value of `x = 5`; no name, and any other answer as it is."""
    assigned = assignment(node, lenient=True) if isinstance(node, Relation) else None
    return (None, node) if assigned is None else assigned


def value_of(node: Node) -> Node:
    return _named(node)[1]


def _same(gold: Node, pred: Node) -> bool:
    (name, gold), (other, pred) = _named(gold), _named(pred)
    if name is not None and other is not None and name != other:
        return False
    if isinstance(gold, (Seq, Braces)) or isinstance(pred, (Seq, Braces)):
        ours, theirs = _members(gold), _members(pred)
        return all(any(_same(g, p) for p in theirs) for g in ours) and all(
            any(_same(g, p) for g in ours) for p in theirs
        )
    if isinstance(gold, (Group, Matrix)) or isinstance(pred, (Group, Matrix)):
        if type(gold) is not type(pred) or len(children(gold)) != len(children(pred)):
            return False
        if isinstance(gold, Group) and isinstance(pred, Group) and (gold.left, gold.right) != (pred.left, pred.right):
            return False
        if isinstance(gold, Matrix) and isinstance(pred, Matrix) and len(gold.rows) != len(pred.rows):
            return False
        return all(_same(g, p) for g, p in zip(children(gold), children(pred), strict=True))
    import sympy

    left, right = to_sympy(gold), to_sympy(pred)
    if left == right:
        return not left.has(sympy.nan, sympy.zoo)
    if left.has(sympy.oo, sympy.nan, sympy.zoo) or right.has(sympy.oo, sympy.nan, sympy.zoo):
        return False
    return bool(sympy.simplify(left - right) == 0)


def _members(node: Node) -> Sequence[Node]:
    items = node.items if isinstance(node, (Seq, Braces)) else (node,)
    if len(items) > cost.MAX_COMPARED_ITEMS:
        raise OverLimitError(f"more than {cost.MAX_COMPARED_ITEMS} items to compare")
    return items


def to_sympy(node: Node) -> Any:
    """The sympy expression of a tree, by constructors. Raises UnreadableError where sympy has no form for it."""
    import sympy

    match node:
        case Num(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Sym(name):
            return sympy.Symbol(name)
        case Const(name) if name in _CONSTANTS:
            return getattr(sympy, _CONSTANTS[name])
        case Add(terms):
            return sympy.Add(*map(to_sympy, terms))
        case Mul(factors):
            return sympy.Mul(*map(to_sympy, factors))
        case Pow(base, exponent):
            return sympy.Pow(to_sympy(base), to_sympy(exponent))
        case Percent(inner):
            return to_sympy(inner) / 100
        case Degrees(inner):
            return to_sympy(inner) * sympy.pi / 180
        case Call("root", (radicand, index)):
            return sympy.root(to_sympy(radicand), to_sympy(index))
        case Call("sum" | "prod" as name, (body, Sym() as index, low, high)):
            build: Callable[..., Any] = sympy.Sum if name == "sum" else sympy.Product
            return build(to_sympy(body), (to_sympy(index), to_sympy(low), to_sympy(high))).doit()
        case Call("integral", (body, Sym() as variable, low, high)):
            return sympy.integrate(to_sympy(body), (to_sympy(variable), to_sympy(low), to_sympy(high)))
        case Call("limit" | "limit+" | "limit-" as name, (body, Sym() as variable, target)):
            side = {"limit": "+-", "limit+": "+", "limit-": "-"}[name]
            return sympy.limit(to_sympy(body), to_sympy(variable), to_sympy(target), side)
        case Call("derivative", (body, Sym() as variable)):
            return sympy.diff(to_sympy(body), to_sympy(variable))
        case Call("apply", (Sym(name), *args)):
            return sympy.Function(name)(*map(to_sympy, args))
        case Call(name, args) if name in _FUNCTIONS:
            return getattr(sympy, _FUNCTIONS[name])(*map(to_sympy, args))
        case Group() | Seq() | Braces() | Matrix():
            for part in children(node):
                to_sympy(value_of(part))
            return None
    raise UnreadableError(f"no form in sympy for {type(node).__name__}")
