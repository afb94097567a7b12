"""The last `\\boxed{}` of a text: where it ends, which boxes beside it are one list, what touches it."""

from __future__ import annotations

import re
from typing import NamedTuple

from r1zero.verifiers.text.sentences import JOINS_BOXES, another_answer


class Boxed(NamedTuple):
    """What the last box says. `text` is None where it says nothing, and `reason` says why."""

    text: str | None
    reason: str = ""
    end: int | None = None
    """Where the last box ends in the text."""


_BOX = re.compile(
    r"\\(?:boxed|fbox|framebox|beginboxed)(?![A-Za-z])[^\S\n]*|(?<![A-Za-z\\])(?:\x08oxed|boxed|oxed)(?=\{)"
)
_BARE_BOX = re.compile(r"\d+(?:\.\d+)?|[A-Z](?![A-Za-z])")
_JOIN = re.compile(
    r"(?:\s|\$|\\[()\[\],;:! ]|\\q?quad|[,;&]|\band\b|\bor\b"
    r"|\\(?:text|mbox|textrm|mathrm)\s*\{\s*,?\s*(?:and|or)\s*\})*"
)
_AFTER = re.compile(
    r"\s*(?:\$?\s*(?:\\?%|\^\s*\{?\s*\\circ\s*\}?|°)|\\(?:text|mathrm|mbox)\s*\{\s*(?:%|\\%|degrees?)\s*\})"
)
_SAID_IN_BOX = re.compile(r"^\\text\s*\{[^{}]*\banswer(?: is)?\s*:?\s*\}\s*(?=\S)")
# What touches a box: `2 \cdot \boxed{5}` is not 5. Spacing commands aside, and a delimiter of maths ends the look.
_SPACING = re.compile(r"\\[,;:! ]|\\q?quad(?![A-Za-z])|~|\\(?:displaystyle|left|right|big|Big)(?![A-Za-z])")
_NEGATED = re.compile(r"(?:(?:[=$(\[{]|\\\(|\\\[)\s*[-−]\s*|(?:^|\s)[-−])\{?$")
_MONEY = re.compile(r"\\\$|\$\d[\d,.]*(?=[\s.,;]|$)")
_SPACED_DASH = re.compile(r"^\s*[-−+*>]\s+$")
_OPERATOR_BEFORE = re.compile(
    r"(?:[\w)\]}!]\s*[-−+*/·×÷±]\s*|\d|(?<!\d)[\d)\]}]\s*\(|[\^_]\s*\{?|[\w)\]}|]\s*[<>≠≤≥]\s*|!=\s*|[<>]=\s*|[≠≤≥±×÷√]\s*"
    r"|\\(?:ne|neq|not\s*=|lt|gt|le|leq|leqslant|ge|geq|geqslant|cdot|times|div|pm|mp|sqrt|log|ln|exp|sin|cos|tan|sec"
    r"|csc|cot|arcsin|arccos|arctan|pi|phantom|notin)\s*)$"
)
_OPERATOR_AFTER = re.compile(
    r"[\s)\]}]*(?:\^|_\{?\d|[·×÷±]|\*\s*\d|[/+−-]\s*[\d\\(]|\\(?:cdot|times|div|pm|mp|pi|sqrt|frac|dfrac|tfrac|ln|log"
    r"|sin|cos|tan|ne|neq|lt|gt|le|leq|ge|geq)(?![A-Za-z])|\d|[<>]=?\s*[\d\\]|[≠≤≥])"
)
_IN_MATHS_AFTER = re.compile(r"[\s)\]}]*[-−+*/!]\s*[\w$\\]")
_HOLDS = re.compile(
    r"(?:\\(?:[dtc]?frac|sqrt|phantom|[hv]phantom|d?binom|x?cancel|sout|overline|log|ln|exp|sin|cos|tan|max|min)\s*"
    r"(?:\[[^\]]{0,20}\])?|[\^_]\s*)$"
)
_ARROW = re.compile(r"(?:[-=]>|\\(?:Long|long)?(?:right|Right)arrow)\s*$|</?[a-zA-Z]{1,8}>\s*$")
_PROSE_DASH = re.compile(r"(?:[^\W\d_]{2,}[*:.]*\s*|\*\*\s*)[-−]\s*$")
_NEAR = 200


