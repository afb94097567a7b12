"""The process of the tests: a warm interpreter that forks a child for each job, in a sandbox of its own.

The model's program never runs here. The names the tests take from it are proxies: calling one sends the arguments to
the program's process and gets a value back (see `codec`), and the tests compare values of ours with Python's own
operators. So nothing a program does to its interpreter (patching builtins, overwriting the tests, `__eq__`, frames,
exiting early, printing, writing to descriptors) can make a test pass: only returning the right value can.
"""

from __future__ import annotations

import array
import ast
import builtins
import importlib
import json
import marshal
import os
import resource
import socket
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from r1zero.verifiers.sandbox.inside.codec import MAX_MESSAGE_BYTES, containers, pack, receive, send, unpack

if TYPE_CHECKING:
    from r1zero.verifiers.sandbox.inside.codec import Tree

# Imported once, here, so that the tests' own imports cost a forked child nothing. They and the members of the first row
# are also what the tests take from us when they name them without importing them: a program's own `math` or `isclose`
# would judge itself.
_MEMBERS = ("cmath", "math", "collections", "itertools", "functools", "statistics", "decimal", "fractions", "typing")
_LIBRARY = (*_MEMBERS, "copy", "datetime", "heapq", "json", "operator", "random", "re", "string")
for _name in _LIBRARY:
    importlib.import_module(_name)
_SINGLE_MEMBERS = {"deepcopy": "copy", "contextmanager": "contextlib", "suppress": "contextlib"}
# What judges in other packages, which are not to be had here: never the program's own.
_FOREIGN = {
    "allclose", "approx", "array_equal", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal",
    "assert_array_equal", "assert_equal", "assert_frame_equal", "np", "numpy", "pd", "pandas", "pytest", "scipy",
    "sympy", "torch", "unittest",
}  # fmt: skip

_MAX_REASON = 300
_NULL = os.open("/dev/null", os.O_RDWR | os.O_CREAT)  # may be a file: see `launch`


def main(control_fd: int) -> None:
    """Serve jobs until the other side closes. A job is JSON and one descriptor: the channel to the program."""
    control = socket.socket(fileno=control_fd)
    for fd in (0, 1, 2):
        os.dup2(_NULL, fd)
    send(control_fd, b"ready")
    while True:
        # The descriptor comes with the first byte, the job after it.
        descriptors = array.array("i")
        first, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(descriptors.itemsize))
        if not first:
            return
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        job = receive(control_fd)
        if job is None or not descriptors:
            return
        child = os.fork()
        if child == 0:
            _child(control_fd, descriptors[0], job)
        os.close(descriptors[0])
        _, status = os.waitpid(child, 0)
        if status:
            # Out of memory, most likely on a value of the program's: it has sent nothing. Not called a fault of ours,
            # or a program could choose an `error`, which a recipe may drop, over being wrong.
            send(control_fd, json.dumps({"status": "ran", "reason": "the tests' process died"}).encode())


