"""Do two trees mean the same answer? The rules of equality, one function a kind. The gold's kind steers.

`compare(gold, pred)` returns whether they are equal and the stage that decided. It is not symmetric: a unit may be
missing from either, but a tolerance belongs to the gold's own digits only.
"""

from __future__ import annotations

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.exact import exact
from r1zero.verifiers.math.matrices import as_matrix, has_matrix
from r1zero.verifiers.math.names import is_name, is_name_sum
from r1zero.verifiers.math.nodes import (
    EMPTY,
    BaseN,
    Braces,
    Call,
    Colon,
    Group,
    Matrix,
    Node,
    Num,
    OverLimitError,
    Relation,
    Seq,
    SetOp,
    Sym,
    Text,
    UndefinedError,
    canonical,
    children,
    contains,
)
from r1zero.verifiers.math.numeric import OpaqueError
from r1zero.verifiers.math.relations import (
    between,
    is_closed_number,
    rounds_to,
    same_argument,
    same_equation,
    same_inequalities,
)
from r1zero.verifiers.math.scalars import same_numeral, same_ratio, same_scalar, same_text
from r1zero.verifiers.math.sets import NoSetError, is_set, read_set, same_set
from r1zero.verifiers.math.signs import MINUS_PLUS, PLUS_MINUS, expand_signs
from r1zero.verifiers.math.symbolic import Result

_NO = Result(False, "structure")


def compare(gold: Node, pred: Node) -> Result:
    """Whether `pred` is the answer `gold`. Raises OverLimitError."""
    if canonical(gold) == canonical(pred):
        return Result(not _undefined(pred), "structure")
    if contains(gold, PLUS_MINUS, MINUS_PLUS) or contains(pred, PLUS_MINUS, MINUS_PLUS):
        gold, pred = expand_signs(gold), expand_signs(pred)
    return _compare(gold, pred)


def _undefined(node: Node) -> bool:
    try:
        exact(node)
    except UndefinedError:
        return True
    except OverLimitError:
        return False
    return False


def _compare(gold: Node, pred: Node) -> Result:
    if isinstance(gold, Text) or isinstance(pred, Text):
        return same_text(gold, pred)
    if is_set(gold) or is_set(pred):
        found = _sets(gold, pred)
        if found is not None:
            return found
    if isinstance(gold, Relation) or isinstance(pred, Relation):
        return _relations(gold, pred)
    if isinstance(gold, (Seq, Braces)) or isinstance(pred, (Seq, Braces)):
        return _lists(gold, pred)
    if isinstance(gold, Matrix) or isinstance(pred, Matrix) or has_matrix(gold) or has_matrix(pred):
        return _matrices(gold, pred)
    if isinstance(gold, Group) or isinstance(pred, Group):
        return _groups(gold, pred)
    if isinstance(gold, Colon) or isinstance(pred, Colon):
        return same_ratio(gold, pred)
    if isinstance(gold, BaseN) or isinstance(pred, BaseN):
        return same_numeral(gold, pred)
    return same_scalar(gold, pred)


# Sets of reals


def _sets(gold: Node, pred: Node) -> Result | None:
    """Both as sets of reals; None where one is none, and other rules must decide."""
    if isinstance(pred, Group) and isinstance(gold, Group) and not (is_set(gold) and is_set(pred)):
        return None
    try:
        first = read_set(gold)
    except (NoSetError, OpaqueError, UndefinedError):
        return None
    try:
        second = read_set(pred)
    except (NoSetError, OpaqueError, UndefinedError):
        return None
    if any(found.name is not None and not is_name(found.name) for found in (first, second)):
        if first.name != second.name:
            return None  # the values of x^3 are no values of x
    elif first.name is not None and second.name is not None and first.name != second.name:
        if all(isinstance(name, (Sym, Call)) for name in (first.name, second.name)):
            return Result(False, "set")
        return None  # x + y <= 3 and 2x + 2y <= 6: compared as inequalities
    return Result(same_set(first, second), "set")


# Relations


