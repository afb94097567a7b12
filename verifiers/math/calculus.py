"""Integrals, limits, derivatives and infinite sums: how they are read, and their values to some twenty digits (mpmath).

What does not settle (a divergent series, an integral over a pole) has no value. The work is counted off the verdict's
budget by each evaluation of the body, as all other work is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.nodes import (
    INF,
    ONE,
    Add,
    Call,
    Colon,
    Mul,
    Node,
    Sym,
    UndefinedError,
    canonical,
    children,
    negate,
)

AGREE_DIGITS = 15
"""Digits to which such a value and another have to agree."""
POINTS = 4
"""Points at which two functions are compared where one of them takes such a value."""
_DIGITS = (22, 32)
_STEPS = 2_500
"""What each value costs of the verdict's budget, beside its evaluations: mpmath's own work."""
_NEAR, _FAR = (0.7390851e-8, 0.3183099e-8), (3989, 4003)
NAMES = frozenset(("integral", "limit", "limit+", "limit-", "derivative"))
_MINUS_INF = canonical(negate(INF))


def is_approximate(node: Node) -> bool:
    """True where a value has to be found by approximation."""
    if isinstance(node, Call) and (node.name in NAMES or is_endless(node)):
        return True
    return any(is_approximate(child) for child in children(node))


def is_endless(node: Node) -> bool:
    """True for a sum to infinity."""
    return isinstance(node, Call) and node.name == "sum" and len(node.args) == 4 and node.args[3] == INF


def integral(body: Node, low: Node | None, high: Node | None) -> Node | None:
    """A definite integral; None for one without bounds or without a `dx` in its last term."""
    if low is None or high is None:
        return None
    terms = body.terms if isinstance(body, Add) else (body,)
    factors = _flat(terms[-1])
    for at in range(len(factors) - 1):
        d, variable = factors[at], factors[at + 1]
        if d == Sym("d") and isinstance(variable, Sym):
            rest = (*factors[:at], *factors[at + 2 :])
            last = rest[0] if len(rest) == 1 else Mul(rest) if rest else ONE
            inner = last if len(terms) == 1 else Add((*terms[:-1], last))
            return Call("integral", (inner, variable, low, high))
    return None


def limit(body: Node, towards: Node | None, side: str) -> Node | None:
    """A limit; None where `towards` is no `x \\to a`."""
    match towards:
        case Colon((Sym() as variable, target)):
            return Call(f"limit{side}", (body, variable, target))
    return None


def _flat(node: Node) -> tuple[Node, ...]:
    if not isinstance(node, Mul):
        return (node,)
    return tuple(part for factor in node.factors for part in _flat(factor))


Evaluate = Callable[[Node, Mapping[Node, Any], Any, bool], Any]


def value(node: Call, point: Mapping[Node, Any], ctx: Any, real: bool, evaluate: Evaluate) -> Any:
    """The value of one of these at a point. Raises UndefinedError where it does not settle."""
    cost.spend(_STEPS)
    before, found = ctx.dps, []
    try:
        for digits in _DIGITS:
            ctx.dps = digits
            found.append(_once(node, point, ctx, real, evaluate))
    except (ArithmeticError, ValueError, TypeError, ctx.NoConvergence) as error:
        if isinstance(error, ValueError) and type(error) is not ValueError:
            raise  # one of our own: not real, opaque, over a limit
        raise UndefinedError("no value that settles") from error
    finally:
        ctx.dps = before
    first, second = found
    if not ctx.isfinite(second) or abs(first - second) > ctx.mpf(10) ** -AGREE_DIGITS * max(abs(second), ctx.one):
        raise UndefinedError("no value that settles")
    return second


def _once(node: Call, point: Mapping[Node, Any], ctx: Any, real: bool, evaluate: Evaluate) -> Any:
    body, variable, *bounds = node.args

    def at(place: Any) -> Any:
        try:
            return evaluate(body, {**point, variable: ctx.convert(place)}, ctx, real)
        except cost.TinyPowerError:  # e^(-x^2) far out
            if node.name != "integral":
                raise
            return ctx.zero

    def end(bound: Node) -> Any:
        bound = canonical(bound)
        return ctx.inf if bound == INF else ctx.ninf if bound == _MINUS_INF else evaluate(bound, point, ctx, True)

    if node.name == "derivative":
        return ctx.diff(at, point[variable])
    if node.name == "integral":
        total, error = ctx.quad(at, [end(bounds[0]), end(bounds[1])], error=True)
        if error > ctx.mpf(10) ** -AGREE_DIGITS * max(abs(total), ctx.one):
            raise UndefinedError("an integral that does not settle")
        return total
    if node.name == "sum":
        low = end(bounds[0])
        # mpmath gives 1 - 1 + 1 - ... a value, and 1 + 2 + 4 + ...: their terms do not vanish.
        early, late = (max(abs(at(low + k)), abs(at(low + k + 1))) for k in (1000, 3000))
        if late > early or early > 0.1:
            raise UndefinedError("a series whose terms do not vanish")
        return ctx.nsum(at, [low, ctx.inf], method="r+s")
    return _limit(at, end(bounds[0]), {"limit": (1, -1), "limit+": (1,), "limit-": (-1,)}[node.name], ctx)


def _limit(at: Callable[[Any], Any], target: Any, sides: tuple[int, ...], ctx: Any) -> Any:
    """The limit from each of `sides`, which have to agree; 1 is from above."""
    far = ctx.isinf(target)
    values = []
    for side in (1,) if far else sides:
        found = ctx.limit(at, target, direction=side)
        # sin(1/x) may seem to have a limit at the points that mpmath looks at.
        sign = 1 if target > 0 else -1
        places = [sign * place for place in _FAR] if far else [target + side * ctx.mpf(place) for place in _NEAR]
        slack = (ctx.mpf(10) ** (-2 if far else -3)) * max(abs(found), ctx.one)
        if any(abs(at(place) - found) > slack for place in places):
            raise UndefinedError("a limit that is not approached")
        values.append(found)
    if abs(values[0] - values[-1]) > ctx.mpf(10) ** -AGREE_DIGITS * max(abs(values[0]), ctx.one):
        raise UndefinedError("a limit that differs from side to side")
    return values[0]
