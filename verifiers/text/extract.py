"""Which part of a completion is its answer. Shared by the verifiers that judge a final answer.

Text inside `<think>` never counts, and a think block left open means no answer. Then the first rule that finds its
mark decides, and only that one:

- `boxed`: the last `\\boxed{}` (or `\\fbox{}`), braces balanced; boxes joined on one line by a comma, "and" or "or" are
  one list. A last box that is left open, or empty, is no answer: an earlier box never wins.
- `answer_tag`: the last `<answer>...</answer>`; inside it, a phrase such as "the answer is" is looked for again.
  Left open, empty, or several tags that disagree: no answer.
- `marker`: `#### 5`, "the answer is 5", "**Answer:** 5", "Final Answer" as a heading. Two of "the answer is" in one
  line that disagree: no answer; nor is one that is denied ("the wrong answer is 5") or asked for ("5?").
- `whole`: the completion is nothing but one short line of maths.
- `last`: the last bold text, formula or number of the last line that has one.

An answer with another one offered behind it ("5, maybe 7", "5. Or 7.") is extracted with it, as "5 or 7": a list, which
is equal to no single answer (`sentences`).

In a completion that was cut off at the token limit only what it has committed itself to is an answer (`cut`).

Every scan is linear in the text. `answer` and `math` record the rule that fired in their verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from r1zero.errors import unknown_name
from r1zero.verifiers.text.boxes import last_boxes
from r1zero.verifiers.text.cut import is_closed
from r1zero.verifiers.text.sentences import (
    BOLD,
    FORMULA,
    NUMBER,
    another_answer,
    content_of,
    is_denied,
    shorter,
    signed,
)

RULES = ("boxed", "answer_tag", "marker", "whole", "last")
"""The default order."""


@dataclass(frozen=True)
class Extraction:
    """What a rule found. `text` is None where there is no answer, and `reason` says why."""

    text: str | None
    rule: str = ""
    reason: str = ""
    shorter: tuple[str, ...] = ()
    """Narrower readings of the same words, for a reader to whom `text` makes no sense (a sentence around a number)."""
    end: int | None = None
    """Where in the visible text a box or a marked answer ends; None for what half a text cannot be held to."""


CUT = "cut off at the token limit before it committed itself to an answer"


def extract(completion: str, rules: Sequence[str] = RULES, *, cut: bool = False) -> Extraction:
    """The answer of a completion by the first of `rules` that finds its mark. Raises UserError for an unknown rule.

    cut: the completion ended at the token limit, so that only a definite commitment is an answer.
    """
    text = visible(completion)
    if text is None:
        return Extraction(None, reason="a think block is left open")
    if not text.strip():
        return Extraction(None, reason="nothing outside the think block" if completion.strip() else "empty")
    for rule in rules:
        if rule not in _FUNCTIONS:
            raise unknown_name("extraction rule", rule, _FUNCTIONS)
        found = _FUNCTIONS[rule](text)
        if found is not None:
            return found if not cut or _is_definite(found, text) else Extraction(None, rule=found.rule, reason=CUT)
    return Extraction(None, reason="no answer found by " + ", ".join(rules))


def _is_definite(found: Extraction, text: str) -> bool:
    """Whether half a text is held to what a rule found in it: a closed tag, or a box or marked answer left standing."""
    if found.text is None or found.rule == "answer_tag":
        return True
    if found.end is None:
        return False
    rest = text[found.end :]
    in_tag = found.rule == "boxed" and text.rfind("<answer>", 0, found.end) > text.rfind("</answer>", 0, found.end)
    return (in_tag and "</answer>" in rest and "<answer>" not in rest) or is_closed(
        found.text, rest, boxed=found.rule == "boxed"
    )


def is_committed(completion: str) -> bool:
    """Whether a completion cut off at the limit gives an answer all the same: a closed tag, a box, a marked answer."""
    return any(extract(completion, (rule,), cut=True).text is not None for rule in ("answer_tag", "boxed", "marker"))


_THINK = re.compile(r"<(/?)think(?:ing)?>")
_SPECIAL = re.compile(r"<\|(?:im_end|endoftext|eot_id|end_of_text|end)\|>|</s>|<｜end▁of▁sentence｜>")


def visible(completion: str) -> str | None:
    """The completion without its think blocks; None when one is left open. A lone `</think>` closes a prefilled one."""
    text = completion
    if "think" in text:
        parts: list[str] = []
        at, is_open = 0, False
        for found in _THINK.finditer(text):
            if found[1]:
                if not is_open:  # prefilled: all before it was thought
                    parts.clear()
                is_open = False
                at = found.end()
            elif not is_open:
                parts.append(text[at : found.start()])
                is_open = True
        if is_open:
            return None
        text = "".join([*parts, text[at:]])
    if "<!--" in text:
        text = _without_comments(text)
    if "<" in text:
        text = _SPECIAL.sub("", text)
    return text


def _without_comments(text: str) -> str:
    parts, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        parts.append(text[at:start])
        at = end + 3
    return "".join([*parts, text[at:]])


# Boxes


def _boxed(text: str) -> Extraction | None:
    found = last_boxes(text)
    return None if found is None else Extraction(found.text, rule="boxed", reason=found.reason, end=found.end)


# Tags


def _answer_tag(text: str) -> Extraction | None:
    last = text.rfind("<answer>")
    if last < 0:
        return None
    contents = []
    at = 0
    while (start := text.find("<answer>", at)) >= 0:
        end = text.find("</answer>", start)
        if end < 0:
            return Extraction(None, rule="answer_tag", reason="the last answer tag is left open")
        contents.append(text[start + 8 : end].strip())
        at = end + 9
    if not contents[-1]:
        return Extraction(None, rule="answer_tag", reason="the answer tag is empty")
    if len(set(contents)) > 1:
        return Extraction(None, rule="answer_tag", reason=f"{len(contents)} answer tags that disagree")
    content = contents[-1]
    inner = _marker(content)
    if inner is not None:
        return Extraction(inner.text, rule="answer_tag", shorter=inner.shorter, reason=inner.reason)
    return Extraction(content, rule="answer_tag", shorter=shorter(content))


# Prose

# Each mark by the word to look for, and the pattern to match there: a scan for plain words is many times faster than
# one regular expression over the whole text.
_MARKS = (
    ("hash", "####", re.compile("####")),
    (
        "said",
        "answer",
        re.compile(
            r"\banswers?\b(?:[^\S\n]*\([^()\n]{0,60}\))?(?:[^\S\n]*\*\*)?[^\S\n]*"
            r"(?:is|are|was|were|(?:should|must|would|will) be|equals|=|:)(?![a-z])[\s:*]*"
        ),
    ),
    ("head", "answer", re.compile(r"\banswers?\b[*_:\s]*(?=\n|\\\[|\\\(|\$\$)")),
    ("line", "a:", re.compile(r"(?:(?<=\n)|(?<![\s\S]))a:")),
    ("so", "it", re.compile(r"it(?:['’]s| is)\s")),
)


_CONCLUSION = re.compile(r"\b(?:therefore|thus|so|hence),?\s+$")
# How many marks are read, from the end, and how many places a mark's word is looked at: what bounds the work on a text
# that repeats a marker thousands of times.
_MAX_MARKS = 50
_MAX_PLACES = 5000


def _marks(text: str) -> list[tuple[str, int, int]]:
    """The last marks of an answer in the prose, in order: (kind, start, end)."""
    lower = text.lower()
    if len(lower) != len(text):  # a letter whose lower case is longer: places would not match
        lower = text
    marks: dict[int, tuple[str, int, int]] = {}
    for kind, word, pattern in _MARKS:
        at, places, count = lower.rfind(word), 0, 0
        while at >= 0 and places < _MAX_PLACES and count < _MAX_MARKS:
            found = pattern.match(lower, at)
            if found is not None and (kind != "so" or _CONCLUSION.search(lower, max(0, at - 14), at)):
                marks.setdefault(at, (kind, at, found.end()))
                count += 1
            places += 1
            at = lower.rfind(word, 0, at)
    return [marks[at] for at in sorted(marks)][-_MAX_MARKS:]


_SENTENCE_END = re.compile(
    r"\n|[.!?](?=\s|$|\*|\"|”)|,\s+(?!and\b|or\b)(?=[A-Za-z]{2,}[\s,.])|\s+(?:because|since|as|which|where|so|but|although)\s"
    r"|;\s+(?=[A-Za-z]{3,})|\.(?=[A-Z][a-z])"
)
_DISPLAY = re.compile(r"\s*(?:\\\[(.*?)\\\]|\\\((.*?)\\\)|\$\$(.*?)\$\$)", re.DOTALL)
_MAX_MARKED = 4000
_TENTATIVE = re.compile(r"\b(?:should|would|must|was|were)\b", re.IGNORECASE)

_LEAD = re.compile(
    r"[\s*_:#\"“]*(?:(?:so|thus|hence|therefore|that|the|my|our|final|correct|numerical)\b[,:\s*_]*){0,6}",
    re.IGNORECASE,
)


def _marker(text: str) -> Extraction | None:
    marks = _marks(text)
    denied = False
    while marks:
        kind, start, end = marks.pop()
        candidate, after = _said(text, end)
        if candidate is None:
            continue
        line = text.rfind("\n", 0, start) + 1
        if text[after : after + 1] == "?" or (kind == "said" and is_denied(text[max(line, start - 80) : start], "")):
            denied = True  # "the wrong answer is 5", "is the answer 5?"
            continue
        # "...to get the final answer" at a line's end is half a sentence, not a heading.
        midway = kind == "head" and _LEAD.fullmatch(text, line, start) is None
        # "Final Answer: The final answer is 5" is one mark in two parts.
        while marks and _LEAD.fullmatch(text, marks[-1][2], max(marks[-1][2], start)):
            _, start, _ = marks.pop()
        if marks and kind in ("said", "so"):
            before, _, before_end = marks[-1]
            if before == kind and "\n" not in text[before_end:start]:
                earlier, _ = _said(text, before_end)
                if earlier is not None and earlier.strip(" .*") != candidate.strip(" .*"):
                    return Extraction(None, rule="marker", reason="two answers that disagree")
        other = another_answer(candidate, text[after : after + 400])
        if other is not None:
            return Extraction(f"{candidate} or {other}", rule="marker")
        # "A: 2." may go on as 2.5; a sentence that says what it gives is taken at its full stop.
        half = kind in ("line", "hash") and text[after:] == "." and candidate[-1:].isdigit()
        tentative = half or midway or kind == "so" or _TENTATIVE.search(text, start, end) is not None
        return Extraction(candidate, rule="marker", shorter=shorter(candidate), end=None if tentative else after)
    return Extraction(None, rule="marker", reason="the answer is denied or asked for") if denied else None


def _said(text: str, at: int) -> tuple[str | None, int]:
    """What is said after a marker, a formula or the words up to the end of the clause; and where it ends."""
    rest = text[at : at + _MAX_MARKED]
    stripped = rest.lstrip(" \t\n*:_#")
    at += len(rest) - len(stripped)
    display = _DISPLAY.match(stripped)
    if display is not None:
        content = next(group for group in display.groups() if group is not None)
        tail = stripped[display.end() :].split("\n", 1)[0]
        unit = re.match(r"\s*([a-zA-Z]+(?: [a-z]+)?|\\?%|°)?[.\s*]*$", tail)
        end = at + display.end() + (unit.end(1) if unit is not None and unit[1] else 0)
        return (f"{content} {unit[1]}" if unit is not None and unit[1] else content.strip() or None), end
    if not stripped:
        return None, at
    end = _clause_end(stripped)
    return stripped[:end].strip(' \t*`_"“”') or None, at + end


def _clause_end(text: str) -> int:
    """Where the clause ends; what is inside dollars or brackets does not end it."""
    depth = 0
    at = 0
    in_maths = False
    for found in re.finditer(r"\\.|\$|[{(\[]|[)}\]]", text.split("\n", 1)[0]):
        mark = found.group()
        if not in_maths and depth <= 0:
            end = _SENTENCE_END.search(text, at, found.start() + 1)
            if end is not None and end.start() < found.start():
                return end.start()
        if mark == "$":
            # Money has a digit after it and no partner.
            in_maths = not in_maths and text.count("$", found.end(), found.end() + 200) > 0
        elif mark in "{([":
            depth += 1
        elif mark in ")}]":
            depth -= 1
        at = found.end()
    end = _SENTENCE_END.search(text, at)
    return end.start() if end is not None else len(text)


_PLAIN_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")


def _whole(text: str) -> Extraction | None:
    line = text.strip()
    if len(line) > _MAX_MARKED:
        return (
            Extraction(None, rule="whole", reason="over limit: a long text without a marked answer")
            if ("\n" not in line and " " not in line)
            else None
        )
    if "\n" in line or "**" in line or len(_PLAIN_WORD.findall(line)) > 2 or (line.endswith(".") and " " in line):
        return None
    return Extraction(line, rule="whole", shorter=shorter(line))


_MAX_TAIL = 20000
_DOUBTED = re.compile(r"\b(?:not|never|cannot|or|either|maybe|perhaps)\b|n['’]t\b", re.IGNORECASE)
_SCALED = re.compile(
    r"\**\s+(?:hundred|thousand|million|billion|trillion|dozen|pairs?|score|squared|cubed|factorial|tenths?|hundredths?"
    r"|thousandths?|halves|thirds|quarters|fifths|percent off)\b",
    re.IGNORECASE,
)


def _last(text: str) -> Extraction | None:
    tail = text[-_MAX_TAIL:].rstrip()
    for line in reversed(tail.split("\n")):
        bold = [found for found in BOLD.finditer(line) if re.search(r"[\d\\$]", found[1])]
        formulas = [
            found
            for found in FORMULA.finditer(line)
            if not re.search(r"(?<![\\A-Za-z{])[A-Za-z]{3,}\s", content_of(found))
        ]
        value = next((found[-1] for found in (bold, formulas, list(NUMBER.finditer(line))) if found), None)
        if value is None:
            continue
        clause = re.split(r"[.,;:!?]\s+(?!or\b|maybe\b|perhaps\b)", line[: value.start()], flags=re.IGNORECASE)[-1]
        if _DOUBTED.search(clause):
            return Extraction(None, rule="last", reason="the last number is denied or hedged")
        if _SCALED.match(line, value.end()):
            return Extraction(None, rule="last", reason="words change the last number")
        part = value[1].strip(" :") if bold else content_of(value) if formulas else value.group()
        return Extraction(signed(clause, part), rule="last", shorter=shorter(part) if bold else ())
    return None


_FUNCTIONS = {"boxed": _boxed, "answer_tag": _answer_tag, "marker": _marker, "whole": _whole, "last": _last}