def _relations(gold: Node, pred: Node) -> Result:
    if isinstance(gold, Group) or isinstance(pred, Group):
        gold, pred = between(gold), between(pred)
        if isinstance(gold, Group) and isinstance(pred, Group):
            return _groups(gold, pred)
    if isinstance(gold, Relation) and isinstance(pred, Relation):
        return _two_relations(gold, pred)
    if isinstance(pred, Relation):
        if pred.ops == ("in",) and isinstance(pred.operands[1], Braces) and isinstance(gold, (Seq, Braces)):
            return _lists(gold, pred.operands[1])
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
    """(name, value) of `x = 5`, `5 = x`, `f(x) = 2x`, `x = 5+5+1 = 11`, `x = \\sqrt2 \\approx 1.41`; else None.

    In a chain the values must agree, what stands behind an approximately-sign with what stands before it at its own
    digits; a chain of numbers (0.56 = 56\\%) has no name but a value, 3 = 5 has none. lenient (the prediction's
    side): a sum or product of names may stand for the name, as in m + n = 113.
    """
    operands, ops = list(relation.operands), list(relation.ops)
    if any(op not in ("=", "~") for op in ops):
        return None

    def names(node: Node) -> bool:
        return is_name(node) or (lenient and is_name_sum(node))

    if set(ops) == {"="} and names(operands[-1]) and not any(names(operand) for operand in operands[:-1]):
        operands.reverse()
    name: Node | None = None
    if ops[0] == "=" and names(operands[0]):
        name = operands.pop(0)
        ops.pop(0)
    elif not is_closed_number(operands[0]):
        return None
    # The values on the equal side of the first approximately-sign have to agree, those behind it to be near.
    exact_count = ops.index("~") + 1 if "~" in ops else len(operands)
    values, shown = operands[:exact_count], operands[exact_count:]
    if any(not _compare(values[0], value).equal for value in values[1:]):
        return None
    if any(not rounds_to(values[-1], value) for value in shown):
        return None
    return canonical(name if name is not None else values[0]), values[-1]


def _two_relations(gold: Relation, pred: Relation) -> Result:
    pred = same_argument(gold, pred)
    first, second = assignment(gold), assignment(pred)
    if first is not None and second is not None and first[0] == second[0]:
        return _compare(first[1], second[1])
    if set(gold.ops) == {"="} and set(pred.ops) == {"="}:
        if len(gold.ops) == len(pred.ops) == 1:
            return Result(same_equation(gold, pred), "equation")
        return _NO
    return Result(same_inequalities(gold, pred), "inequality")


# Lists, sets, tuples


def _lists(gold: Node, pred: Node) -> Result:
    """A list or set against a list, a set, a tuple or one value: the same members, none missing, none extra."""
    if isinstance(gold, Braces) and len(gold.items) == 1:
        return _compare(gold.items[0], pred)
    if isinstance(pred, Braces) and len(pred.items) == 1:
        return _compare(gold, pred.items[0])
    gold_names, gold_values = _named(gold)
    pred_names, pred_values = _named(pred)
    one = not isinstance(gold, (Seq, Braces, Group, Relation, SetOp))
    said_again = isinstance(pred, Seq) and pred.joiner == "or"
    if one and not said_again and len(set(pred_values)) < len(pred_values):
        return Result(False, "list")  # `1/2, 0.5` and `5 or five` say one value twice, `1, 1` is a list
    distinct = gold_names is not None and len(set(gold_names)) > 1
    if gold_names is not None and pred_names is not None:
        if set(gold_names) != set(pred_names):
            return Result(False, "list")
        if distinct:
            pairs_gold: list[Node] = [Relation((n, v), ("=",)) for n, v in zip(gold_names, gold_values, strict=True)]
            pairs_pred: list[Node] = [Relation((n, v), ("=",)) for n, v in zip(pred_names, pred_values, strict=True)]
            return _same_members(pairs_gold, pairs_pred, "list")
    if distinct and any(isinstance(value, Relation) for value in pred_values):
        return Result(False, "list")  # xa = 1 is not the x = 1 that was asked for
    ordered = _differing(gold_names) or _differing(pred_names)
    if isinstance(pred, Group) or isinstance(gold, Group):
        if isinstance(pred, Braces) or isinstance(gold, Braces):
            return Result(False, "list")  # a set has no order, and cannot stand for a tuple
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
        if node.ops == ("in",) and isinstance(node.operands[1], Braces):
            return None, list(node.operands[1].items)
        assigned = assignment(node)
        if assigned is not None and isinstance(assigned[1], (Seq, Braces)):
            return None, list(assigned[1].items)
    if isinstance(node, SetOp):
        try:
            pieces = read_set(node).pieces
        except (NoSetError, OpaqueError, UndefinedError):
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
        raise OverLimitError(f"more than {cost.MAX_ITEMS} items")
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
        raise OverLimitError(f"more than {cost.MAX_COMPARED_ITEMS} items to compare")
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


def _matrices(gold: Node, pred: Node) -> Result:
    first, second = as_matrix(gold), as_matrix(pred)
    if first is None or second is None:
        return Result(False, "matrix")
    if (len(first.rows), len(first.rows[0])) != (len(second.rows), len(second.rows[0])):
        return Result(False, "matrix")
    cells = zip(children(first), children(second), strict=True)
    return Result(all(_compare(g, p).equal for g, p in cells), "matrix")
