"""Do two trees mean the same answer? The rules of equality, one function a kind. The gold's kind steers.

`compare(gold, pred)` returns whether they are equal and the stage that decided. It is not symmetric: a unit may be
missing from either, but a tolerance belongs to the gold's own digits only.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product as combinations

from r1zero.verifiers.math import cost, units
from r1zero.verifiers.math.nodes import (
    EMPTY,
    INF,
    MINUS_ONE,
    ONE,
    PI,
    Add,
    BaseN,
    Braces,
    Call,
    Colon,
    Const,
    Degrees,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    OverLimit,
    Percent,
    Pow,
    Quantity,
    Relation,
    Seq,
    SetOp,
    Sym,
    Text,
    Undefined,
    canonical,
    children,
    contains,
    divide,
    minus,
    number,
    rebuild,
)
from r1zero.verifiers.math.numeric import NotReal, Opaque, atoms, context, evaluate, exact
from r1zero.verifiers.math.parse import words_of
from r1zero.verifiers.math.sets import FLIP, NoSet, is_set, read_set, same_set
from r1zero.verifiers.math.symbolic import Result, proportional, same_value, sign_of

PLUS_MINUS, MINUS_PLUS = Const("pm"), Const("mp")
_NO = Result(False, "structure")


def compare(gold: Node, pred: Node) -> Result:
    """Whether `pred` is the answer `gold`. Raises OverLimit."""
    if canonical(gold) == canonical(pred):
        return Result(not _undefined(pred), "structure")
    if contains(gold, PLUS_MINUS, MINUS_PLUS) or contains(pred, PLUS_MINUS, MINUS_PLUS):
        gold, pred = expand_signs(gold), expand_signs(pred)
    return _compare(gold, pred)


def _undefined(node: Node) -> bool:
    try:
        exact(node)
    except Undefined:
        return True
    except OverLimit:
        return False
    return False


def _compare(gold: Node, pred: Node) -> Result:
    if isinstance(gold, Text) or isinstance(pred, Text):
        return _texts(gold, pred)
    if is_set(gold) or is_set(pred):
        found = _sets(gold, pred)
        if found is not None:
            return found
    if isinstance(gold, Relation) or isinstance(pred, Relation):
        return _relations(gold, pred)
    if isinstance(gold, (Seq, Braces)) or isinstance(pred, (Seq, Braces)):
        return _lists(gold, pred)
    if isinstance(gold, Matrix) or isinstance(pred, Matrix) or _has_matrix(gold) or _has_matrix(pred):
        return _matrices(gold, pred)
    if isinstance(gold, Group) or isinstance(pred, Group):
        return _groups(gold, pred)
    if isinstance(gold, Colon) or isinstance(pred, Colon):
        return _colons(gold, pred)
    if isinstance(gold, BaseN) or isinstance(pred, BaseN):
        return _bases(gold, pred)
    return _scalars(gold, pred)


# Plus-minus


def expand_signs(node: Node) -> Node:
    """Every ± written out: a list of the values it stands for.

    Signs in one item are independent, unless a ∓ ties them together. `x != ±5` means both.
    """
    if isinstance(node, (Seq, Braces)):
        items: list[Node] = []
        for item in node.items:
            expanded = expand_signs(item)
            items += expanded.items if isinstance(expanded, Seq) and contains_sign(item) else (expanded,)
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
        raise OverLimit(f"more than {cost.MAX_ALTERNATIVES} values of plus-minus signs")
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


# Text and choices

_INFINITE_WORDS = {"infinity", "infinite", "infinitely many", "inf"}


def _texts(gold: Node, pred: Node) -> Result:
    for one, other in ((gold, pred), (pred, gold)):
        if isinstance(one, Text) and isinstance(other, Const):
            same = (other == INF and one.words in _INFINITE_WORDS) or (other == EMPTY and one.words == "empty set")
            return Result(same, "text")
    first, second = _words(gold), _words(pred)
    return Result(first is not None and first == second, "text")


def _words(node: Node) -> str | None:
    match node:
        case Text(words):
            return words
        case Sym(name):
            return words_of(name)
        case Mul(factors) if all(isinstance(f, Sym) and len(f.name) == 1 for f in factors):
            return words_of("".join(f.name for f in factors if isinstance(f, Sym)))
        case Const("e" | "i" as name):
            return name
        case Relation(operands, ops):
            parts = [_words(operand) for operand in operands]
            return "=".join(part or "?" for part in parts) if all(parts) and set(ops) == {"="} else None
        case _:
            return None


# Sets of reals


def _sets(gold: Node, pred: Node) -> Result | None:
    """Both as sets of reals; None where one is none, and other rules must decide."""
    if isinstance(pred, Group) and isinstance(gold, Group) and not (is_set(gold) and is_set(pred)):
        return None
    try:
        first = read_set(gold)
    except (NoSet, Opaque, Undefined):
        return None
    try:
        second = read_set(pred)
    except (NoSet, Opaque, Undefined):
        return None
    if first.name is not None and second.name is not None and first.name != second.name:
        return Result(False, "set")
    return Result(same_set(first, second), "set")


# Relations


def _relations(gold: Node, pred: Node) -> Result:
    if isinstance(gold, Relation) and isinstance(pred, Relation):
        return _two_relations(gold, pred)
    if isinstance(pred, Relation):
        assigned = assignment(pred, lenient=True)
        if assigned is not None and not isinstance(gold, (Seq, Braces)):
            return _compare(gold, assigned[1])
        if assigned is not None:
            return _lists(gold, assigned[1])
        return _NO
    assert isinstance(gold, Relation)
    assigned = assignment(gold)
    if assigned is None:
        return _NO
    return _compare(assigned[1], pred)


def assignment(relation: Relation, lenient: bool = False) -> tuple[Node, Node] | None:
    """(name, value) of `x = 5`, `f(x) = 2x`, `AB = 4`, `x = 5+5+1 = 11`; None where the left side is no name.

    In a longer chain the values must agree, and a chain of numbers (0.56 = 56\\%) has no name but a value: 3 = 5 has
    none. lenient (the prediction's side): a sum or product of names may stand on the left, as in m + n = 113.
    """
    name, values = relation.operands[0], list(relation.operands[1:])
    if any(op not in ("=", "~") for op in relation.ops):
        return None
    if relation.ops[0] == "=" and (_is_name(name) or (lenient and _is_name_sum(name))):
        if "~" in relation.ops:
            values = values[: relation.ops.index("~")]
    elif _is_closed_number(name):
        if "~" in relation.ops:
            return (name, name) if relation.ops == ("~",) and _rounds_to(name, values[0]) else None
        values = [name, *values]
    else:
        return None
    if any(not _compare(values[0], value).equal for value in values[1:]):
        return None
    return canonical(name), values[-1]


def _is_name(node: Node) -> bool:
    match node:
        case Sym() | Text():
            return True
        case Call(name, _):
            return name in ("apply", "prime", "overline", "hat", "vec", "index", "abs", "dot", "det")
        case Mul(factors):
            upper = all(isinstance(f, Sym) and f.name[0].isupper() for f in factors)
            return upper or (len(factors) == 2 and isinstance(factors[1], Sym) and factors[1].name.startswith("angle"))
        case Group(_, items, _):
            return all(_is_name(item) for item in items)
        case Colon(parts, _):
            return all(_is_name(part) for part in parts)
        case Quantity(value, _) | Degrees(value):
            return _is_name(value)
        case _:
            return False


def _is_name_sum(node: Node) -> bool:
    match node:
        case Add(parts) | Mul(parts):
            return all(_is_name_sum(part) or part == MINUS_ONE for part in parts)
        case Pow(base, exponent):
            return exponent == MINUS_ONE and _is_name_sum(base)
        case _:
            return _is_name(node)


def _is_closed_number(node: Node) -> bool:
    try:
        plain = _number_of(node)
        return plain is not None and not atoms(plain) and not contains(plain, INF, EMPTY)
    except Opaque:
        return False


def _rounds_to(exact_side: Node, rounded: Node) -> bool:
    """True for `2/3 ~ 0.67`: the right side is the left one at its own digits."""
    first, second = _number_of(exact_side), _number_of(rounded)
    return first is not None and isinstance(second, Num) and second.places is not None and _within(first, second)


def _two_relations(gold: Relation, pred: Relation) -> Result:
    first, second = assignment(gold), assignment(pred)
    if first is not None and second is not None and first[0] == second[0]:
        return _compare(first[1], second[1])
    if set(gold.ops) == {"="} and set(pred.ops) == {"="}:
        if len(gold.ops) == len(pred.ops) == 1:
            return Result(_same_equation(gold, pred), "equation")
        return _NO
    return Result(_same_inequalities(gold, pred), "inequality")


def _same_equation(gold: Relation, pred: Relation) -> bool:
    """L = R and its multiples: L - R is a constant times L' - R'."""
    if any(_words_only(node) for node in (*gold.operands, *pred.operands)):
        return {_words(node) for node in gold.operands} == {_words(node) for node in pred.operands}
    left, right = minus(*gold.operands), minus(*pred.operands)
    try:
        if not atoms(left) or not atoms(right):
            return False
        return proportional(left, right) is not None
    except (Opaque, Undefined):
        return False


def _words_only(node: Node) -> bool:
    return isinstance(node, Text)


def _same_inequalities(gold: Relation, pred: Relation) -> bool:
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
    except (Opaque, Undefined):
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


# Lists, sets, tuples


def _lists(gold: Node, pred: Node) -> Result:
    """A list or set against a list, a set, a tuple or one value: same members, in any order, none missing, none extra."""
    gold_names, gold_values = _named(gold)
    pred_names, pred_values = _named(pred)
    distinct = gold_names is not None and len(set(gold_names)) > 1
    if gold_names is not None and pred_names is not None:
        if set(gold_names) != set(pred_names):
            return Result(False, "list")
        if distinct:
            pairs_gold = [Relation((n, v), ("=",)) for n, v in zip(gold_names, gold_values, strict=True)]
            pairs_pred = [Relation((n, v), ("=",)) for n, v in zip(pred_names, pred_values, strict=True)]
            return _same_members(pairs_gold, pairs_pred, "list")
    ordered = _differing(gold_names) or _differing(pred_names)
    if isinstance(pred, Group) or isinstance(gold, Group):
        ordered = True
    if len(gold_values) == 1 and len(pred_values) == 1:
        return _compare(gold_values[0], pred_values[0])
    if ordered:
        if len(gold_values) != len(pred_values):
            return Result(False, "list")
        found = [_compare(g, p) for g, p in zip(gold_values, pred_values, strict=True)]
        return Result(all(result.equal for result in found), "list")
    return _same_members(gold_values, pred_values, "list")


def _differing(names: list[Node] | None) -> bool:
    """True for a record: x = 3, y = 4. Names that differ only in their index (x_1, x_2) are one unknown."""
    if names is None:
        return False
    return len({name.name.split("_")[0] if isinstance(name, Sym) else name for name in names}) > 1


def _named(node: Node) -> tuple[list[Node] | None, list[Node]]:
    """The members of a list with the names they are assigned to, if all are: `n = 2, 3, 4` names each n."""
    if isinstance(node, Relation):
        assigned = assignment(node)
        if assigned is not None and isinstance(assigned[1], (Seq, Braces)):
            return None, list(assigned[1].items)
    if isinstance(node, SetOp):
        try:
            pieces = read_set(node).pieces
        except (NoSet, Opaque, Undefined):
            return None, [node]
        return None, [piece.low for piece in pieces] if all(p.low == p.high for p in pieces) else [node]
    items = list(node.items) if isinstance(node, (Seq, Braces, Group)) else [] if node == EMPTY else [node]
    flat: list[Node] = []
    for item in items:
        inner = _record(item)
        flat += item.items if isinstance(item, Braces) and len(items) == 1 else [inner if inner is not None else item]
    names: list[Node] = []
    values: list[Node] = []
    name: Node | None = None
    for item in flat:
        if isinstance(item, Relation):
            assigned = assignment(item)
            if assigned is None:
                return None, flat
            name = assigned[0]
            if isinstance(assigned[1], Braces):
                values += assigned[1].items
                names += [name] * len(assigned[1].items)
                continue
            values.append(assigned[1])
        else:
            values.append(item)
        if name is not None:
            names.append(name)
    if not names:
        return None, values
    return (names, values) if len(names) == len(values) else (None, flat)


def _record(item: Node) -> Node | None:
    """`p=5, q=2` as one item of a list of solutions: the tuple (5, 2)."""
    if not isinstance(item, Seq):
        return None
    parts = [assignment(part) if isinstance(part, Relation) else None for part in item.items]
    if all(part is not None for part in parts):
        return Group("(", tuple(part[1] for part in parts if part is not None), ")")
    return Group("(", item.items, ")")


def _same_members(gold: list[Node], pred: list[Node], stage: str) -> Result:
    """The same members in any order; a member named twice counts once."""
    if max(len(gold), len(pred)) > cost.MAX_ITEMS:
        raise OverLimit(f"more than {cost.MAX_ITEMS} items")
    rest_gold = list(dict.fromkeys(canonical(node) for node in gold))
    rest_pred = list(dict.fromkeys(canonical(node) for node in pred))
    if all(isinstance(node, Num) for node in (*rest_gold, *rest_pred)):
        return Result(set(rest_gold) == set(rest_pred), stage)
    common = set(rest_gold) & set(rest_pred)
    rest_gold = [node for node in rest_gold if node not in common]
    rest_pred = [node for node in rest_pred if node not in common]
    if bool(rest_gold) != bool(rest_pred):
        return _covered(rest_gold or rest_pred, list(common), stage)
    if max(len(rest_gold), len(rest_pred)) > cost.MAX_COMPARED_ITEMS:
        raise OverLimit(f"more than {cost.MAX_COMPARED_ITEMS} items to compare")
    unmatched = list(rest_pred)
    for node in rest_gold:
        matches = [other for other in rest_pred if _compare(node, other).equal]
        if not matches and not any(_compare(node, other).equal for other in common):
            return Result(False, stage)
        unmatched = [other for other in unmatched if other not in matches]
    left = [other for other in unmatched if not any(_compare(node, other).equal for node in common)]
    return Result(not left, stage)


def _covered(rest: list[Node], common: list[Node], stage: str) -> Result:
    """Whether each of `rest` only repeats a common member in other words."""
    if len(rest) > cost.MAX_COMPARED_ITEMS:
        return Result(False, stage)
    return Result(all(any(_compare(one, node).equal for one in common) for node in rest), stage)


def _groups(gold: Node, pred: Node) -> Result:
    if not (isinstance(gold, Group) and isinstance(pred, Group)):
        return Result(False, "tuple")
    if (gold.left, gold.right) != (pred.left, pred.right) or len(gold.items) != len(pred.items):
        return Result(False, "tuple")
    pairs = zip(gold.items, pred.items, strict=True)
    return Result(all(_compare(g, p).equal for g, p in pairs), "tuple")


# Matrices


def _has_matrix(node: Node) -> bool:
    return isinstance(node, Mul) and any(isinstance(factor, Matrix) for factor in node.factors)


def _matrix(node: Node) -> Matrix | None:
    """A matrix, with a scalar in front multiplied in; a tuple is a column."""
    if isinstance(node, Matrix):
        return node
    if isinstance(node, Group) and node.left + node.right in ("()", "[]"):
        return Matrix(tuple((item,) for item in node.items))
    if isinstance(node, Mul) and sum(isinstance(factor, Matrix) for factor in node.factors) == 1:
        scalars = tuple(factor for factor in node.factors if not isinstance(factor, Matrix))
        (inner,) = (factor for factor in node.factors if isinstance(factor, Matrix))
        return Matrix(tuple(tuple(Mul((*scalars, cell)) for cell in row) for row in inner.rows))
    return None


def _matrices(gold: Node, pred: Node) -> Result:
    first, second = _matrix(gold), _matrix(pred)
    if first is None or second is None:
        return Result(False, "matrix")
    if (len(first.rows), len(first.rows[0])) != (len(second.rows), len(second.rows[0])):
        return Result(False, "matrix")
    cells = zip(children(first), children(second), strict=True)
    return Result(all(_compare(g, p).equal for g, p in cells), "matrix")


# Ratios, bases


def _colons(gold: Node, pred: Node) -> Result:
    if not (isinstance(gold, Colon) and isinstance(pred, Colon)):
        ratio, other = (gold, pred) if isinstance(gold, Colon) else (pred, gold)
        assert isinstance(ratio, Colon)
        if len(ratio.parts) == 2 and not ratio.suffix and isinstance(other, (Num, Mul)) and ratio is gold:
            return _scalars(divide(*ratio.parts), other)
        return Result(False, "ratio")
    if gold.suffix and pred.suffix and gold.suffix != pred.suffix:
        return Result(False, "ratio")
    if len(gold.parts) != len(pred.parts):
        return Result(False, "ratio")
    if all(_scalars(g, p).equal for g, p in zip(gold.parts, pred.parts, strict=True)):
        return Result(True, "ratio")
    if gold.suffix or pred.suffix:
        return Result(False, "ratio")
    # 6:10 is 3:5; with a zero in it (12:00) it is a clock's.
    first, second = gold.parts[0], pred.parts[0]
    if any(exact(part) == 0 for part in (*gold.parts, *pred.parts)):
        return Result(False, "ratio")
    cross = (same_value(Mul((g, second)), Mul((p, first))) for g, p in zip(gold.parts, pred.parts, strict=True))
    return Result(all(result.equal for result in cross), "ratio")


def _bases(gold: Node, pred: Node) -> Result:
    """A numeral with a base: same digits and same base; the base may be left out, but not changed."""
    if isinstance(gold, BaseN) and isinstance(pred, BaseN):
        same = _numeral(gold.digits) == _numeral(pred.digits) and gold.base == pred.base
        return Result(same, "base")
    if isinstance(pred, BaseN):
        return Result(False, "base")
    assert isinstance(gold, BaseN)
    if isinstance(pred, Num):
        from r1zero.verifiers.math.parse import _digits

        return Result(_numeral(_digits(pred)) == _numeral(gold.digits), "base")
    words = _words(pred)
    return Result(words is not None and words.upper() == gold.digits.upper(), "base")


def _numeral(digits: str) -> str:
    digits = digits.upper().lstrip("0") or "0"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


# Scalars: numbers, quantities, expressions


def _number_of(node: Node) -> Node | None:
    """The expression of a scalar without its unit, degree sign or percent sign."""
    match node:
        case Quantity(value, _) | Degrees(value):
            return value
        case Percent(value):
            return canonical(node) if isinstance(value, Num) else Mul((value, Num(Fraction(1, 100))))
        case Num() | Sym() | Const() | Add() | Mul() | Pow() | Call():
            return node
        case _:
            return None


def _scalars(gold: Node, pred: Node) -> Result:
    if isinstance(gold, Add) and any(isinstance(term, Quantity) for term in gold.terms):
        gold = _add_quantities(gold) or gold
    if isinstance(pred, Add) and any(isinstance(term, Quantity) for term in pred.terms):
        pred = _add_quantities(pred) or pred
    gold, pred = _signed_out(gold), _signed_out(pred)
    if isinstance(gold, Degrees) or isinstance(pred, Degrees):
        return _degrees(gold, pred)
    if isinstance(gold, Percent) or isinstance(pred, Percent):
        return _percents(gold, pred)
    if isinstance(gold, Quantity) and isinstance(pred, Quantity):
        return _quantities(gold, pred)
    if isinstance(gold, Quantity):
        return _scalars(gold.value, pred)
    if isinstance(pred, Quantity):
        return _scalars(gold, pred.value)
    return _values(gold, pred)


def _signed_out(node: Node) -> Node:
    """-$5 and 2 * 30 degrees: the sign or factor goes inside the unit."""
    if isinstance(node, Mul):
        marked = [f for f in node.factors if isinstance(f, (Quantity, Degrees, Percent))]
        if len(marked) == 1:
            rest = tuple(f for f in node.factors if f is not marked[0])
            inner = marked[0]
            return rebuild(inner, (canonical(Mul((*rest, inner.value))),))
    return node


def _values(gold: Node, pred: Node) -> Result:
    """Two plain expressions: equal exactly, or within the gold's own digits where it is a rounded decimal."""
    if not all(isinstance(node, (Num, Sym, Const, Add, Mul, Pow, Call)) for node in (gold, pred)):
        return _NO
    found = same_value(gold, pred)
    if not found.equal and isinstance(gold, Num) and _is_rounded(gold, pred) and _within(pred, gold):
        return Result(True, "rounded")
    return found


def _is_rounded(gold: Num, pred: Node) -> bool:
    """Whether the tolerance applies: the gold is a decimal of three digits or more that may be rounded, and the
    prediction is exact (a fraction that does not end, a root, pi) or has more digits than a gold in e-notation."""
    if gold.places is None or gold.digits < 3 or gold.value == 0:
        return False
    if isinstance(pred, Num):
        return pred.places is not None and gold.value.denominator == 1 and pred.digits > gold.digits
    try:
        if atoms(pred):
            return False
        value = exact(pred)
    except (Opaque, Undefined):
        return False
    return value is None or not _terminates(value.denominator)


def _terminates(denominator: int) -> bool:
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _within(value: Node, rounded: Num) -> bool:
    """|value - rounded| <= half a unit of the last digit written."""
    assert rounded.places is not None
    half = Fraction(1, 2) / Fraction(10) ** rounded.places
    plain = exact(value)
    if plain is not None:
        return abs(plain - rounded.value) <= half
    try:
        ctx = context(40)
        number_value = evaluate(value, {}, ctx, True)
    except (NotReal, Opaque, Undefined):
        return False
    gap = abs(number_value - ctx.mpf(rounded.value.numerator) / rounded.value.denominator)
    return bool(gap <= ctx.mpf(half.numerator) / half.denominator)


def _percents(gold: Node, pred: Node) -> Result:
    """28% is 0.28. A gold of 28% also accepts 28, and a gold over 1 (28) the percentage 28%: the sign may be dropped."""
    if isinstance(gold, Percent) and isinstance(pred, Percent):
        return _scalars(gold.value, pred.value)
    hundredth = Num(Fraction(1, 100))
    if isinstance(gold, Percent):
        pred = pred.value if isinstance(pred, Quantity) else pred
        found = _values(canonical(gold), pred)
        return found if found.equal else _values(gold.value, pred)
    assert isinstance(pred, Percent)
    if isinstance(gold, Quantity):
        return Result(False, "unit")
    found = _values(gold, Mul((pred.value, hundredth)))
    if found.equal or not isinstance(gold, Num) or gold.value <= 1:
        return found
    return _values(gold, pred.value)


def _degrees(gold: Node, pred: Node) -> Result:
    """Degrees against degrees or a bare number: the sign may be dropped. Against radians: converted."""
    if isinstance(gold, Degrees) and isinstance(pred, Degrees):
        return _values(gold.value, pred.value)
    turned, other = (gold, pred) if isinstance(gold, Degrees) else (pred, gold)
    assert isinstance(turned, Degrees)
    radians = Mul((turned.value, PI, Num(Fraction(1, 180))))
    if isinstance(other, Quantity):
        read = units.read(other.unit)
        if read is not None and read[0] == frozenset({("angle", 1)}):
            return _values(radians, other.value)
        return Result(False, "unit")
    if isinstance(other, Percent):
        return Result(False, "unit")
    found = _values(turned.value, other) if turned is gold else _values(other, turned.value)
    if found.equal:
        return found
    return same_value(radians, other)


def _quantities(gold: Quantity, pred: Quantity) -> Result:
    """Both with units: the same dimensions, and the same value after conversion."""
    if gold.unit == pred.unit:
        return _scalars(gold.value, pred.value)
    first, second = units.read(gold.unit), units.read(pred.unit)
    if first is None or second is None:
        return Result(False, "unit")
    if first[0] == second[0]:
        if first[1] == second[1]:
            return _scalars(gold.value, pred.value)
        return same_value(Mul((gold.value, Num(first[1]))), Mul((pred.value, Num(second[1]))))
    # One of them only counts things or names no unit at all: nothing was changed.
    if not first[0] or not second[0]:
        return _scalars(gold.value, pred.value)
    return Result(False, "unit")


def _add_quantities(total: Add) -> Quantity | None:
    """2 hours 30 minutes as one quantity, in the first one's unit."""
    first = total.terms[0]
    if not isinstance(first, Quantity):
        return None
    head = units.read(first.unit)
    values: list[Node] = []
    for term in total.terms:
        read = units.read(term.unit) if isinstance(term, Quantity) else None
        if read is None or head is None or read[0] != head[0] or not isinstance(term, Quantity):
            return None
        values.append(Mul((term.value, Num(read[1] / head[1]))))
    return Quantity(canonical(Add(tuple(values))), first.unit)


def letters(node: Node) -> frozenset[str] | None:
    """The letters of a multiple choice: `C`, `(C)`, `A, C, D`, `ACD`, `\\text{A,B}`; None where it is none."""
    match node:
        case Sym(name) if len(name) == 1:
            return frozenset(name.upper())
        case Seq(items, _) | Group(_, items, _) | Braces(items) | Mul(items):
            parts = [letters(item) for item in items]
            if any(part is None for part in parts):
                return None
            return frozenset().union(*(part for part in parts if part is not None))
        case _:
            return None


__all__ = ["assignment", "compare", "expand_signs", "letters", "number"]
