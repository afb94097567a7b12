"""Values of trees: exact fractions, residues in a prime field, and floating point of any precision.

Three evaluators, from cheap and exact to general:
- `exact`: a closed rational expression as a Fraction, sizes bounded before each power (cost gate);
- `residue`: a rational function at a point of a prime field. Two rational functions of degree d that differ agree
  there with probability at most d/p (Schwartz-Zippel), and (x+1)^5000 costs one modular power;
- `evaluate`: mpmath at a chosen precision, on the reals where everything is real, else on the complex plane.
None sees text: only trees of our own parser.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.nodes import (
    Add,
    Call,
    Const,
    Degrees,
    Mul,
    Node,
    Num,
    OverLimit,
    Percent,
    Pow,
    Quantity,
    Sym,
    Undefined,
    canonical,
    children,
    substitute,
)

PRIMES = (2305843009213693921, 2305843009213693693)
"""Two primes below 2^61 that are 1 modulo 4, so that -1 has a square root (for i)."""


class NotReal(ValueError):
    """A value on the way is not real: an even root of a negative number, a logarithm of one."""


class Opaque(ValueError):
    """No value can be given: an integral, a sum with symbolic terms."""


# Exact


def exact(node: Node) -> Fraction | None:
    """The value of a closed rational expression; None when it is not one. Raises OverLimit and Undefined."""
    match node:
        case Num(value):
            return value
        case Add(terms):
            total = Fraction(0)
            for term in terms:
                value = exact(term)
                if value is None:
                    return None
                total += value
            return total
        case Mul(factors):
            product = Fraction(1)
            for factor in factors:
                value = exact(factor)
                if value is None:
                    return None
                product *= value
                if product.numerator.bit_length() + product.denominator.bit_length() > 2 * cost.MAX_BITS:
                    raise OverLimit("a product of more than 2^18 bits")
            return product
        case Pow(base, exponent):
            power = exact(exponent)
            bottom = exact(base)
            if power is None or bottom is None:
                return None
            return _exact_power(bottom, power)
        case Percent(inner):
            value = exact(inner)
            return None if value is None else value / 100
        case Call(name, args):
            return _exact_call(name, args)
        case _:
            return None


def _exact_power(base: Fraction, power: Fraction) -> Fraction | None:
    if base == 0:
        if power <= 0:
            raise Undefined("zero to a power that is not positive")
        return base
    if power.denominator == 1:
        return cost.checked_power(base, power.numerator)
    if base < 0 or power.denominator > 64:
        return None
    top, bottom = _whole_root(base.numerator, power.denominator), _whole_root(base.denominator, power.denominator)
    if top is None or bottom is None:
        return None
    return cost.checked_power(Fraction(top, bottom), power.numerator)


def _whole_root(value: int, index: int) -> int | None:
    """The whole index-th root of value >= 0, or None."""
    if index == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value.bit_length() > 4096:
        return None
    low, high = 0, 1 << (value.bit_length() // index + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**index <= value else (low, middle - 1)
    return low if low**index == value else None


def _exact_call(name: str, args: tuple[Node, ...]) -> Fraction | None:
    if name in ("sum", "prod"):
        return _exact_range(name, args)
    if name not in ("factorial", "binom", "abs", "floor", "ceil", "mod", "root", "gcd", "lcm", "max", "min"):
        return None
    values: list[Fraction] = []
    for arg in args:
        value = exact(arg)
        if value is None:
            return None
        values.append(value)
    match name, values:
        case "factorial", [n]:
            if n.denominator != 1 or n < 0:
                return None
            if n > cost.MAX_FACTORIAL:
                raise OverLimit(f"the factorial of more than {cost.MAX_FACTORIAL}")
            return Fraction(math.factorial(int(n)))
        case "binom", [n, k]:
            if n.denominator != 1 or k.denominator != 1 or n < 0:
                return None
            if n > cost.MAX_FACTORIAL:
                raise OverLimit(f"a binomial of more than {cost.MAX_FACTORIAL}")
            return Fraction(math.comb(int(n), int(k)) if k >= 0 else 0)
        case "abs", [x]:
            return abs(x)
        case "floor", [x]:
            return Fraction(math.floor(x))
        case "ceil", [x]:
            return Fraction(math.ceil(x))
        case "mod", [a, b]:
            if b == 0:
                raise Undefined("modulo zero")
            return a % b
        case "root", [x, n]:
            if n.denominator != 1 or not 0 < n <= 64:
                return None
            if x < 0 and n % 2:
                positive = _exact_power(-x, 1 / n)
                return None if positive is None else -positive
            return _exact_power(x, 1 / n) if x else x
        case (("gcd" | "lcm"), _) if all(v.denominator == 1 for v in values):
            whole = [int(v) for v in values]
            return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
        case "max", _:
            return max(values)
        case "min", _:
            return min(values)
    return None


def _exact_range(name: str, args: tuple[Node, ...]) -> Fraction | None:
    bounds = term_range(args)
    if bounds is None:
        return None
    body, variable, start, stop = bounds
    total = Fraction(0 if name == "sum" else 1)
    for k in range(start, stop + 1):
        value = exact(substitute(body, {variable: Num(Fraction(k))}))
        if value is None:
            return None
        total = total + value if name == "sum" else total * value
        if total.numerator.bit_length() > cost.MAX_BITS:
            raise OverLimit("a sum of more than 2^17 bits")
    return total


def term_range(args: tuple[Node, ...]) -> tuple[Node, Node, int, int] | None:
    """Body, index and whole bounds of a sum; None for bounds that are no numbers. Raises OverLimit."""
    body, variable, low, high = args
    start, stop = exact(low), exact(high)
    if start is None or stop is None or start.denominator != 1 or stop.denominator != 1:
        return None
    if stop - start >= cost.MAX_SUM_TERMS:
        raise OverLimit(f"a sum of more than {cost.MAX_SUM_TERMS} terms")
    return body, variable, int(start), int(stop)


# Prime field


def residue(node: Node, point: Mapping[Node, int], prime: int) -> int | None:
    """The value of a rational function modulo `prime` at `point`; None when it is not one. Raises Undefined.

    Symbols, pi and e are independent unknowns; i is a square root of -1.
    """
    match node:
        case Num(value):
            bottom = value.denominator % prime
            return value.numerator % prime * pow(bottom, -1, prime) % prime if bottom else None
        case Sym() | Const():
            return point.get(node)
        case Add(terms):
            total = 0
            for term in terms:
                value = residue(term, point, prime)
                if value is None:
                    return None
                total += value
            return total % prime
        case Mul(factors):
            product = 1
            for factor in factors:
                value = residue(factor, point, prime)
                if value is None:
                    return None
                product = product * value % prime
            return product
        case Pow(base, exponent):
            power = exact(exponent)
            if power is None or power.denominator != 1:
                return None
            if power.numerator.bit_length() > cost.MAX_MODULAR_EXPONENT_BITS:
                raise OverLimit("an exponent of more than 2,048 bits")
            value = residue(base, point, prime)
            if value is None:
                return None
            if value == 0 and power <= 0:
                raise Undefined("division by zero")
            return pow(value, power.numerator, prime)
        case Percent(inner):
            value = residue(inner, point, prime)
            return None if value is None else value * pow(100, -1, prime) % prime
        case Call("apply" | "index" | "prime" | "overline" | "dot" | "hat" | "vec"):
            return point.get(node)
        case Call("factorial" | "binom"):
            whole = exact(node)
            return None if whole is None else residue(Num(whole), point, prime)
        case _:
            return None


@lru_cache(maxsize=4)
def root_of_minus_one(prime: int) -> int:
    """A square root of -1 modulo a prime that is 1 modulo 4."""
    for base in range(2, 100):
        root = pow(base, (prime - 1) // 4, prime)
        if root * root % prime == prime - 1:
            return root
    raise AssertionError("no root of -1: not such a prime")


# Floating point

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
            raise Opaque("a sum over unknown terms")
        return (inner - {variable}) | atoms(low) | atoms(high)
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

    real: raise NotReal as soon as a value leaves the reals; odd roots of negative numbers are then negative. Otherwise
    principal branches. Raises Undefined, Opaque, OverLimit.
    """
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
                    raise NotReal
                return ctx.mpc(0, 1)
            raise Undefined(f"{name} is no number")
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
            raise Opaque("a unit inside an expression")
        case Call(name, args):
            if name in _ATOM_CALLS:
                return _lookup(node, point)
            if name in ("sum", "prod"):
                return _range(name, args, point, ctx, real)
            return _call(name, [evaluate(arg, point, ctx, real) for arg in args], ctx, real)
        case _:
            raise Opaque(type(node).__name__)


