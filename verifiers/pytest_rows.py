"""Tests written for pytest (KodCode), as a plain script: its test functions called, its few helpers there by name."""

from __future__ import annotations

import ast

# The names that the rows import the program from: their members are the program's.
_PROGRAM_MODULES = {"solution", "your_module", "main"}

_STAND_IN = """
class pytest:
    class raises:
        def __init__(self, kinds, match=None):
            self.kinds, self.match, self.value = kinds, match, None
        def __enter__(self):
            return self
        def __exit__(self, kind, value, trace):
            if kind is None:
                raise AssertionError("no exception was raised")
            self.value = value
            import re
            return issubclass(kind, self.kinds) and (self.match is None or bool(re.search(self.match, str(value))))
    class approx:
        def __init__(self, expected, rel=None, abs=None):
            self.expected, self.rel, self.abs = expected, rel or (0.0 if abs else 1e-6), abs or 1e-12
        def __eq__(self, got):
            if isinstance(self.expected, (list, tuple)):
                same = isinstance(got, (list, tuple)) and len(got) == len(self.expected)
                return same and all(pytest.approx(v, self.rel, self.abs) == g for v, g in zip(self.expected, got))
            if not isinstance(got, (int, float)):
                return False
            gap, size = got - self.expected, max(self.expected, -self.expected)
            return got == self.expected or max(gap, -gap) <= max(self.abs, self.rel * size)
        def __repr__(self):
            return f"about {self.expected!r}"
    @staticmethod
    def fail(reason=""):
        raise AssertionError(reason)
"""


def plain_script(source: str) -> str:
    """`source` without pytest: imports of the program dropped, each `test_...` called, `parametrize` written out.

    A script that needs none of it comes back as it is, and so does one that does not parse. Raises ValueError for what
    cannot be written out: a fixture.
    """
    if "test_" not in source and "pytest" not in source and not any(name in source for name in _PROGRAM_MODULES):
        return source
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    changed = _WithoutImports()
    tree = changed.visit(tree)
    found = [call for node in tree.body for call in _calls(node)]
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    calls = [line for name, line in found if name not in called]
    if not calls and not changed.found:
        return source
    head = _STAND_IN if changed.pytest else ""
    return "\n".join([head, ast.unparse(ast.fix_missing_locations(tree)), *calls])


class _WithoutImports(ast.NodeTransformer):
    def __init__(self) -> None:
        self.found = self.pytest = False

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.module == "pytest":
            self.found = self.pytest = True
            names = [(alias.asname or alias.name, alias.name) for alias in node.names]
            return [ast.parse(f"{name} = pytest.{member}").body[0] for name, member in names]
        if node.module in _PROGRAM_MODULES or node.level:
            self.found = True
            renamed = [(alias.asname, alias.name) for alias in node.names if alias.asname]
            return [ast.parse(f"{name} = {member}").body[0] for name, member in renamed] or ast.Pass()
        return node

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        kept = [alias for alias in node.names if alias.name != "pytest"]
        if len(kept) == len(node.names):
            return node
        self.found = self.pytest = True
        return ast.Import(kept) if kept else ast.Pass()


def _calls(node: ast.stmt, owner: str = "") -> list[tuple[str, str]]:
    """Name and call of each test that a statement of the script defines."""
    if isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not owner:
        return [call for inner in node.body for call in _calls(inner, f"{node.name}().")]
    if not isinstance(node, ast.FunctionDef):
        return []
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if any("fixture" in decorator for decorator in decorators):
        raise ValueError(f"the tests need a fixture of pytest ({node.name}), which is not supported")
    if not node.name.startswith("test"):
        return []
    tables = [d for d in node.decorator_list if isinstance(d, ast.Call) and ast.unparse(d.func).endswith("parametrize")]
    node.decorator_list = [d for d in node.decorator_list if "pytest" not in ast.unparse(d)]
    call, given = "", set()
    for depth, table in enumerate(reversed(tables)):
        names = _names(table.args[0])
        given |= set(names)
        row = f"_row{depth}"
        values = row if len(names) > 1 else f"({row},)"
        call = f"for {row} in {ast.unparse(table.args[1])} for _given{depth} in [dict(zip({names!r}, {values}))] {call}"
    wanted = {arg.arg for arg in node.args.args} - ({"self"} if owner else set())
    optional = {arg.arg for arg in node.args.args[len(node.args.args) - len(node.args.defaults) :]}
    if wanted - optional - given:
        raise ValueError(f"{node.name} of the tests takes fixtures ({', '.join(sorted(wanted - optional - given))})")
    arguments = ", ".join(f"**_given{depth}" for depth in range(len(tables)))
    invoked = f"{owner}{node.name}({arguments})"
    return [(node.name, f"[{invoked} {call}]" if call else invoked)]


def _names(node: ast.expr) -> list[str]:
    value = ast.literal_eval(node)
    return [name.strip() for name in (value.split(",") if isinstance(value, str) else value)]