def _part_of(text: str, start: int, after: int) -> str:
    """What joins the boxes from `start` to `after` to more maths on their line; empty where nothing does."""
    line = max(text.rfind("\n", max(0, start - _NEAR), start) + 1, start - _NEAR, 0)
    end = text.find("\n", after, after + _NEAR)
    before = _SPACING.sub(" ", text[line:start])
    behind = _SPACING.sub(" ", text[after : end if end >= 0 else after + _NEAR])
    holder = _holder(before)
    if holder:
        return holder
    bare = before.rstrip("{").rstrip() if before.endswith("{") else before
    in_maths = _MONEY.sub("", before).replace("$$", "$").count("$") % 2 == 1 or (
        max(before.rfind("\\("), before.rfind("\\[")) > max(before.rfind("\\)"), before.rfind("\\]"))
    )
    spaced_prose = not in_maths and (_SPACED_DASH.match(bare) or _PROSE_DASH.search(bare))
    if not _ARROW.search(bare) and not spaced_prose and (found := _OPERATOR_BEFORE.search(bare)):
        return found.group().strip()
    found = _OPERATOR_AFTER.match(behind)
    if found is None and (in_maths or not re.search(r"[A-Za-z]{2,}", before)):
        found = _IN_MATHS_AFTER.match(behind) if in_maths else re.match(r"[\s)}]*!\s*$", behind)
    suffix = _AFTER.match(behind)
    if found is not None and suffix is not None:
        found = _OPERATOR_AFTER.match(behind, suffix.end())
    return found.group().strip() if found is not None else ""


def _holder(before: str) -> str:
    """The command whose braces are still open before a box, where it changes what they hold."""
    depth = 0
    for at in range(len(before) - 1, -1, -1):
        if before[at] == "}":
            depth += 1
        elif before[at] == "{":
            depth -= 1
            if depth < 0:
                head = before[:at]
                while (fraction := re.search(r"(\\[dtc]?frac|\\d?binom)\s*\{[^{}]*\}\s*$", head)) is not None:
                    head = head[: fraction.end(1)]
                if (found := _HOLDS.search(head)) is not None:
                    return found.group().strip()
                depth = 0
    return ""


def last_boxes(text: str) -> Boxed | None:
    """The answer in the last box of a text, or in the last boxes side by side; None where there is no box."""
    if "oxed" not in text and "\\f" not in text:
        return None
    boxes = _boxes(text)
    if not boxes:
        return None
    start, begin, end, after = boxes[-1]
    if end < 0:
        return Boxed(None, "the last box is left open")
    contents = [text[begin:end].strip()]
    first = len(boxes) - 1
    # Boxes side by side are one list; only the same line counts, so that a box restated below stands alone.
    while first and len(contents) < 1000:
        before_start, before_begin, before_end, before_after = boxes[first - 1]
        between = text[before_after:start]
        if before_end < 0 or "\n" in between or len(between) > 60:
            break
        if not _JOIN.fullmatch(between) and not JOINS_BOXES.fullmatch(between):
            break
        contents.insert(0, text[before_begin:before_end].strip())
        start, first = before_start, first - 1
    if not all(contents):
        return Boxed(None, "the last box is empty")
    part = _part_of(text, start, after)
    if part:
        return Boxed(None, f"the last box is a part of a larger expression: {part}")
    if len(contents) > 1:
        return Boxed(contents[0] if len(set(contents)) == 1 else ", ".join(contents), end=after)
    content = _SAID_IN_BOX.sub("", contents[0])
    suffix = _AFTER.match(text, after)
    if suffix is not None:
        content += suffix.group().strip(" $")
    if _NEGATED.search(_SPACING.sub(" ", text[max(text.rfind("\n", 0, start) + 1, start - 20, 0) : start])):
        content = f"-({content})"
    other = another_answer(content, text[after : after + 400], corrections=False)
    return Boxed(content, end=after) if other is None else Boxed(f"{content} or {other}")


def _boxes(text: str) -> list[tuple[int, int, int, int]]:
    """The outermost boxes: (start, content begin, content end or -1 where left open, where reading goes on)."""
    boxes = []
    at = 0
    while (found := _BOX.search(text, at)) is not None:
        begin = found.end()
        if text[begin : begin + 1] == "{":
            end = _closing(text, begin)
            boxes.append((found.start(), begin + 1, end, end + 1 if end >= 0 else len(text)))
            if end < 0:
                # Left open: but a later box that is whole, and not inside another open one, is still the last word.
                later = [box for box in _after_open(text, begin + 1) if box[2] >= 0]
                last = _last_start(text)
                if later and later[-1][0] == last:
                    return [later[-1]]
                return boxes
            at = end + 1
        else:
            bare = _BARE_BOX.match(text, begin)
            if bare is not None:
                boxes.append((found.start(), bare.start(), bare.end(), bare.end()))
                at = bare.end()
            else:  # a mention of the command, not a box
                at = begin
    return boxes


def _last_start(text: str) -> int:
    last = -1
    for found in _BOX.finditer(text):
        if text[found.end() : found.end() + 1] == "{":
            last = found.start()
    return last


def _after_open(text: str, at: int) -> list[tuple[int, int, int, int]]:
    """The last box after one left open, if it is closed itself."""
    start = _last_start(text[at:])
    if start < 0:
        return []
    found = _BOX.match(text, at + start)
    assert found is not None
    end = _closing(text, found.end())
    return [(at + start, found.end() + 1, end, end + 1)]


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def _closing(text: str, opening: int) -> int:
    """Where the brace at `opening` closes, or -1. Escaped braces do not count."""
    depth = 0
    for found in _BRACE.finditer(text, opening):
        mark = found.group()
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
            if not depth:
                return found.start()
    return -1