def _lookup(node: Node, point: Mapping[Node, Any]) -> Any:
    if node not in point:
        raise Opaque("an unknown without a value")
    return point[node]


def _power(base: Node, exponent: Node, point: Mapping[Node, Any], ctx: Any, real: bool) -> Any:
    power = exact(exponent)
    bottom = evaluate(base, point, ctx, real)
    if power is not None and power.denominator == 1:
        whole = power.numerator
        if bottom == 0:
            if whole <= 0:
                raise Undefined("division by zero")
            return ctx.zero
        _check_size(ctx, bottom, whole)
        return bottom**whole
    if power is not None and power == Fraction(1, 2):
        if _is_real(bottom) and _re(bottom) >= 0:
            return ctx.sqrt(_re(bottom))
        if real:
            raise NotReal
        return ctx.sqrt(bottom)
    raised = evaluate(exponent, point, ctx, real) if power is None else ctx.mpf(power.numerator) / power.denominator
    if bottom == 0:
        if _is_real(raised) and _re(raised) > 0:
            return ctx.zero
        raise Undefined("zero to a power that is not positive")
    _check_size(ctx, bottom, raised)
    if not _is_real(bottom) or _re(bottom) > 0:
        return bottom**raised
    if power is not None and power.denominator % 2 and real:
        value = (-bottom) ** raised
        return -value if power.numerator % 2 else value
    if _is_real(raised) and _re(raised) == ctx.nint(_re(raised)) and abs(raised) < 10**6:
        return bottom ** int(_re(raised))
    if real:
        raise NotReal
    return ctx.mpc(bottom) ** raised


