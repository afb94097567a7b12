"""Broken variants of a right program: one small change each, at places spread evenly over it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

_COMPARES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}  # fmt: skip


def mutants(source: str, entry_point: str, count: int, after_line: int = 0) -> list[tuple[str, str]]:
    """Up to `count` (what was changed, source) of a program, the first of which makes the entry point return None.

    after_line: leave the lines up to here, the prompt's, as they are.
    """
    tree = ast.parse(source)
    found = [
        (f"{ast.unparse(node)} -> {ast.unparse(changed)}", ast.unparse(_replaced(tree, node, changed)))
        for node in ast.walk(tree)
        if getattr(node, "lineno", 0) > after_line
        for changed in _changes(node)
    ]
    step = max(1, len(found) // max(1, count - 1))
    broken = f"{source}\ndef {entry_point}(*args, **kwargs):\n    return None\n"
    return [("returns None", broken), *found[::step]][:count]


def _changes(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARES:
        yield ast.Compare(node.left, [_COMPARES[type(node.ops[0])](), *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)


def _replaced(tree: ast.Module, node: ast.AST, changed: ast.expr) -> ast.Module:
    class Replace(ast.NodeTransformer):
        def visit(self, here: ast.AST) -> ast.AST:
            return changed if here is node else self.generic_visit(here)

    # A transformer changes in place: give each mutant a tree of its own, and put the shared node back afterwards.
    memo: dict[int, object] = {id(node): node}
    result = Replace().visit(copy.deepcopy(tree, memo))
    return ast.fix_missing_locations(result)