def _child(control_fd: int, channel: int, job_bytes: bytes) -> NoReturn:
    try:
        job = json.loads(job_bytes)
        for name, value in job["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        warnings.simplefilter("ignore")
        report = run_tests(channel, job)
        send(control_fd, json.dumps(report).encode())
    except BaseException:  # noqa: BLE001  the status says it; a fork must never return into the parent's loop
        os._exit(1)
    os._exit(0)


def run_tests(channel: int, job: dict[str, Any]) -> dict[str, Any]:
    """The report of one job.

    job: `source` (the program), `program_limits`, `paths`, `library`, `tests`, `entry_point`, `prelude` (trusted code
    of the prompt), `all_tests` (go on after a failure). Report: `status` (`ran`, `program`: it could not be loaded,
    `sandbox`: it never started, `tests`: the tests are at fault), `reason`, `tests` (text, passed, failed, reason
    each), `calls`.
    """
    recorder = Recorder(job["all_tests"])
    report: dict[str, Any] = {"status": "ran", "reason": "", "tests": recorder.tests, "calls": 0}
    try:
        tree = ast.parse(job["tests"])
        names = _free_names(tree, job["entry_point"])
        prelude = _prelude(job["prelude"], job["entry_point"], names)
        entry_point = job["entry_point"]
        missing = [name for name in names if name in _FOREIGN and name not in prelude and name != entry_point]
        if missing and len(missing) < len(names):
            return report | {"status": "tests", "reason": f"the tests use `{missing[0]}` and do not import it"}
        recorder.checks = _holds_a_check(tree, names)
        _call_check(tree, job["entry_point"])
        code = compile(ast.fix_missing_locations(_Instrument(recorder).visit(tree)), "tests", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return report | {"status": "tests", "reason": f"the tests do not parse: {_describe(error)}"}
    if receive(channel) != b"ready":
        return report | {"status": "sandbox", "reason": "the program's process never started"}
    program = Program(channel)
    try:
        asked = [name for name in names if name not in prelude]
        program.classes = dict.fromkeys(_classes(job["prelude"]))
        found = program.load(job, asked)
    except Exception as error:  # noqa: BLE001  whatever the program's process answered
        return report | {"status": "program", "reason": _describe(error)}
    namespace: dict[str, Any] = {"__name__": "tests", "_r1zero": recorder}
    namespace |= {name: value for name, value in prelude.items() if name in names} | found
    try:
        exec(code, namespace)  # noqa: S102  the data set's tests, in their own sandbox
    except _Stop:
        pass
    except BaseException as error:  # noqa: BLE001  any way out of the tests but their end is a failure
        recorder.uncaught = _describe(error)
        if isinstance(error, UnsendableError):
            recorder.ours = str(error)
    if program.died and not recorder.uncaught:
        recorder.uncaught = "the program's process died"  # the tests caught it, as no test could in one process
    recorder.finish(program.calls)
    if recorder.ours:
        return report | {"status": "tests", "reason": recorder.ours}
    return report | {"reason": recorder.uncaught, "calls": program.calls}


class _Stop(BaseException):
    """The first failed test of a job that needs no more than one."""


class Recorder:
    """Counts each `assert` of the tests: how often it held, how often not, and the first reason why not."""

    def __init__(self, all_tests: bool) -> None:
        self.all_tests = all_tests
        self.tests: list[dict[str, Any]] = []
        self.uncaught = ""
        self.ours = ""  # a fault of the tests or of this module, not of the program
        self.checks = False  # whether the tests hold a check at all, whatever the program does
        self.only_guards = True  # every assert is an `assert False`: reaching none of them is what the tests ask for
        self.failure: AssertionError | None = None  # the last one that a `try` or `with` of the tests may have caught

    def add(self, text: str) -> int:
        self.tests.append({"test": text[:_MAX_REASON], "passed": 0, "failed": 0, "reason": ""})
        return len(self.tests) - 1

    def value(self, index: int, value: Any) -> None:
        self._record(index, bool(value), "the value is false")

    def compared(self, index: int, value: Any, left: Any, right: Any, operator: str) -> None:
        held = bool(value)
        self._record(index, held, "" if held else f"{_show(left)} {operator} {_show(right)} does not hold")

    def guarded(self, index: int, value: Any) -> None:
        """An assert inside `try` or `with`: whether its failure counts is for that block to say."""
        if not value:
            self.failure = AssertionError(self.tests[index]["test"])
            raise self.failure
        self._record(index, True, "")

    def skipped(self, *indices: int) -> None:
        """`try: f(-1); assert False` / `except ValueError:`, in the handler: the call raised as it should have.

        Not so where the handler caught the `assert False` itself, or the death of the program.
        """
        error = sys.exc_info()[1]
        if error is not self.failure and not isinstance(error, DiedError | UnsendableError):
            for index in indices:
                self._record(index, True, "")

    def raised(self, index: int, error: Exception) -> None:
        if isinstance(error, UnsendableError):
            self.ours = str(error)
        self._record(index, False, _describe(error))

    def _record(self, index: int, held: bool, reason: str) -> None:
        test = self.tests[index]
        test["passed" if held else "failed"] += 1
        if not held:
            test["reason"] = test["reason"] or reason[:_MAX_REASON]
            if not self.all_tests:
                raise _Stop

    def finish(self, calls: int) -> None:
        """Settle tests of which no assert was reached: never a fault of the tests where they hold a check.

        A script that tests by raising, or by `if ...: assert False`, is one test; it has to have called the program.
        """
        if self.uncaught or any(test["passed"] or test["failed"] for test in self.tests):
            if not self.tests:
                self.tests.append(_script(self.uncaught))
        elif self.only_guards and self.failure is None and calls:
            self.tests.append(_script(""))
        elif self.checks:
            self.uncaught = "no assertion was reached"


def _script(failure: str) -> dict[str, Any]:
    return {"test": "the tests' script", "passed": int(not failure), "failed": int(bool(failure)), "reason": failure}


class _Instrument(ast.NodeTransformer):
    """`assert X` -> try X; tell the recorder. Inside `try` and `with`, which may mean to catch it, it still raises."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.guards = 0
        self.indices: dict[int, int] = {}  # id of an assert's node -> its number

    def visit_Try(self, node: ast.Try) -> ast.AST:
        never = [statement for statement in node.body + node.orelse if _is_assert_false(statement)]
        self._guarded(node)
        if never:
            indices = [ast.Constant(self.indices[id(statement)]) for statement in never]
            for handler in node.handlers:
                handler.body.insert(0, _call("skipped", *indices))
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        return self._guarded(node)

    def _guarded(self, node: ast.AST) -> ast.AST:
        self.guards += 1
        self.generic_visit(node)
        self.guards -= 1
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        test = node.test
        if isinstance(test, ast.Constant) and test.value:
            return ast.Pass()  # `assert True`, as HumanEval has it, tests nothing
        number = self.indices[id(node)] = self.recorder.add(ast.unparse(node))
        index = ast.Constant(number)
        self.recorder.only_guards &= _is_assert_false(node)
        if self.guards:
            return ast.copy_location(_call("guarded", index, test), node)
        value = ast.Name("_r1zero_value", ast.Load())
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            # Keep both sides for the report; evaluated once, in their order.
            sides = [test.left, test.comparators[0]]
            named = [ast.NamedExpr(ast.Name(f"_r1zero_{i}", ast.Store()), side) for i, side in enumerate(sides)]
            operator = ast.unparse(ast.Compare(ast.Name("a"), test.ops, [ast.Name("b")]))[2:-2]
            test = ast.Compare(named[0], test.ops, [named[1]])
            loads: list[ast.expr] = [ast.Name(f"_r1zero_{i}", ast.Load()) for i in (0, 1)]
            record = _call("compared", index, value, *loads, ast.Constant(operator))
        else:
            record = _call("value", index, value)
        error = ast.Name("_r1zero_error", ast.Load())
        handler = ast.ExceptHandler(ast.Name("Exception", ast.Load()), "_r1zero_error", [_call("raised", index, error)])
        assign = ast.Assign([ast.Name("_r1zero_value", ast.Store())], test)
        return ast.copy_location(ast.Try([assign], [handler], [record], []), node)


def _is_assert_false(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def _holds_a_check(tree: ast.Module, names: list[str]) -> bool:
    """True when the tests assert, raise or call something they take from elsewhere, reached or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Assert) and not (isinstance(node.test, ast.Constant) and node.test.value):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            return True
    return False


def _call(method: str, *args: ast.expr) -> ast.Expr:
    return ast.Expr(ast.Call(ast.Attribute(ast.Name("_r1zero", ast.Load()), method, ast.Load()), list(args), []))


def _bound_names(tree: ast.Module) -> set[str]:
    """Names the module binds at its top level."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def _free_names(tree: ast.Module, entry_point: str) -> list[str]:
    """Names the tests use and do not bind. Never a builtin (a program's own `all` or `sorted` would judge itself)."""
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    free = used - _bound_names(tree) - set(dir(builtins))
    return sorted(free | ({entry_point} if entry_point else set()))


def _prelude(source: str, entry_point: str, names: list[str]) -> dict[str, Any]:
    """What the tests take from us rather than from the program: the prompt's helpers, library modules and members.

    Of the tests' free `names`, the program gives the entry point and what no library of ours knows. Without an entry
    point, all of them where a library knows each: one has to be the function under test.
    """
    namespace: dict[str, Any] = {"__name__": "prelude"}
    try:
        exec(compile(source, "prompt", "exec"), namespace)  # noqa: S102  the data set's prompt, in the tests' sandbox
    except Exception:  # noqa: BLE001  a prompt that is no program has no helpers
        namespace = {}
    library: dict[str, Any] = {name: importlib.import_module(name) for name in _LIBRARY}
    for name, module in _SINGLE_MEMBERS.items():
        library[name] = getattr(importlib.import_module(module), name)
    for name in names:
        for module in _MEMBERS:
            if name not in library and not name.startswith("_") and hasattr(library[module], name):
                library[name] = getattr(library[module], name)
    if entry_point or not all(name in library for name in names if name not in namespace):
        namespace = library | namespace
    namespace.pop(entry_point, None)
    return namespace


def _classes(source: str) -> list[str]:
    """Names of the classes that the prompt's helpers define: what the tests build of them crosses as a copy."""
    if "class " not in source:
        return []
    try:
        return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _call_check(tree: ast.Module, entry_point: str) -> None:
    """HumanEval as published defines `check(candidate)` and leaves the call to the harness: add it where missing."""
    defined = any(isinstance(n, ast.FunctionDef) and n.name == "check" for n in tree.body)
    called = any(isinstance(n, ast.Name) and n.id == "check" for n in ast.walk(tree))
    if defined and not called and entry_point:
        tree.body.append(ast.parse(f"check({entry_point})").body[0])


class ProgramError(Exception):
    """The program's process sent no value, or an exception of its own class."""


class DiedError(ProgramError):
    """The program's process has gone."""


class UnsendableError(Exception):
    """An argument of the tests that cannot be given to the program: our limit, not the program's fault."""


class Program:
    """The program's process as the tester sees it: requests out, values in."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.calls = 0
        self.died = False
        self.callbacks: list[Callable[..., Any]] = []
        self.classes: dict[str, Any] = {}  # the prelude's classes, by name: the program's own of that name
        self.copies: dict[int, tuple[Any, Remote]] = {}  # id -> an object of such a class, and its copy over there

    def load(self, job: dict[str, Any], names: list[str]) -> dict[str, Any]:
        """Load the program under its limits; returns what it defines of `names`."""
        asked = sorted({*names, *self.classes})
        message = ["functions", job["program_limits"], job["paths"], job["source"], asked, job["library"]]
        self._send(marshal.dumps(message))
        reply = self._receive()
        found = {name: self._unpack(tree) for name, tree in reply["names"] if name in asked}
        self.classes = {name: found.get(name) for name in self.classes}
        return {name: value for name, value in found.items() if name in names}

    def request(self, operation: str, number: int, name: str = "", args: tuple[Any, ...] = (), **kwargs: Any) -> Any:
        """One operation on an object of the program's; raises what the program raised, as a type of ours."""
        self.calls += operation == "call"
        arg_trees = [self._pack(arg) for arg in args]
        kwarg_trees = [[key, self._pack(value)] for key, value in kwargs.items()]
        given = containers([*args, *kwargs.values()])
        self._send(marshal.dumps([operation, number, name, arg_trees, kwarg_trees]))
        while True:
            reply = self._receive()
            if "callback" in reply:
                self._answer(reply)
                continue
            if "stop" in reply:
                raise StopIteration
            for place, tree in reply.get("changed", ()):
                _overwrite(
                    given[place], unpack(tree, lambda tag, at: given[at] if tag == "r" else self._handle(tag, at))
                )
            return self._unpack(reply["value"])

    def _answer(self, reply: dict[str, Any]) -> None:
        try:
            function = self.callbacks[reply["callback"]]
            message = ["return", self._pack(function(*[self._unpack(tree) for tree in reply["args"]]))]
        except Exception as error:  # noqa: BLE001  the program called it: the exception is the program's to handle
            message = ["raise", _describe(error)]
        self._send(marshal.dumps(message))

    def _send(self, message: bytes) -> None:
        try:
            send(self.channel, message)
        except OSError as error:
            self.died = True
            raise DiedError("the program's process died") from error

    def _receive(self) -> dict[str, Any]:
        message = receive(self.channel, MAX_MESSAGE_BYTES)
        if message is None:
            self.died = True
            raise DiedError("the program's process died")
        reply = json.loads(message)
        if not isinstance(reply, dict):
            raise ProgramError("the program's process sent no value")
        if "raised" in reply:
            raise _exception(str(reply["raised"]), str(reply.get("text", "")), reply.get("line"))
        return reply

    def _pack(self, value: Any) -> Tree:
        return pack(value, self._export)

    def _export(self, value: Any) -> Tree:
        if isinstance(value, Remote):
            return {"y": object.__getattribute__(value, "_number")}
        if type(value).__module__ == "prelude" and isinstance(self.classes.get(type(value).__name__), Remote):
            return {"y": object.__getattribute__(self._copy(value), "_number")}
        if callable(value) and not isinstance(value, type):
            self.callbacks.append(value)
            return {"h": len(self.callbacks) - 1}
        raise UnsendableError(f"an argument of type {type(value).__name__} cannot be given to the program")

    def _copy(self, value: Any) -> Remote:
        """The copy of a list's or a tree's node (LeetCode) in the program's process, and of all it leads to."""
        fresh: list[tuple[Any, Remote]] = []
        todo = [value]
        while todo:
            node = todo.pop()
            if id(node) in self.copies:
                continue
            copy = self.classes[type(node).__name__]._ask("new")
            if not isinstance(copy, Remote):
                raise ProgramError("the program's process sent no object")
            self.copies[id(node)] = (node, copy)
            fresh.append((node, copy))
            todo += [part for part in vars(node).values() if type(part).__name__ in self.classes]
        for node, copy in fresh:  # all are there by now: no part makes another, however long the list
            for name, part in vars(node).items():
                copy._ask("set", name, (part,))
        return self.copies[id(value)][1]

    def _unpack(self, tree: Tree) -> Any:
        return unpack(tree, self._handle)

    def _handle(self, tag: str, number: int) -> Any:
        if tag == "y":
            return self.callbacks[number]
        return Remote(self, number)


class Remote:
    """An object of the program's that is not data. Equal only to itself: its own `__eq__` is never asked."""

    def __init__(self, program: Program, number: int) -> None:
        object.__setattr__(self, "_program", program)
        object.__setattr__(self, "_number", number)

    def _ask(self, operation: str, name: str = "", args: tuple[Any, ...] = (), **kwargs: Any) -> Any:
        program: Program = object.__getattribute__(self, "_program")
        return program.request(operation, object.__getattribute__(self, "_number"), name, args, **kwargs)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        program: Program = object.__getattribute__(self, "_program")
        return program.request("call", object.__getattribute__(self, "_number"), "", args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("set", name, (value,))

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", args=(key,))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("setitem", args=(key, value))

    def __len__(self) -> int:
        length = self._ask("len")
        if type(length) is not int:
            raise ProgramError("the program's process sent no length")
        return length

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return self._ask("iter")

    def __next__(self) -> Any:
        return self._ask("next")

    def __str__(self) -> str:
        text = self._ask("str")
        return text if type(text) is str else ""

    def __repr__(self) -> str:
        return "<an object of the program's>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and object.__getattribute__(self, "_number") == object.__getattribute__(
            other, "_number"
        )

    def __hash__(self) -> int:
        return hash(object.__getattribute__(self, "_number"))


def _overwrite(target: Any, value: Any) -> None:
    """The program changed an argument, or a container in one, in place: so is the tests' own object."""
    if not any(isinstance(target, kind) and isinstance(value, kind) for kind in (list, bytearray, dict, set)):
        raise ProgramError("the program's process sent no value")
    if isinstance(target, list | bytearray):
        target[:] = value
    else:
        target.clear()
        target.update(value)


def _exception(name: str, text: str, line: object) -> Exception:
    """An exception of ours for one of the program's: the builtin type of that name, else ProgramError."""
    if isinstance(line, int) and line > 0:
        text = f"{text} (program line {line})"
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, StopIteration):
        try:
            return kind(text)
        except TypeError:  # UnicodeDecodeError and its kin want five arguments
            pass
    return ProgramError(f"{name[:80]}: {text}")


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  an int of over 4,300 digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 100 else text[:97] + "..."


def _describe(error: BaseException) -> str:
    name = "" if isinstance(error, ProgramError) else f"{type(error).__name__}: "
    try:
        return (name + str(error))[:_MAX_REASON]
    except Exception:  # noqa: BLE001
        return name[:_MAX_REASON]


if sys.flags.optimize:
    raise RuntimeError("the tester must not run with -O: asserts left in the tests would be skipped")
