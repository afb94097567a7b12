"""`code`: run the program in a completion against a problem's tests, in a sandbox (see `r1zero.verifiers.sandbox`).

The problem's `data` says how, in the shapes of the published sets (see `code_rows.SHAPES`). Where `prompt` holds the
head of the function to write (HumanEval), the program is the prompt, then the completion, so that the prompt's imports
and helpers are there whether the model wrote the body only or the whole function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.code_calls import call_script
from r1zero.verifiers.code_rows import CodeTests, RowError, read_tests
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.sandbox import Job, Report, Status, get_sandbox
from r1zero.verifiers.sandbox.packages import package_paths
from r1zero.verifiers.text.program import (
    MAX_PROGRAM_CHARS,
    extract_cpp,
    extract_program,
    library_names,
    prompt_code,
)

MAX_REPORTED_TESTS = 100
_LANGUAGES = ("python", "cpp")

_EXAMPLE = Sample(
    completion="<think>It adds.</think>\n```python\ndef add(a, b):\n    return a + b\n```",
    problem=Problem(
        id="add",
        prompt="Write add(a, b), the sum.",
        data={"tests": "assert add(1, 2) == 3\nassert add(-1, 1) == 0", "entry_point": "add"},
    ),
)


@register("code", example=_EXAMPLE)
def code(
    completion: str,
    problem: Problem,
    finish_reason: FinishReason,
    *,
    timeout_seconds: float = 4.0,
    memory_mb: int = 512,
    partial_credit: bool = False,
    strict: bool = False,
    tolerance: float = 0.0,
    language: str = "python",
    packages: Sequence[str] = (),
    sandbox: str = "bubblewrap",
) -> Verdict:
    """Correct when the program holds every test: each `assert` true, each call's value and each output as expected.

    Options: `timeout_seconds` for all tests together (keep it below the pool's deadline); `memory_mb`, the program's
    address space; `partial_credit`, a wrong program scores the share of tests it passes (else the first failure ends
    the run); `strict`, outputs are compared by whole lines, not by the tokens of lines; `tolerance`, how far a printed
    or returned float may be off, relative above 1 (the row's own goes first); `language`: `python` or `cpp` (g++,
    compiled in the sandbox; the row's own goes first); `packages`, installed ones that programs may import;
    `sandbox`: `bubblewrap`, `none` (no protection, in as many words), or `package.module:factory`.

    The program: text in `<think>` never counts, nor does anything outside the last `<answer>` when there is one. Of
    fenced blocks, the last that defines the entry point, else the last marked with the language, else the last unmarked
    one (one block: helpers in an earlier one are not added); an unfenced text is taken whole where it parses, else from
    its first line of code on. One with a `class Solution` finds the names of `typing`, `collections`, `math`, `heapq`
    and the like without importing them. A crash, an early exit, a wrong value or code that does not compile is `wrong`;
    the deadline is `timeout`; a missing sandbox, a row of no known shape or tests at fault are `error`. A row's
    `checker` judges an output in place of the comparison: see `r1zero.verifiers.sandbox.script`.
    What it does not stop: see `r1zero.verifiers.sandbox`.
    """
    try:
        tests = read_tests(problem.data, problem.answer)
    except RowError as error:
        return Verdict(Outcome.ERROR, reason=str(error))
    language = _LANGUAGE_NAMES.get(tests.language.lower(), language)
    if language not in _LANGUAGES:
        raise UserError(f"language {language!r} of verifier 'code': choose of {', '.join(_LANGUAGES)}")
    truncated = finish_reason == "length"
    head = ""
    if language == "cpp":
        if tests.script or tests.calls:
            return Verdict(Outcome.ERROR, reason="language cpp takes tests by input and output only")
        program = extract_cpp(completion, truncated=truncated)
    else:
        head = _head(tests, problem)
        program = extract_program(completion, tests.entry_point, head, truncated=truncated)
    if program is None:
        return Verdict(Outcome.UNPARSEABLE, reason="no program in the completion")
    if len(program) > MAX_PROGRAM_CHARS:
        return Verdict(Outcome.UNPARSEABLE, reason=f"a program of over {MAX_PROGRAM_CHARS} characters")
    tolerance = tolerance if tests.tolerance is None else tests.tolerance
    source = tests.script
    if tests.calls:
        source = f"{source}\n{call_script(tests.calls, tolerance)}"
    job = Job(
        source=program,
        language=language,
        tests=source,
        entry_point=tests.entry_point if source else "",
        prelude=head,
        input_tests=tests.input_tests,
        checker=tests.checker,
        strict=strict,
        tolerance=tolerance,
        library=tuple(library_names(program)) if "class Solution" in program and language == "python" else (),
        packages=package_paths(tuple(packages)),
        all_tests=partial_credit,
        timeout_seconds=timeout_seconds,
        memory_bytes=memory_mb << 20,
    )
    return _verdict(get_sandbox(sandbox).run(job), program, partial_credit)


_LANGUAGE_NAMES = {"cpp": "cpp", "c++": "cpp", "python": "python", "python3": "python"}


def _head(tests: CodeTests, problem: Problem) -> str:
    """Trusted source before the program: the prompt's, or the row's."""
    if tests.prelude:
        return tests.prelude if tests.prelude.endswith("\n") else tests.prelude + "\n"
    return prompt_code(problem.prompt, tests.entry_point) if tests.script else ""


def _verdict(report: Report, program: str, partial_credit: bool) -> Verdict:
    total = len(report.tests)
    details: dict[str, Any] = {
        "passed": report.num_passed,
        "total": total,
        "tests": [test.as_dict() for test in report.tests[:MAX_REPORTED_TESTS]],
    }
    if report.status in (Status.NO_SANDBOX, Status.BAD_TESTS):
        return Verdict(Outcome.ERROR, reason=report.reason, extracted=program, details=details)
    if report.all_passed:
        return Verdict(Outcome.CORRECT, reason=f"{report.num_passed} tests passed", extracted=program, details=details)
    score = report.num_passed / total if partial_credit and total else 0.0
    if report.status is Status.TIMEOUT:
        return Verdict(Outcome.TIMEOUT, score=score, reason=report.reason, extracted=program, details=details)
    if report.status is Status.NOT_LOADED:
        reason = f"the program cannot be loaded: {report.reason}"
        return Verdict(Outcome.WRONG, reason=reason, extracted=program, details=details)
    failed = next((test for test in report.tests if test.status == "failed"), None)
    if failed is None and not report.reason:
        return Verdict(Outcome.ERROR, reason="the tests ran and checked nothing", extracted=program, details=details)
    reason = f"{failed.test}: {failed.reason}" if failed else report.reason
    return Verdict(Outcome.WRONG, score=score, reason=reason, extracted=program, details=details)
