"""Values of trees in floating point of any precision (mpmath), on the reals where everything is real, else complex.

Sees only trees of our own parser, never text."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from r1zero.verifiers.math import calculus, cost
from r1zero.verifiers.math.exact import exact
from r1zero.verifiers.math.nodes import (
    Add,
    Call,
    Const,
    Degrees,
    Mul,
    Node,
    Num,
    OverLimitError,
    Percent,
    Pow,
    Quantity,
    Sym,
    UndefinedError,
    children,
)


class NotRealError(ValueError):
    """A value on the way is not real: an even root of a negative number, a logarithm of one."""


class OpaqueError(ValueError):
    """No value can be given: an integral, a sum with symbolic terms."""


_local = threading.local()


def context(digits: int) -> Any:
    """mpmath's context for this thread at `digits` decimal digits (the global one is shared between threads)."""
    if not hasattr(_local, "context"):
        import mpmath

        _local.context = mpmath.MPContext()
    _local.context.dps = digits
    return _local.context


_ATOM_CALLS = {"apply", "index", "prime", "overline", "dot", "ddot", "hat", "vec", "tilde", "inverse"}


def atoms(node: Node) -> frozenset[Node]:
    """The unknowns of a tree: names, and applications of unknown functions, as whole nodes in canonical form."""
    if isinstance(node, Sym):
        return frozenset((node,))
    if isinstance(node, Call) and node.name in _ATOM_CALLS:
        return frozenset((node,))
    if isinstance(node, Call) and node.name in ("sum", "prod") and len(node.args) == 4:
        body, variable, low, high = node.args
        inner = atoms(body)
        if any(atom != variable and variable in atoms_inside(atom) for atom in inner):
            raise OpaqueError("a sum over unknown terms")
        return (inner - {variable}) | atoms(low) | atoms(high)
    if isinstance(node, Call) and node.name in calculus.NAMES and node.name != "derivative":
        bounds = frozenset[Node]().union(*(atoms(bound) for bound in node.args[2:]))
        return (atoms(node.args[0]) - {node.args[1]}) | bounds
    found: frozenset[Node] = frozenset()
    for child in children(node):
        found |= atoms(child)
    return found


def atoms_inside(node: Node) -> frozenset[Node]:
    found: frozenset[Node] = frozenset((node,)) if isinstance(node, Sym) else frozenset()
    for child in children(node):
        found |= atoms_inside(child)
    return found