def _is_real(value: Any) -> bool:
    return not hasattr(value, "_mpc_") or value.imag == 0


def _re(value: Any) -> Any:
    return value.real if hasattr(value, "_mpc_") else value


def _check_size(ctx: Any, base: Any, power: Any) -> None:
    size = ctx.mag(base)
    if size not in (ctx.ninf, ctx.inf) and abs(power) * (abs(size) + 1) > cost.MAX_NUMERIC_LOG2:
        raise OverLimit("a power of more than 2^22 bits")


def _range(name: str, args: tuple[Node, ...], point: Mapping[Node, Any], ctx: Any, real: bool) -> Any:
    if len(args) != 4:
        raise Opaque(name)
    body, variable, low, high = args
    start, stop = evaluate(low, point, ctx, True), evaluate(high, point, ctx, True)
    if start != ctx.nint(start) or stop != ctx.nint(stop):
        raise Opaque("a sum to a bound that is not whole")
    if stop - start >= cost.MAX_SUM_TERMS:
        raise OverLimit(f"a sum of more than {cost.MAX_SUM_TERMS} terms")
    total = ctx.zero if name == "sum" else ctx.one
    inner = dict(point)
    for k in range(int(start), int(stop) + 1):
        inner[variable] = ctx.mpf(k)
        value = evaluate(body, inner, ctx, real)
        total = total + value if name == "sum" else total * value
    return total


_MAX_ANGLE_LOG2 = 200


