"""Are two expressions the same number, or the same function? Cheap and exact first; what decided is named.

1. `structure`: the canonical trees are the same. Proof.
2. `exact`: both are rational numbers. Decides.
3. `rational`: both are rational functions of their names, pi, e and i: residues at two random points of two primes of
   61 bits. Differing residues prove them different; equal ones leave odds below degree^2 / 2^121.
4. `numeric`: everything else, at random points: one point where they differ refutes, agreement to 30 digits at twelve
   points (for closed numbers: to 250 digits and more) counts as an identity; digits are relative to the values, and
   counted from the smallest number in them.
Random points are drawn from a hash of the two expressions, so a verdict repeats and nobody can write for the points.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from r1zero.verifiers.math.calculus import AGREE_DIGITS, POINTS, is_approximate
from r1zero.verifiers.math.exact import PRIMES, exact, residue, root_of_minus_one
from r1zero.verifiers.math.nodes import (
    IMAGINARY,
    PI,
    Add,
    Call,
    Const,
    Mul,
    Node,
    Num,
    OverLimitError,
    Pow,
    Sym,
    UndefinedError,
    canonical,
    children,
    contains,
    number,
    order,
    substitute,
)
from r1zero.verifiers.math.numeric import NotRealError, OpaqueError, atoms, context, evaluate

_WHOLE_NAMES = frozenset(Sym(name) for name in "nmkljNMKLpqrdst")
"""Names that stand for whole numbers where (-1)^n shows that whole numbers are meant."""
_COUNTING_NAMES = frozenset(Sym(name) for name in "nmkljNMKL")
"""Names that stand for whole numbers where a floor or a modulus of more than the name itself does: n/2, not n."""
_POINTS = 12
_DIGITS = 40
_ZERO_DIGITS = 30
_MORE_DIGITS = 360
_MAX_TINY_DIGITS = 1000
_CLOSED_DIGITS = 260
_CLOSED_AGREE = 250


class Result(NamedTuple):
    equal: bool
    stage: str


def same_value(left: Node, right: Node) -> Result:
    """Whether two scalar expressions are equal, and the stage that decided.

    Raises OverLimitError when deciding would cost too much; an expression without a value equals nothing but itself.
    """
    if isinstance(left, Num) and isinstance(right, Num):
        return Result(left.value == right.value, "exact")
    left, right = canonical(left), canonical(right)
    if left == right:
        return Result(True, "structure")
    if isinstance(left, Num) and isinstance(right, Num):
        return Result(left.value == right.value, "exact")
    if any(isinstance(node, Const) and node.name not in ("pi", "e", "i") for node in (left, right)):
        return Result(False, "structure")
    try:
        first, second = exact(left), exact(right)
        if first is not None and second is not None:
            return Result(first == second, "exact")
        found = _rational(left, right)
        if found is not None:
            return Result(found, "rational")
        return Result(_numeric(left, right), "numeric")
    except UndefinedError:
        return Result(False, "undefined")
    except OpaqueError:
        return Result(False, "opaque")


def _seed(left: Node, right: Node) -> random.Random:
    digest = hashlib.blake2b(f"{order(left)}|{order(right)}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))


def _rational(left: Node, right: Node) -> bool | None:
    names = sorted(atoms(left) | atoms(right), key=order)
    rng = _seed(left, right)
    for prime in PRIMES:
        point: dict[Node, int] = {name: rng.randrange(1, prime) for name in [*names, PI, Const("e")]}
        point[IMAGINARY] = root_of_minus_one(prime)
        first = residue(left, point, prime)
        if first is None:
            return None
        second = residue(right, point, prime)
        if second is None:
            return None
        if first != second:
            return False
    return True


def _numeric(left: Node, right: Node) -> bool:
    names = sorted(atoms(left) | atoms(right), key=order)
    if not names:
        return _closed(left, right)
    rng = _seed(left, right)
    whole: Sequence[Node] = []
    steps = _steps(left) | _steps(right)
    if any(_discrete(node) for node in (left, right)):
        whole = names
    elif any(_alternates(node) for node in (left, right)):
        whole = [name for name in names if name in _WHOLE_NAMES]
    elif steps:
        # The floor of a name that stands for whole numbers would be idle: then it does not.
        idle = frozenset[Node]().union(*(atoms(step) for step in steps if _is_whole(step)))
        whole = [name for name in names if name in _COUNTING_NAMES and name not in idle]
    near = is_approximate(left) or is_approximate(right)
    points, agree = (POINTS, _nearly) if near else (_POINTS, _agree_at)
    for real in (True, False):
        agreed, refusal = 0, None
        for trial in range(3 * points):
            # A floor jumps at whole numbers: ceil(x) and floor(x) + 1 differ there, and nowhere else.
            at_whole = names if steps and trial % 3 == 2 else whole
            point = _point(names, at_whole, rng, trial, real)
            try:
                if not agree(left, right, point, real):
                    return False
            except (NotRealError, UndefinedError):
                continue
            except OverLimitError as error:
                refusal = error
                continue
            agreed += 1
            if agreed >= points:
                return True
        if agreed >= 3:
            return True
        if refusal is not None:
            raise refusal
    raise UndefinedError("no point where both have a value")


def _point(names: list[Node], whole: Sequence[Node], rng: random.Random, trial: int, real: bool) -> dict[Node, Any]:
    """A random point: all positive, all negative, of any sign, or far out, in turn; whole numbers where they are meant.

    Each kind comes up, so that |x| and x, or |x - 30| and 30 - x, never pass for one another by luck.
    """
    ctx = context(_DIGITS)
    point: dict[Node, Any] = {}
    for name in names:
        if name in whole:
            point[name] = ctx.mpf(rng.randrange(1, 12 if trial < _POINTS else 40))
            continue
        size = ctx.mpf(rng.randrange(1, 1 << 60)) / (1 << 60) * 3 + 0.2
        sign = (1, -1, rng.choice((1, -1)), 1 if trial % 8 < 4 else -1)[trial % 4]
        value = sign * size * (60 if trial % 4 == 3 else 1)
        point[name] = value if real else ctx.mpc(value, ctx.mpf(rng.randrange(1, 1 << 60)) / (1 << 59) - 1)
    return point


def _agree_at(left: Node, right: Node, point: dict[Node, Any], real: bool) -> bool:
    """Whether two expressions agree at a point, relative to their size, however small it is."""
    # A small number in them (10^-34) makes a small difference: look that much deeper, twice for its square.
    fine = _DIGITS + 2 * min(_MAX_TINY_DIGITS, _tiny_digits(left) + _tiny_digits(right))
    ctx = context(fine)
    first, second = evaluate(left, point, ctx, real), evaluate(right, point, ctx, real)
    gap = abs(first - second)
    size = max(abs(first), abs(second))
    if gap <= size * ctx.mpf(10) ** -(fine - _DIGITS + _ZERO_DIGITS):
        return True
    largest = max(abs(value) for value in point.values())
    if gap > max(size, ctx.one) * ctx.mpf(10) ** -8 and largest < 4:
        return False
    # Digits may be lost in a cancellation (cosh^2 - sinh^2 far out). More of them make what is only noise far smaller,
    # and leave a true difference as it is.
    ctx = context(fine + _MORE_DIGITS)
    first, second = evaluate(left, point, ctx, real), evaluate(right, point, ctx, real)
    return bool(abs(first - second) <= gap * ctx.mpf(10) ** -(_MORE_DIGITS * 3 // 4))


def _nearly(left: Node, right: Node, point: dict[Node, Any], real: bool) -> bool:
    """Whether two values agree to the digits that an integral or a limit is good for."""
    ctx = context(_DIGITS)
    first, second = evaluate(left, point, ctx, real), evaluate(right, point, ctx, real)
    return bool(abs(first - second) <= ctx.mpf(10) ** -AGREE_DIGITS * max(abs(first), abs(second), ctx.one))


def _closed(left: Node, right: Node) -> bool:
    for real in (True, False):
        try:
            if is_approximate(left) or is_approximate(right):
                return _nearly(left, right, {}, real)
            ctx = context(_DIGITS)
            first, second = evaluate(left, {}, ctx, real), evaluate(right, {}, ctx, real)
            if _relative(ctx, first, second) > ctx.mpf(10) ** -12:
                return False
            # A difference that a small number makes shows at the digits that number has.
            digits = _CLOSED_DIGITS + _tiny_digits(left) + _tiny_digits(right)
            if digits > 4000:
                raise OverLimitError("numbers that differ only after thousands of digits")
            ctx = context(digits)
            first, second = evaluate(left, {}, ctx, real), evaluate(right, {}, ctx, real)
            return bool(_relative(ctx, first, second) < ctx.mpf(10) ** -(digits - _CLOSED_DIGITS + _CLOSED_AGREE))
        except NotRealError:
            continue
    raise UndefinedError("no value")


def _relative(ctx: Any, first: Any, second: Any) -> Any:
    if first == second:
        return ctx.zero
    size = max(abs(first), abs(second))
    return abs(first - second) / size if min(abs(first), abs(second)) > 0 else abs(first - second)


def _tiny_digits(node: Node) -> int:
    """Digits that the numbers in a closed expression may reach below one another: a bound on what may hide."""
    match node:
        case Num(value):
            return int(0.302 * max(value.numerator.bit_length(), value.denominator.bit_length()))
        case Pow(base, Num(power)):
            return min(100_000, int(_tiny_digits(base) * max(Fraction(1), abs(power))) + 1)
        case Call("factorial" | "binom", _):
            whole = exact(node)
            return _tiny_digits(Num(whole)) if whole is not None else 0
        case _:
            return sum(_tiny_digits(child) for child in children(node))


def _alternates(node: Node) -> bool:
    """True with a power of a negative number, (-1)^n: it has real values at whole numbers only."""
    if isinstance(node, Pow) and isinstance(node.base, Num) and node.base.value < 0:
        return not isinstance(node.exponent, Num)
    return any(_alternates(child) for child in children(node))


def _steps(node: Node) -> frozenset[Node]:
    """What a floor, a ceiling or a modulus is taken of."""
    found = frozenset((node.args[0],)) if isinstance(node, Call) and node.name in ("floor", "ceil", "mod") else None
    return frozenset[Node]().union(found or (), *(_steps(child) for child in children(node)))


def _is_whole(node: Node) -> bool:
    """True for what is whole wherever its names are: sums, products and powers of them and of whole numbers."""
    match node:
        case Num(value):
            return value.denominator == 1
        case Sym():
            return True
        case Add(parts) | Mul(parts):
            return all(_is_whole(part) for part in parts)
        case Pow(base, Num(power)):
            return power.denominator == 1 and power >= 0 and _is_whole(base)
        case _:
            return False


def _discrete(node: Node) -> bool:
    """True with a factorial, binomial or sum: it has values at whole numbers only."""
    if isinstance(node, Call) and node.name in ("factorial", "binom", "sum", "prod"):
        return True
    return any(_discrete(child) for child in children(node))


def proportional(left: Node, right: Node) -> Node | None:
    """The constant c != 0 with left = c * right, or None. For equations and inequalities, which a factor leaves alone.

    c comes from one point; that it holds everywhere is `same_value`'s to say.
    """
    names = sorted(atoms(left) | atoms(right), key=order)
    rng = _seed(left, right)
    for _ in range(6):
        point: dict[Node, Node] = {name: number(Fraction(rng.randrange(2, 60), rng.randrange(1, 7))) for name in names}
        top, bottom = canonical(substitute(left, point)), canonical(substitute(right, point))
        try:
            if same_value(bottom, number(0)).equal or same_value(top, number(0)).equal:
                continue
        except OverLimitError:
            return None
        factor = canonical(Mul((top, Pow(bottom, number(-1)))))
        value = exact(factor)
        if value is not None:
            factor = Num(value)
        return factor if same_value(left, Mul((factor, right))).equal else None
    return None


def sign_of(node: Node) -> int | None:
    """-1, 0 or 1 for a closed real number; None when it is neither."""
    value = exact(node)
    if value is not None:
        return (value > 0) - (value < 0)
    try:
        ctx = context(_DIGITS)
        real = evaluate(node, {}, ctx, True)
    except (NotRealError, UndefinedError, OpaqueError):
        return None
    return 0 if abs(real) < ctx.mpf(10) ** -_ZERO_DIGITS else 1 if real > 0 else -1


def has_names(node: Node) -> bool:
    return bool(atoms(node))


def is_closed(node: Node) -> bool:
    """True for a number without names (infinity aside)."""
    return not contains(node, Const("inf")) and not atoms(node)
