"""The process of the untrusted program: nothing in it is trusted once the program's first line has run.

It never sees the tests. It loads the program, then answers the tester's calls with values; what it could forge is the
value of a call, which is what the tests judge. It sets its own limits before the program starts and cannot raise
them: they are hard, and it holds no capability.
"""

from __future__ import annotations

import marshal
import os
import resource
import sys

from r1zero.verifiers.sandbox.inside.codec import (
    CodecError,
    containers,
    contents,
    dumps,
    pack,
    receive,
    send,
    unpack,
)

TYPE_CHECKING = False  # see `codec`
if TYPE_CHECKING:
    from typing import Any

    from r1zero.verifiers.sandbox.inside.codec import Tree

ModuleType = type(sys)


def main(channel: int) -> None:
    """Greet, and run the one job that comes: `[kind, limits, paths, source, ...]`.

    paths: folders to import packages from. Kinds: `functions` (and names, and library names), `script` (and files to
    put beside it), `compile` (a shell's script as source), `binary` (a program's bytes as source).
    """
    send(channel, b"ready")
    message = receive(channel)
    if message is None:
        return
    kind, limits, paths, source, *rest = marshal.loads(message)
    if kind == "functions":
        null = os.open("/dev/null", os.O_RDWR | os.O_CREAT)  # may be a file: see `launch`
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.close(null)
    set_limits(limits)
    prepare(paths)
    if kind == "functions":
        Server(channel).serve(source, *rest)
        return
    os.close(channel)
    if kind == "script":
        run_script(source, *rest)
    elif kind == "compile":
        os.execve("/usr/bin/sh", ["sh", "-c", source], {"PATH": "/usr/bin"})
    else:
        run_binary(source)


def prepare(paths: list[str]) -> None:
    """What any program finds: `exit` and `quit` (the `site` module's, which is not loaded), integers of any number of
    digits, and its packages. A package's own threads would count against the limits on processes and memory."""
    import builtins

    builtins.exit = builtins.quit = leave  # type: ignore[assignment]
    sys.set_int_max_str_digits(0)
    if paths:
        sys.path[:0] = paths
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = "1"


def leave(code: object = None) -> None:
    raise SystemExit(code)


def set_limits(limits: dict[str, int]) -> None:
    """Lower the rlimits named in `limits` (`AS`, `CPU`, …), hard and soft."""
    for name, value in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(number, (value, value))


def run_script(source: str, library: list[list[str]], files: dict[str, str]) -> None:
    """Run a whole program as `__main__`: its input and output are the process's own. `files` are put into a fresh
    working folder, and are the program's arguments."""
    sys.argv = ["program.py", *files]
    if files:
        import tempfile

        os.chdir(tempfile.mkdtemp())
        for name, text in files.items():
            with open(name, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123  pathlib is slow to import
                file.write(text)
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    give(module, library)
    exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  what the sandbox is for


def give(module: Any, library: list[list[str]]) -> None:
    """Bind library names in a program's module: `[name, module, attribute]`, the module itself for no attribute."""
    for name, owner, attribute in library:
        found = __import__(owner)
        module.__dict__[name] = getattr(found, attribute) if attribute else found


def run_binary(program: bytes) -> None:
    """Become `program`. In memory where that is allowed; the sandbox's filter is against it, and has a /tmp instead."""
    try:
        fd = os.memfd_create("program")
        path: str | int = fd
    except OSError:
        path = "/tmp/program"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    view = memoryview(program)
    while view:
        view = view[os.write(fd, view) :]
    if path != fd:
        os.close(fd)
    os.execve(path, ["program"], {})


class Server:
    """Loads the program and answers the tester, one request at a time."""

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}  # id of an object -> its handle

    def serve(self, source: str, names: list[str], library: list[list[str]]) -> None:
        # Not `__main__`: a program's own trial run under `if __name__ == "__main__"` is no part of the answer.
        module = ModuleType("program")
        sys.modules["program"] = module  # dataclasses and typing look it up
        try:
            give(module, library)
            exec(compile(source, "program.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102
            found = {name: self.pack(module.__dict__[name]) for name in names if name in module.__dict__}
            self.reply({"names": [[name, tree] for name, tree in found.items()]})
        except BaseException as error:  # noqa: BLE001  sys.exit and KeyboardInterrupt too: whatever ended the program
            self.reply(describe(error))
            return
        self.answer_until(())

    def answer_until(self, awaited: tuple[str, ...]) -> Any:
        """Answer requests until a message of a kind in `awaited` comes; the process ends with the channel."""
        while True:
            message = receive(self.channel)
            if message is None:
                os._exit(0)
            request = marshal.loads(message)
            if request[0] in awaited:
                return request
            try:
                reply = self.answer(*request)
            except BaseException as error:  # noqa: BLE001  as above
                reply = describe(error)
            self.reply(reply)

    def answer(self, operation: str, number: int, name: str, arg_trees: list[Tree], kwarg_trees: list[Tree]) -> Tree:
        target = self.objects[number]
        args = [self.unpack(tree) for tree in arg_trees]
        if operation == "call":
            kwargs = {key: self.unpack(tree) for key, tree in kwarg_trees}
            given = containers([*args, *kwargs.values()])
            numbers = {id(container): at for at, container in enumerate(given)}
            before = [contents(container, numbers, self.export) for container in given]
            value = target(*args, **kwargs)
            changed = []
            for at, container in enumerate(given):
                after = contents(container, numbers, self.export)
                if after != before[at]:
                    changed.append([at, after])
            return {"value": self.pack(value), "changed": changed}
        if operation == "get":
            return {"value": self.pack(getattr(target, name))}
        if operation == "set":
            setattr(target, name, args[0])
            return {"value": None}
        if operation == "item":
            return {"value": self.pack(target[args[0]])}
        if operation == "setitem":
            target[args[0]] = args[1]
            return {"value": None}
        if operation == "len":
            return {"value": len(target)}
        if operation == "new":
            return {"value": self.export(object.__new__(target))}
        if operation == "str":
            return {"value": str(target)}
        if operation == "iter":
            return {"value": self.export(iter(target))}
        if operation == "next":
            try:
                return {"value": self.pack(next(target))}
            except StopIteration:
                return {"stop": None}
        raise CodecError(f"no operation {operation!r}")

    def reply(self, tree: Tree) -> None:
        send(self.channel, dumps(tree).encode())

    def pack(self, value: Any) -> Tree:
        return pack(value, self.export)

    def export(self, value: Any) -> Tree:
        if type(value) is Callback:
            return {"y": value.number}
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return {"h": number}

    def unpack(self, tree: Tree) -> Any:
        return unpack(tree, lambda tag, number: self.objects[number] if tag == "y" else Callback(self, number))


class Callback:
    """A function of the tests given to the program as an argument: a call goes back to the tester."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number

    def __call__(self, *args: Any) -> Any:
        server = self.server
        server.reply({"callback": self.number, "args": [server.pack(arg) for arg in args]})
        kind, body = server.answer_until(("return", "raise"))
        if kind == "raise":
            raise RuntimeError(body)
        return server.unpack(body)


def describe(error: BaseException) -> Tree:
    """The reply for an exception: its type's name, its text, and the program's line it left from."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "program.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        text = str(error)[:500]
    except Exception:  # noqa: BLE001  a hostile __str__
        text = ""
    return {"raised": type(error).__name__, "text": text, "line": line}