def evaluate(node: Node, point: Mapping[Node, Any], ctx: Any, real: bool) -> Any:
    """The value of a tree at a point, as an mpf (real) or an mpc.

    real: raise NotRealError as soon as a value leaves the reals; odd roots of negative numbers are then negative.
    Otherwise principal branches. Raises UndefinedError, OpaqueError, OverLimitError.
    """
    cost.spend(1 + ctx.dps // 80)
    match node:
        case Num(value):
            return ctx.mpf(value.numerator) / value.denominator
        case Sym():
            return _lookup(node, point)
        case Const(name):
            if name == "pi":
                return +ctx.pi
            if name == "e":
                return +ctx.e
            if name == "i":
                if real:
                    raise NotRealError
                return ctx.mpc(0, 1)
            raise UndefinedError(f"{name} is no number")
        case Add(terms):
            total = ctx.zero
            for term in terms:
                total = total + evaluate(term, point, ctx, real)
            return total
        case Mul(factors):
            product = ctx.one
            for factor in factors:
                product = product * evaluate(factor, point, ctx, real)
            return product
        case Pow(base, exponent):
            return _power(base, exponent, point, ctx, real)
        case Percent(inner):
            return evaluate(inner, point, ctx, real) / 100
        case Degrees(inner):
            return evaluate(inner, point, ctx, real) * ctx.pi / 180
        case Quantity():
            raise OpaqueError("a unit inside an expression")
        case Call(name, args):
            if name in _ATOM_CALLS:
                return _lookup(node, point)
            if name in calculus.NAMES or calculus.is_endless(node):
                return calculus.value(node, point, ctx, real, evaluate)
            if name in ("sum", "prod"):
                return _range(name, args, point, ctx, real)
            return _call(name, [evaluate(arg, point, ctx, real) for arg in args], ctx, real)
        case _:
            raise OpaqueError(type(node).__name__)


def _lookup(node: Node, point: Mapping[Node, Any]) -> Any:
    if node not in point:
        raise OpaqueError("an unknown without a value")
    return point[node]


def _power(base: Node, exponent: Node, point: Mapping[Node, Any], ctx: Any, real: bool) -> Any:
    power = exact(exponent)
    bottom = evaluate(base, point, ctx, real)
    if power is not None and power.denominator == 1:
        whole = power.numerator
        if bottom == 0:
            if whole <= 0:
                raise UndefinedError("division by zero")
            return ctx.zero
        _check_size(ctx, bottom, whole)
        return bottom**whole
    if power is not None and power == Fraction(1, 2):
        if _is_real(bottom) and _re(bottom) >= 0:
            return ctx.sqrt(_re(bottom))
        if real:
            raise NotRealError
        return ctx.sqrt(bottom)
    raised = evaluate(exponent, point, ctx, real) if power is None else ctx.mpf(power.numerator) / power.denominator
    if bottom == 0:
        if _is_real(raised) and _re(raised) > 0:
            return ctx.zero
        raise UndefinedError("zero to a power that is not positive")
    _check_size(ctx, bottom, raised)
    if not _is_real(bottom) or _re(bottom) > 0:
        return bottom**raised
    if power is not None and power.denominator % 2 and real:
        value = (-bottom) ** raised
        return -value if power.numerator % 2 else value
    if _is_real(raised) and _re(raised) == ctx.nint(_re(raised)) and abs(raised) < 10**6:
        return bottom ** int(_re(raised))
    if real:
        raise NotRealError
    return ctx.mpc(bottom) ** raised


def _is_real(value: Any) -> bool:
    return not hasattr(value, "_mpc_") or value.imag == 0


def _re(value: Any) -> Any:
    return value.real if hasattr(value, "_mpc_") else value


def _check_size(ctx: Any, base: Any, power: Any) -> None:
    size = ctx.mag(base)
    if size not in (ctx.ninf, ctx.inf) and abs(power) * (abs(size) + 1) > cost.MAX_NUMERIC_LOG2:
        error = OverLimitError
        if _is_real(power) and (_re(power) < 0) == (size > 0):
            error = cost.TinyPowerError
        raise error("a power of more than 2^22 bits")


def _range(name: str, args: tuple[Node, ...], point: Mapping[Node, Any], ctx: Any, real: bool) -> Any:
    if len(args) != 4:
        raise OpaqueError(name)
    body, variable, low, high = args
    start, stop = evaluate(low, point, ctx, True), evaluate(high, point, ctx, True)
    if start != ctx.nint(start) or stop != ctx.nint(stop):
        raise OpaqueError("a sum to a bound that is not whole")
    if stop - start >= cost.MAX_SUM_TERMS:
        raise OverLimitError(f"a sum of more than {cost.MAX_SUM_TERMS} terms")
    total = ctx.zero if name == "sum" else ctx.one
    inner = dict(point)
    for k in range(int(start), int(stop) + 1):
        inner[variable] = ctx.mpf(k)
        value = evaluate(body, inner, ctx, real)
        total = total + value if name == "sum" else total * value
    return total


_MAX_ANGLE_LOG2 = 200
_MAX_SPECIAL = 200


def _call(name: str, values: list[Any], ctx: Any, real: bool) -> Any:
    if len(values) == 1:
        x = values[0]
        if name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"):
            limit = _MAX_ANGLE_LOG2 if name in ("sin", "cos", "tan", "cot", "sec", "csc") and _is_real(x) else 20
            if x != 0 and ctx.mag(x) > limit:
                raise OverLimitError(f"{name} of a huge number")
            if name in ("cot", "csc", "coth") and x == 0:
                raise UndefinedError(f"{name} of 0")
            return getattr(ctx, name)(x)
        if name in ("ln", "lg"):
            if x == 0:
                raise UndefinedError("the logarithm of 0")
            if real and x < 0:
                raise NotRealError
            return ctx.ln(x)
        if name in ("arcsin", "arccos"):
            if real and abs(x) > 1:
                raise NotRealError
            return (ctx.asin if name == "arcsin" else ctx.acos)(x)
        if name in ("arctan", "arccot"):
            if name == "arctan":
                return ctx.atan(x)
            return ctx.pi / 2 - ctx.atan(x)
        if name in ("arcsinh", "arccosh", "arctanh"):
            if real and ((name == "arccosh" and x < 1) or (name == "arctanh" and abs(x) >= 1)):
                raise NotRealError
            return {"arcsinh": ctx.asinh, "arccosh": ctx.acosh, "arctanh": ctx.atanh}[name](x)
        if name == "abs":
            return abs(x)
        if name in ("floor", "ceil"):
            if not _is_real(x):
                raise OpaqueError(f"{name} of a complex number")
            # A value that rounding has put beside a whole number is that number.
            nearest = ctx.nint(_re(x))
            if abs(_re(x) - nearest) < ctx.mpf(10) ** (-ctx.dps // 2):
                return nearest
            return ctx.floor(_re(x)) if name == "floor" else ctx.ceil(_re(x))
        if name == "factorial":
            if not _is_real(x) or _re(x) != ctx.nint(_re(x)):
                raise OpaqueError("a factorial off the whole numbers")
            if _re(x) < 0:
                raise UndefinedError("a factorial of a negative number")
            if _re(x) > cost.MAX_FACTORIAL:
                raise OverLimitError(f"the factorial of more than {cost.MAX_FACTORIAL}")
            return ctx.mpf(math.factorial(int(_re(x))))
        if name in ("gamma", "zeta"):
            if abs(x) > _MAX_SPECIAL:
                raise OverLimitError(f"{name} of a large number")
            at_pole = _is_real(x) and _re(x) == ctx.nint(_re(x)) and (_re(x) <= 0 if name == "gamma" else _re(x) == 1)
            if at_pole:
                raise UndefinedError(f"{name} at a pole")
            return getattr(ctx, name)(x)
        if name == "re":
            return _re(x)
        if name == "im":
            return ctx.im(x)
        if name == "sign":
            return ctx.sign(x)
    if len(values) == 2:
        x, y = values
        if name == "root":
            return _root(x, y, ctx, real)
        if name == "binom":
            if not (_is_real(x) and _is_real(y)) or _re(x) != ctx.nint(_re(x)) or _re(y) != ctx.nint(_re(y)):
                raise OpaqueError("a binomial off the whole numbers")
            if not 0 <= _re(x) <= cost.MAX_FACTORIAL:
                raise (
                    UndefinedError("a binomial of a negative number")
                    if _re(x) < 0
                    else OverLimitError("a huge binomial")
                )
            return ctx.mpf(math.comb(int(_re(x)), int(_re(y)))) if _re(y) >= 0 else ctx.zero
        if name == "mod":
            if y == 0:
                raise UndefinedError("modulo zero")
            if not (_is_real(x) and _is_real(y)):
                raise OpaqueError("modulo of complex numbers")
            return _re(x) - _re(y) * ctx.floor(_re(x) / _re(y))
    if name in ("max", "min") and values and all(_is_real(v) for v in values):
        return (max if name == "max" else min)(_re(v) for v in values)
    raise OpaqueError(name)


def _root(x: Any, index: Any, ctx: Any, real: bool) -> Any:
    if not _is_real(index) or _re(index) != ctx.nint(_re(index)) or not 0 < _re(index) <= 10**6:
        if index == 0:
            raise UndefinedError("the zeroth root")
        if real and x <= 0:
            raise NotRealError
        return x ** (1 / index)
    whole = int(_re(index))
    if x == 0:
        return ctx.zero
    if _is_real(x) and (_re(x) > 0 or whole % 2):
        value = abs(_re(x)) ** (ctx.one / whole)
        return value if _re(x) > 0 else -value
    if real:
        raise NotRealError
    return ctx.mpc(x) ** (ctx.one / whole)
