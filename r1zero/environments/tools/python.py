"""`python`: cells of one interpreter in the sandbox, which lives as long as the episode.

The interpreter is the sandbox's process of an untrusted program (`r1zero.verifiers.sandbox`), the program being the few
lines below that run a cell and return what it printed. Everything in it belongs to the policy, those lines too: it may
forge its own output, as it may print what it likes. No answer, test or verdict is ever in there, and what comes back is
text of bounded length. What the sandbox does not stop, this does not.
"""

from __future__ import annotations

import json
import marshal
import socket
import time

from r1zero.environments.base import shortened
from r1zero.verifiers.sandbox.inside import codec
from r1zero.verifiers.sandbox.launch import Bubblewrap, Launcher, Limits, Process, start

MAX_CODE_CHARS = 100_000
_MAX_MESSAGE_BYTES = 4 << 20
_START_SECONDS = 20.0  # a cold disk; not from a cell's time
_MAX_PRINTED = 1_000_000  # characters kept inside; a flood does not fill the memory limit
_CPU_SECONDS = 600  # of the interpreter's whole life; a cell's deadline is the wall clock's
_CELLS = f"""
import ast, sys, traceback

class _Printed:
    def __init__(self):
        self.parts, self.room = [], {_MAX_PRINTED}
    def write(self, text):
        text = str(text)
        self.parts.append(text[:max(self.room, 0)])
        self.room -= len(text)
        return len(text)
    def flush(self): pass
    def isatty(self): return False

_names = {{"__name__": "__main__"}}

def run_cell(source):
    printed = sys.stdout = sys.stderr = _Printed()
    try:
        tree = ast.parse(source, "cell.py")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell.py", "exec"), _names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell.py", "eval"), _names)
            if value is not None:
                printed.write(repr(value) + "\\n")
    except SystemExit as error:
        printed.write(f"SystemExit: {{error}}\\n")
    except BaseException as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "cell.py"]
        lines = [f"line {{f.lineno}}, in {{f.name}}\\n" for f in frames[-5:]]
        printed.write("".join(lines) + "".join(traceback.format_exception_only(type(error), error)))
    return "".join(printed.parts) + ("\\n[output cut]" if printed.room < 0 else "")
"""


class PythonTool:
    """One interpreter; `python` is the tool."""

    def __init__(
        self,
        *,
        seconds: float = 5.0,
        memory_bytes: int = 512 << 20,
        max_output_chars: int = 4000,
        launcher: Launcher | None = None,
    ) -> None:
        """seconds: wall clock of one cell, after which the interpreter is killed with everything in its namespace."""
        self.seconds = seconds
        self.limits = Limits(memory_bytes=memory_bytes, cpu_seconds=_CPU_SECONDS)
        self.max_output_chars = max_output_chars
        self.launcher = launcher or Bubblewrap()
        self._process: Process | None = None

    def python(self, code: str) -> str:
        """Runs Python code and returns what it prints. Variables stay for the next call.

        Args:
            code: The code; the value of a last line that is an expression is printed too.
        """
        if len(code) > MAX_CODE_CHARS:
            return f"error: code of over {MAX_CODE_CHARS} characters was not run"
        if self._process is None:
            self._process = self._started()
        request = marshal.dumps(["call", 0, "", [code.encode(errors="replace").decode()], []])
        try:
            reply = _ask(self._process.channel, request, time.monotonic() + self.seconds)
        except TimeoutError:
            self.close()
            return f"error: over {self.seconds:g} s: killed. The interpreter starts anew: its variables are gone"
        except (OSError, EOFError, ValueError):
            self.close()
            return "error: the interpreter died (out of memory or crashed). It starts anew: its variables are gone"
        return shortened(reply, self.max_output_chars) if reply else "(no output)"

    def close(self) -> None:
        """Kill the interpreter with everything in its namespace."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def _started(self) -> Process:
        """An interpreter that is ready for cells. Raises OSError where there is no sandbox."""
        problem = None
        process: Process | None = None
        try:
            process = start(self.launcher, "program", self.limits)
            deadline = time.monotonic() + _START_SECONDS
            if _receive(process.channel, deadline) == b"ready":
                job = marshal.dumps(["functions", self.limits.rlimits(), [], _CELLS, ["run_cell"], []])
                codec.send(process.channel.fileno(), job)
                if b'"names"' in _receive(process.channel, deadline):
                    return process
        except (OSError, EOFError, ValueError) as error:
            problem = error
        if process is not None:
            process.kill()
        raise OSError(f"no sandbox for the python tool: {self.launcher.status() or problem or 'it never started'}")


def _ask(channel: socket.socket, request: bytes, deadline: float) -> str:
    """What a cell printed. Raises TimeoutError past `deadline`, OSError, EOFError or ValueError where no text comes."""
    channel.settimeout(max(0.001, deadline - time.monotonic()))
    channel.sendall(len(request).to_bytes(4, "little") + request)
    try:
        reply = json.loads(_receive(channel, deadline))
    except RecursionError as error:
        raise ValueError("a reply nested too deep") from error
    value = reply.get("value") if isinstance(reply, dict) else None
    if not isinstance(value, str):
        raise ValueError("a reply that is no text")
    return value.encode(errors="replace").decode()


def _receive(channel: socket.socket, deadline: float) -> bytes:
    """One whole message by `deadline`, however slowly a hostile process writes it."""
    size = int.from_bytes(_exactly(channel, 4, deadline), "little")
    if size > _MAX_MESSAGE_BYTES:
        raise ValueError(f"a reply of {size} bytes")
    return _exactly(channel, size, deadline)


def _exactly(channel: socket.socket, size: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        channel.settimeout(left)
        part = channel.recv(min(size - len(parts), 1 << 16))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