def _call(name: str, values: list[Any], ctx: Any, real: bool) -> Any:
    if len(values) == 1:
        x = values[0]
        if name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"):
            limit = _MAX_ANGLE_LOG2 if name in ("sin", "cos", "tan", "cot", "sec", "csc") and _is_real(x) else 20
            if x != 0 and ctx.mag(x) > limit:
                raise OverLimit(f"{name} of a huge number")
            if name in ("cot", "csc", "coth") and x == 0:
                raise Undefined(f"{name} of 0")
            return getattr(ctx, name)(x)
        if name in ("ln", "lg"):
            if x == 0:
                raise Undefined("the logarithm of 0")
            if real and x < 0:
                raise NotReal
            return ctx.ln(x)
        if name in ("arcsin", "arccos"):
            if real and abs(x) > 1:
                raise NotReal
            return (ctx.asin if name == "arcsin" else ctx.acos)(x)
        if name in ("arctan", "arccot"):
            if name == "arctan":
                return ctx.atan(x)
            return ctx.pi / 2 - ctx.atan(x)
        if name in ("arcsinh", "arccosh", "arctanh"):
            if real and ((name == "arccosh" and x < 1) or (name == "arctanh" and abs(x) >= 1)):
                raise NotReal
            return {"arcsinh": ctx.asinh, "arccosh": ctx.acosh, "arctanh": ctx.atanh}[name](x)
        if name == "abs":
            return abs(x)
        if name in ("floor", "ceil"):
            if not _is_real(x):
                raise Opaque(f"{name} of a complex number")
            # A value that rounding has put beside a whole number is that number.
            nearest = ctx.nint(_re(x))
            if abs(_re(x) - nearest) < ctx.mpf(10) ** (-ctx.dps // 2):
                return nearest
            return ctx.floor(_re(x)) if name == "floor" else ctx.ceil(_re(x))
        if name == "factorial":
            if not _is_real(x) or _re(x) != ctx.nint(_re(x)):
                raise Opaque("a factorial off the whole numbers")
            if _re(x) < 0:
                raise Undefined("a factorial of a negative number")
            if _re(x) > cost.MAX_FACTORIAL:
                raise OverLimit(f"the factorial of more than {cost.MAX_FACTORIAL}")
            return ctx.mpf(math.factorial(int(_re(x))))
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
                raise Opaque("a binomial off the whole numbers")
            if not 0 <= _re(x) <= cost.MAX_FACTORIAL:
                raise Undefined("a binomial of a negative number") if _re(x) < 0 else OverLimit("a huge binomial")
            return ctx.mpf(math.comb(int(_re(x)), int(_re(y)))) if _re(y) >= 0 else ctx.zero
        if name == "mod":
            if y == 0:
                raise Undefined("modulo zero")
            if not (_is_real(x) and _is_real(y)):
                raise Opaque("modulo of complex numbers")
            return _re(x) - _re(y) * ctx.floor(_re(x) / _re(y))
    if name in ("max", "min") and values and all(_is_real(v) for v in values):
        return (max if name == "max" else min)(_re(v) for v in values)
    raise Opaque(name)


def _root(x: Any, index: Any, ctx: Any, real: bool) -> Any:
    if not _is_real(index) or _re(index) != ctx.nint(_re(index)) or not 0 < _re(index) <= 10**6:
        if index == 0:
            raise Undefined("the zeroth root")
        if real and x <= 0:
            raise NotReal
        return x ** (1 / index)
    whole = int(_re(index))
    if x == 0:
        return ctx.zero
    if _is_real(x) and (_re(x) > 0 or whole % 2):
        value = abs(_re(x)) ** (ctx.one / whole)
        return value if _re(x) > 0 else -value
    if real:
        raise NotReal
    return ctx.mpc(x) ** (ctx.one / whole)


__all__ = [
    "PRIMES",
    "NotReal",
    "Opaque",
    "atoms",
    "canonical",
    "context",
    "evaluate",
    "exact",
    "residue",
    "root_of_minus_one",
]
