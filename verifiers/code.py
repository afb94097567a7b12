"""`code`: run the program in a completion against a problem's tests, in a sandbox (see `r1zero.verifiers.sandbox`).

The problem's `data` says how: `tests` (Python source, or a list of asserts) with `entry_point`, as in HumanEval and
MBPP; `stdin_tests` (a list of `{"input", "output"}`), as in competitions; or both. Where `prompt` holds the head of the
function to write (HumanEval), the program is the prompt, then the completion, so that the prompt's imports and helpers
are there whether the model wrote the body only or the whole function.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.sandbox import InputTest, Job, Report, Status, get_sandbox

MAX_PROGRAM_CHARS = 100_000
MAX_REPORTED_TESTS = 100

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
    sandbox: str = "bubblewrap",
) -> Verdict:
    """Correct when the program holds every test: each `assert` true, or each printed output as expected.

    Options: `timeout_seconds` for all tests together (keep it below the pool's deadline); `memory_mb`, the program's
    address space; `partial_credit`, a wrong program scores the share of tests it passes; `sandbox`: `bubblewrap`,
    `none` (no protection, in as many words), or `package.module:factory`.

    The program: text in `<think>` never counts, nor does anything outside the last `<answer>` when there is one. Of
    fenced blocks, the last that defines the entry point, else the last marked as Python, else the last unmarked one
    (one block: helpers in an earlier one are not added); an unfenced text is taken whole where it parses, else from
    its first line of code on. A crash, an early exit or a wrong value is `wrong`; the
    deadline is `timeout`; a missing sandbox or tests at fault are `error`. Two outputs are the same when their lines
    are, but for blanks at the end of lines and empty lines at the end of the text.
    What it does not stop: see `r1zero.verifiers.sandbox`.
    """
    tests, input_tests = _tests(problem.data)
    if not tests and not input_tests:
        return Verdict(Outcome.ERROR, reason="the problem has neither `tests` nor `stdin_tests`")
    entry_point = str(problem.data.get("entry_point") or "")
    head = prompt_code(problem.prompt, entry_point) if tests else ""
    program = extract_program(completion, entry_point, head, truncated=finish_reason == "length")
    if program is None:
        return Verdict(Outcome.UNPARSEABLE, reason="no program in the completion")
    if len(program) > MAX_PROGRAM_CHARS:
        return Verdict(Outcome.UNPARSEABLE, reason=f"a program of over {MAX_PROGRAM_CHARS} characters")
    job = Job(
        source=program,
        tests=tests,
        entry_point=entry_point,
        prelude=head,
        input_tests=input_tests,
        all_tests=partial_credit,
        timeout_seconds=timeout_seconds,
        memory_bytes=memory_mb << 20,
    )
    return _verdict(get_sandbox(sandbox).run(job), program, partial_credit)


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


def _tests(data: Mapping[str, Any]) -> tuple[str, tuple[InputTest, ...]]:
    tests: str | Sequence[str] = data.get("tests") or ""
    pairs: Sequence[Mapping[str, str]] = data.get("stdin_tests") or ()
    source = tests if isinstance(tests, str) else "\n".join(tests)
    return source, tuple(InputTest(input=pair["input"], output=pair["output"]) for pair in pairs)


# From a completion to a program

_TAG = re.compile(r"<(/?)(think|answer)>")
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}+|~{3,}+)[ \t]*(?P<language>[\w+#.-]*)[^\n]*\n"
    r"(?P<body>.*?)(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|(?P<unclosed>\Z))",
    re.DOTALL | re.MULTILINE,
)
_PYTHON = {"python", "py", "python3", "py3"}
_FUTURE = re.compile(r"^from __future__ import [^\n]*\n", re.MULTILINE)
_CODE_LINE = re.compile(r"^(?:def |async def |class |import |from \w[\w.]* import |@\w)", re.MULTILINE)


def prompt_code(prompt: str, entry_point: str) -> str:
    """The head of the function to write, where the prompt is one (HumanEval); else empty."""
    if not entry_point:
        return ""
    for text in [match["body"] for match in _FENCE.finditer(prompt)] + [prompt]:
        if _defines(text, entry_point):
            for head in (text, text.rstrip() + "\n    pass\n"):
                if _parses(head):
                    return head if head.endswith("\n") else head + "\n"
    return ""


def extract_program(completion: str, entry_point: str, head: str, *, truncated: bool = False) -> str | None:
    """The program in `completion`, put after `head`; None where there is none.

    truncated: the completion was cut off; a last block left open is then no program, and lets no earlier one win.
    """
    text = visible(completion)
    blocks = [match for match in _FENCE.finditer(text) if match["language"].lower() in _PYTHON | {""}]
    if not blocks:
        return _from_bare_text(text, entry_point, head)
    if truncated and blocks[-1]["unclosed"] is not None:
        return None
    bodies = [textwrap.dedent(block["body"]) if block["indent"] else block["body"] for block in blocks]
    defining = [body for body in bodies if entry_point and _defines(body, entry_point)]
    # A block without a language may be a sample of input or output: one marked as Python goes before it.
    marked = [body for body, block in zip(bodies, blocks, strict=True) if block["language"]]
    chosen = (defining or marked or bodies)[-1]
    return _complete(chosen, entry_point, head) if chosen.strip() else None


def visible(completion: str) -> str:
    """What of a completion counts: nothing up to the end of the thinking, and the last answer tag's content alone."""
    if "<" not in completion:
        return completion
    kept: list[str] = []
    at, thinking = 0, False
    for found in _markup(completion, "think"):
        if found[1]:
            if not thinking:  # the opening tag was in the prompt: all before was thought
                kept.clear()
            thinking, at = False, found.end()
        elif not thinking:
            kept.append(completion[at : found.start()])
            thinking = True
    text = "".join(kept) if thinking else "".join([*kept, completion[at:]])
    answer: str | None = None
    opened = -1
    for found in _markup(text, "answer"):
        if not found[1] and opened < 0:
            opened = found.end()
        elif found[1] and opened >= 0:
            answer, opened = text[opened : found.start()], -1
    if opened >= 0:
        answer = text[opened:]
    return text if answer is None else answer


def _markup(text: str, name: str) -> list[re.Match[str]]:
    """The tags of that name that are markup: not those in a string or a comment of a program, `'a </think> b'`."""
    found = [tag for tag in _TAG.finditer(text) if tag[2] == name]
    if not found:
        return []
    programs = [match.span("body") for match in _FENCE.finditer(text) if _holds_tag_as_text(match)]
    return [
        tag
        for tag in found
        if not any(start <= tag.start() < end for start, end in programs) and not _is_quoted(text, tag)
    ]


def _holds_tag_as_text(block: re.Match[str]) -> bool:
    """True for a fenced block with a tag in it that parses all the same: the tag is in a string or a comment of it."""
    body = block["body"]
    return len(body) <= MAX_PROGRAM_CHARS and _TAG.search(body) is not None and _parses(textwrap.dedent(body))


def _is_quoted(text: str, tag: re.Match[str]) -> bool:
    """True for a tag inside quotes on its line; an apostrophe within a word (don't) is none."""
    start = text.rfind("\n", 0, tag.start()) + 1
    end = text.find("\n", tag.end())
    before = text[max(start, tag.start() - _MAX_LINE) : tag.start()]
    behind = text[tag.end() : min(end if end >= 0 else len(text), tag.end() + _MAX_LINE)]
    open_quote = ""
    for mark in _QUOTE.finditer(before):
        if not open_quote and not _is_apostrophe(before, mark.start()):
            open_quote = mark.group()
        elif mark.group() == open_quote:
            open_quote = ""
    return bool(open_quote) and re.search(rf"(?<!\\){open_quote}(?!\w)", behind) is not None


_QUOTE = re.compile(r"(?<!\\)['\"]")
_MAX_LINE = 500


def _is_apostrophe(text: str, at: int) -> bool:
    """True for the mark in don't; the one in f'text' opens a string."""
    word = re.search(r"\w*$", text[max(0, at - 20) : at])
    return word is not None and len(word.group()) > 0 and word.group().lower() not in _STRING_PREFIXES


_STRING_PREFIXES = {"f", "r", "b", "u", "fr", "rf", "br", "rb"}


def _complete(text: str, entry_point: str, head: str) -> str:
    """A whole function goes after the head as it is; a bare body becomes the body of the head's last function."""
    if not head or _defines(text, entry_point) or len(text) > MAX_PROGRAM_CHARS:
        futures = "".join(_FUTURE.findall(text))  # have to stand first in a file
        return futures + head + "\n" + _FUTURE.sub("", text) if head else text
    body = text.strip("\n")
    first_bare = "    " + body.lstrip()  # the first line lost its indent to a strip()
    for candidate in (body, first_bare, textwrap.indent(textwrap.dedent(body), "    ")):
        if candidate[:1].isspace() and _parses(head + candidate + "\n"):
            return head + candidate + "\n"
    return head + body + "\n"


def _from_bare_text(text: str, entry_point: str, head: str) -> str | None:
    """A completion without a fence: code alone, a bare body, or code between lines of prose."""
    if not text.strip() or len(text) > MAX_PROGRAM_CHARS:
        return None
    if head and not _defines(text, entry_point):
        program = _complete(_body_lines(text), entry_point, head)
        return program if _parses(program) and program.rstrip() != head.rstrip() else None
    if _parses(text):
        return _complete(text, entry_point, head) if _has_code(text) else None
    start = _CODE_LINE.search(text)
    if start is None:
        return None
    # Prose behind the code is no program: keep the longest run of lines that parses.
    lines = text[start.start() :].splitlines(keepends=True)
    for _ in range(20):
        try:
            _parse("".join(lines))
        except SyntaxError as error:
            lines = lines[: max(0, min(len(lines), error.lineno or 1) - 1)]
        except (ValueError, RecursionError, MemoryError):
            return None
        else:
            break
        if not lines:
            return None
    kept = "".join(lines)
    if not _has_code(kept):
        return None
    return _complete(kept, entry_point, head)


def _body_lines(text: str) -> str:
    """A base model goes on after the body (tests, the next function): keep up to the first line at the margin that
    follows an indented one, unless all of it parses as one body."""
    lines = text.strip("\n").splitlines(keepends=True)
    seen_indent = False
    for index, line in enumerate(lines):
        if line.strip() and not line[0].isspace() and seen_indent:
            return "".join(lines[:index])
        seen_indent = seen_indent or line[:1].isspace()
    return "".join(lines)


def _defines(text: str, name: str) -> bool:
    """True when `text` binds `name` at the margin: a function, a class or an assignment."""
    escaped = re.escape(name)
    pattern = rf"^(?:(?:async[ \t]+)?def[ \t]+{escaped}\b|class[ \t]+{escaped}\b|{escaped}[ \t]*=[^=])"
    return re.search(pattern, text, re.MULTILINE) is not None


def _has_code(text: str) -> bool:
    """True when a text that parses is more than words: `yes` and `42` parse too."""
    return any(not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call) for node in _parse(text).body)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _parses(text: str) -> bool:
    """True when `text` compiles: parsing alone lets a `return` outside of a function pass."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
