"""Matrices as they are compared: a scalar in front multiplied in, a tuple as a column."""

from __future__ import annotations

from r1zero.verifiers.math.nodes import Group, Matrix, Mul, Node


def has_matrix(node: Node) -> bool:
    return isinstance(node, Mul) and any(isinstance(factor, Matrix) for factor in node.factors)


def as_matrix(node: Node) -> Matrix | None:
    """A matrix, with a scalar in front multiplied in; a tuple is a column."""
    if isinstance(node, Matrix):
        return node
    if isinstance(node, Group) and node.left + node.right in ("()", "[]"):
        rows = tuple(item.items for item in node.items if isinstance(item, Group))
        if len(rows) == len(node.items) and len({len(row) for row in rows}) == 1:
            return Matrix(rows)
        return Matrix(tuple((item,) for item in node.items))
    if isinstance(node, Mul) and sum(isinstance(factor, Matrix) for factor in node.factors) == 1:
        scalars = tuple(factor for factor in node.factors if not isinstance(factor, Matrix))
        (inner,) = (factor for factor in node.factors if isinstance(factor, Matrix))
        return Matrix(tuple(tuple(Mul((*scalars, cell)) for cell in row) for row in inner.rows))
    return None
