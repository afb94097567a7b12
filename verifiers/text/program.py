"""From a completion to a program: the text that counts, the fenced block, the head of the prompt before it."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import textwrap
import warnings

MAX_PROGRAM_CHARS = 100_000

_TAG = re.compile(r"<(/?)(think|answer)>")
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}+|~{3,}+)[ \t]*(?P<language>[\w+#.-]*)[^\n]*\n"
    r"(?P<body>.*?)(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|(?P<unclosed>\Z))",
    re.DOTALL | re.MULTILINE,
)
_PYTHON = {"python", "py", "python3", "py3"}
_CPP = {"cpp", "c++", "cc", "cxx", "c"}
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


def extract_cpp(completion: str, *, truncated: bool = False) -> str | None:
    """The C++ program in `completion`: the last block marked as C++, else the last unmarked, else the whole text where
    it has a `main`. truncated: as in `extract_program`."""
    text = visible(completion)
    blocks = [match for match in _FENCE.finditer(text) if match["language"].lower() in _CPP | {""}]
    if not blocks:
        return (
            text if re.search(r"\bmain\s*\(", text) and "#include" in text and len(text) <= MAX_PROGRAM_CHARS else None
        )
    if truncated and blocks[-1]["unclosed"] is not None:
        return None
    chosen = ([block for block in blocks if block["language"]] or blocks)[-1]["body"]
    return chosen if chosen.strip() else None


def library_names(program: str) -> list[tuple[str, str, str]]:
    """(name, module, attribute or "") of the library names that `program` uses and nowhere binds, as sites that judge
    `class Solution` give them. Empty for a program that does not parse."""
    try:
        tree = _parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    known = _library()
    return [(name, *known[name]) for name in sorted(names - bound) if name in known]


@functools.cache
def _library() -> dict[str, tuple[str, str]]:
    modules = ("typing", "collections", "heapq", "bisect", "itertools", "functools", "math", "operator")
    found = {name: (name, "") for name in (*modules, "re", "string", "random", "sys", "statistics", "datetime")}
    for module in modules:
        for name in dir(importlib.import_module(module)):
            if not name.startswith("_"):
                found.setdefault(name, (module, name))
    return found


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
    if not found or len(found) > _MAX_TAGS:  # no program: a text made to be slow to read
        return found
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
_MAX_TAGS = 1000


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
