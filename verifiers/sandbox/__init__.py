"""Running untrusted programs: a job in, a report out.

    Job(source, tests) -> [tester process] <-- values --> [program process] -> Report

The program runs in one sandbox, the tests in another; they share one socket, over which the tests call the program's
functions and get values back (`inside.tester`). The verdict leaves by a socket that only the tests' sandbox holds.
stdin/stdout tests need no tester: expected outputs never enter the sandbox, and the comparison is ours.

What this does not stop:
- A program that returns the right values without computing them as meant (a table of the test inputs it has learnt).
  Weak tests stay weak: after one assert that holds, `for x in f(): assert ...` holds for an empty list here as
  anywhere (where no assert is reached at all, the program is wrong).
- What a bug in the kernel's namespaces, or in Python's JSON parser (which reads the program's answers inside the
  tester's sandbox), would give away. A user namespace is not a virtual machine.
- Time: a program may use its core for as long as the deadline lets it, and may load the machine's caches and memory
  bus meanwhile. It can read the clock and count cores.
- On a machine other than x86-64 and AArch64 there is no system-call filter: then a program can start processes, up to
  the rlimit (which Linux does not apply to root), all of which die with the namespace at the deadline.
- A helper that judges, where the tests call it without defining it and neither the prompt nor a library knows its name
  (`assert near(f(3), 9)`): it comes from the program, as it would in one process. What the tests define or import, and
  members of common library modules (`isclose`, `Counter`, `deepcopy`), never do.
What it does not support: tests that patch the program's globals, read its source, or compare objects of the program's
own classes by the program's own `__eq__`; programs that start processes; a node (LeetCode) that the program changes in
place and the tests look at afterwards: it was given a copy.
Packages, where a setting names them, and the C++ compiler, which alone may start processes, are mounted read-only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from r1zero.errors import UserError, unknown_name
from r1zero.verifiers.sandbox.base import InputTest, Job, Report, Sandbox, Status, TestResult
from r1zero.verifiers.sandbox.launch import Bubblewrap, Unprotected
from r1zero.verifiers.sandbox.local import LocalSandbox

__all__ = ["InputTest", "Job", "Report", "Sandbox", "Status", "TestResult", "get_sandbox", "sandbox_status"]

_BUILT_IN: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": lambda: LocalSandbox(Bubblewrap()),
    "none": lambda: LocalSandbox(Unprotected()),
}
_made: dict[str, Sandbox] = {}


def get_sandbox(name: str) -> Sandbox:
    """The sandbox called `bubblewrap` or `none`, or made by `package.module:factory`. Raises UserError."""
    if name not in _made:
        _made[name] = _factory(name)()
    return _made[name]


def _factory(name: str) -> Callable[[], Sandbox]:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if ":" not in name:
        raise unknown_name("sandbox", name, [*_BUILT_IN, "package.module:factory"])
    module_name, _, attribute = name.partition(":")
    try:
        factory: Callable[[], Sandbox] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"sandbox {name!r} cannot be imported: {error}") from error
    return factory


def sandbox_status(name: str = "bubblewrap") -> str | None:
    """None when the sandbox works on this machine, else one line: what is missing, and what mends it."""
    return get_sandbox(name).status()
