"""What a sandbox is asked and what it answers: the interface of every backend, local or remote."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class InputTest:
    """One run of a whole program: its standard input, and what it must print."""

    input: str
    output: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """One untrusted program and what to try on it."""

    source: str
    """The program, as source text."""
    language: str = "python"
    """`python`, or `cpp`: compiled in the sandbox first; it takes `input_tests` only."""
    tests: str = ""
    """Python source whose every `assert` must hold; it takes `entry_point` from the program."""
    entry_point: str = ""
    """The function the tests call; may be empty when the tests name it themselves."""
    prelude: str = ""
    """Trusted source (the prompt's helpers) that the tests use rather than the program's names."""
    input_tests: tuple[InputTest, ...] = ()
    """Runs of the program as a script."""
    checker: str = ""
    """Trusted Python source that judges an output in place of a comparison; see `r1zero.verifiers.sandbox.script`."""
    strict: bool = False
    """Outputs are the same only line by line, blanks at a line's end and empty lines at the text's end aside."""
    tolerance: float = 0.0
    """How far a printed number may be from an expected one, relative above 1. 0: as text."""
    library: tuple[tuple[str, str, str], ...] = ()
    """Names the program finds without importing them: (name, module, attribute, or "" for the module)."""
    packages: tuple[str, ...] = ()
    """Paths of installed packages that the program may import; see `packages.package_paths`."""
    all_tests: bool = False
    """True: go on after a failed test, for partial credit."""
    timeout_seconds: float = 4.0
    """Wall clock for everything together."""
    memory_bytes: int = 512 << 20
    """Address space of the program."""


class Status(StrEnum):
    """How a job ended. `NO_SANDBOX` and `BAD_TESTS` are ours; the rest is the program's doing."""

    RAN = "ran"
    NOT_LOADED = "not_loaded"
    """The program raised, exited or crashed before it could be tested."""
    TIMEOUT = "timeout"
    BAD_TESTS = "bad_tests"
    NO_SANDBOX = "no_sandbox"


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """One test: an `assert`, or one input and output."""

    __test__ = False  # not pytest's

    test: str
    """Its source, or the input, shortened."""
    status: str
    """`passed`, `failed` or `not run`."""
    reason: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"test": self.test, "status": self.status} | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a job."""

    status: Status
    tests: tuple[TestResult, ...] = ()
    reason: str = ""
    """Of an end other than `RAN`, or of an exception outside the asserts."""

    @property
    def num_passed(self) -> int:
        return sum(test.status == "passed" for test in self.tests)

    @property
    def all_passed(self) -> bool:
        """True when every test ran to its end and held, and nothing else went wrong."""
        return (
            self.status is Status.RAN
            and not self.reason
            and bool(self.num_passed)
            and not any(test.status == "failed" for test in self.tests)
        )


class Sandbox(Protocol):
    """A place to run untrusted programs. A container or a remote service implements these two."""

    def status(self) -> str | None:
        """None when it can be used, else one line that says what is missing and what mends it."""

    def run(self, job: Job) -> Report:
        """Run `job` within its limits; blocks for at most `timeout_seconds` and half a second. Never raises for
        anything the program does."""
