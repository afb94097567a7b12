"""Which part of a completion is its answer. Shared by the verifiers that judge a final answer.

Text inside `<think>` never counts, and a think block left open means no answer. Then the first rule that finds its
mark decides, and only that one:

- `boxed`: the last `\\boxed{}` (or `\\fbox{}`), braces balanced; boxes joined on one line by a comma, "and" or "or" are
  one list. A last box that is left open, or empty, is no answer: an earlier box never wins.
- `answer_tag`: the last `<answer>...</answer>`; inside it, a phrase such as "the answer is" is looked for again.
  Left open, empty, or several tags that disagree: no answer.
- `marker`: `#### 5`, "the answer is 5", "**Answer:** 5", "Final Answer" as a heading. Two of "the answer is" in one
  line that disagree: no answer.
- `whole`: the completion is nothing but one short line of maths.
- `last`: the last bold text, formula or number of the last line that has one.

Every scan is linear in the text. `answer` and `math` record the rule that fired in their verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from r1zero.errors import unknown_name

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


def extract(completion: str, rules: Sequence[str] = RULES) -> Extraction:
    """The answer of a completion by the first of `rules` that finds its mark. Raises UserError for an unknown rule."""
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
            return found
    return Extraction(None, reason="no answer found by " + ", ".join(rules))


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


def _boxed(text: str) -> Extraction | None:
    if "oxed" not in text and "\\f" not in text:
        return None
    boxes = _boxes(text)
    if not boxes:
        return None
    start, begin, end, after = boxes[-1]
    if end < 0:
        return Extraction(None, rule="boxed", reason="the last box is left open")
    contents = [text[begin:end].strip()]
    first = len(boxes) - 1
    # Boxes side by side are one list; only the same line counts, so that a box restated below stands alone.
    while first and len(contents) < 1000:
        before_start, before_begin, before_end, before_after = boxes[first - 1]
        between = text[before_after:start]
        if before_end < 0 or "\n" in between or len(between) > 60 or not _JOIN.fullmatch(between):
            break
        contents.insert(0, text[before_begin:before_end].strip())
        start, first = before_start, first - 1
    if not all(contents):
        return Extraction(None, rule="boxed", reason="the last box is empty")
    part = _part_of(text, start, after)
    if part:
        return Extraction(None, rule="boxed", reason=f"the last box is a part of a larger expression: {part}")
    if len(contents) > 1:
        return Extraction(", ".join(contents), rule="boxed")
    content = _SAID_IN_BOX.sub("", contents[0])
    suffix = _AFTER.match(text, after)
    if suffix is not None:
        content += suffix.group().strip(" $")
    if _NEGATED.search(_SPACING.sub(" ", text[max(text.rfind("\n", 0, start) + 1, start - 20, 0) : start])):
        content = f"-({content})"
    return Extraction(content, rule="boxed")


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
    if inner is not None and inner.text is not None:
        return Extraction(inner.text, rule="answer_tag", shorter=inner.shorter)
    return Extraction(content, rule="answer_tag", shorter=_shorter(content))


# Prose

# Each mark by the word to look for, and the pattern to match there: a scan for plain words is many times faster than
# one regular expression over the whole text.
_MARKS = (
    ("hash", "####", re.compile("####")),
    (
        "said",
        "answer",
        re.compile(
            r"\banswers?\b(?:[^\S\n]*\([^()\n]{0,60}\))?(?:[^\S\n]*\*\*)?[^\S\n]*(?:is|are|was|were|=|:)(?![a-z])[\s:*]*"
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
_FORMULA = re.compile(
    r"(?<![\\$\w])\$(?![\s$])((?:[^$\\\n]|\\.)*?)(?<!\s)\$(?![\d$])|\\\((.*?)\\\)|\\\[(.*?)\\\]", re.DOTALL
)
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
_NUMBER = re.compile(
    r"(?<![\w.{^])(?<![\d)]-)[-−+]?(?:\\?[$€£])?[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?"
    r"(?:[eE][+-]?\d+)?(?:\s?\\?%|\s?percent\b|€)?(?![\w])"
)
_MAX_MARKED = 4000


_LEAD = re.compile(
    r"[\s*_:#\"“]*(?:(?:so|thus|hence|therefore|that|the|my|our|final|correct|numerical)\b[,:\s*_]*){0,6}",
    re.IGNORECASE,
)


def _marker(text: str) -> Extraction | None:
    marks = _marks(text)
    while marks:
        kind, start, end = marks.pop()
        candidate = _said(text, end)
        if candidate is None:
            continue
        # "Final Answer: The final answer is 5" is one mark in two parts.
        while marks and _LEAD.fullmatch(text, marks[-1][2], max(marks[-1][2], start)):
            _, start, _ = marks.pop()
        if marks and kind in ("said", "so"):
            before, _, before_end = marks[-1]
            if before == kind and "\n" not in text[before_end:start]:
                earlier = _said(text, before_end)
                if earlier is not None and earlier.strip(" .*") != candidate.strip(" .*"):
                    return Extraction(None, rule="marker", reason="two answers that disagree")
        return Extraction(candidate, rule="marker", shorter=_shorter(candidate))
    return None


def _said(text: str, at: int) -> str | None:
    """What is said after a marker: a formula, or the words up to the end of the clause."""
    rest = text[at : at + _MAX_MARKED]
    stripped = rest.lstrip(" \t\n*:_#")
    display = _DISPLAY.match(stripped)
    if display is not None:
        content = next(group for group in display.groups() if group is not None)
        tail = stripped[display.end() :].split("\n", 1)[0]
        unit = re.match(r"\s*([a-zA-Z]+(?: [a-z]+)?|\\?%|°)?[.\s*]*$", tail)
        return f"{content} {unit[1]}" if unit is not None and unit[1] else content.strip() or None
    if not stripped:
        return None
    end = _clause_end(stripped)
    return stripped[:end].strip(' \t*`_"“”') or None


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


# A hedge, a negation or a program is not a sentence around an answer.
_NO_SENTENCE = re.compile(
    r"\b(?:or|not|either|neither|between|if|else|lambda|import|def)\b|n't\b|__|[=;]\s*[\"']|\w\(['\"]", re.I
)


# Words that change, compare or deny the value beside them: a sentence with one of these is not its number.
_CHANGES = re.compile(
    r"\b(?:never|no|none|nothing|nowhere|cannot|without|except|excluding|unless|instead|rather|other|besides|plus|times|"
    r"divided|multiplied|up to|modulo|mod|at (?:the )?(?:least|most)|(?:more|less|fewer|greater|larger|smaller|"
    r"higher|lower|bigger) than|exceeds?|beyond|half|halves|third|thirds|quarters?|fourths?|fifths?|sixths?|sevenths?|"
    r"eighths?|ninths?|tenths?|hundredths?|thousandths?|twice|thrice|double|doubled|triple|tripled|dozens?|pairs?|"
    r"scores?|gross|lakhs?|crores?|inverse|reciprocal|opposite|negation|negated|roots?|squared|cubed|factorials?|power|"
    r"powers|exponent|logarithm|log|ln|sine|cosine|tangent|sin|cos|tan|base|binary|octal|hex|hexadecimal|wrong|"
    r"incorrect|false|invalid|impossible|rejected|extraneous|excluded|discarded|maybe|perhaps|possibly|probably|"
    r"unlikely|doubtful|guess|unsure|unknown|nearly|almost)\b|\\(?:sqrt|frac|ne|neq|"
    r"not|lt|gt|le|leq|ge|geq|times|cdot|div|pm)(?![a-zA-Z])|[<>≠≤≥±]",
    re.IGNORECASE,
)
_BESIDE = re.compile(r"\b(?:over|under|above|below|more|less)\s+(?:\*\*)?$", re.IGNORECASE)
_JOINED = re.compile(r"\s*(?:,|;|&|,?\s*and)\s*")
_SIGN_WORD = re.compile(r"\b(?:minus|negative)\s+(?:\*\*)?$", re.IGNORECASE)
_SIGN_WORDS = re.compile(r"\b(?:minus|negative)\b", re.IGNORECASE)
# "a total of 5" is 5; "the cube of 5" is not.
_OF = re.compile(r"(\S*)\s+of\s+(?:the |a |an |just |exactly |only )?(?:\*\*)?$", re.IGNORECASE)
_IDLE_OF = re.compile(
    r"(?:total|sum|value|answer|amount|cost|price|number|length|width|height|area|volume|speed|rate|distance|age|"
    r"average|mean|median|mode|profit|probability|maximum|minimum|max|min|remainder|result|solution|score|weight|"
    r"difference|product|quotient|ratio|perimeter|radius|diameter|degree|measure|balance|salary|chance|percentage)",
    re.IGNORECASE,
)
_TOUCHES_BEFORE = re.compile(r"(?:[-−+*/^!]|[\w)\]}]\s*[=]\s*[-−])\s*$")
_BOLD_END = re.compile(r"^\*\*(?!\s?[\d(\\])")
_TOUCHES_AFTER = re.compile(r"\s*(?:[+*/^−]|-\s?[\d$\\]|!(?=\S))")


def _shorter(text: str) -> tuple[str, ...]:
    """The part of a plain sentence that may be the answer by itself: its formula, bold text or only number.

    Nothing where what would be dropped changes, compares or denies it ("twice 5"); "minus 5" keeps its sign.
    """
    text = text[:_MAX_MARKED]
    if _NO_SENTENCE.search(text):
        return ()
    formulas = list(_FORMULA.finditer(text))
    bold = list(_BOLD.finditer(text))
    numbers = list(_NUMBER.finditer(text))
    if formulas:
        found, part = formulas[-1], _content(formulas[-1])
    elif bold:
        found, part = bold[-1], bold[-1][1]
    elif len(numbers) == 1:
        found, part = numbers[0], numbers[0].group()
    else:
        return ()
    before, after = text[: found.start()], text[found.end() :]
    signed = _SIGN_WORD.search(before)
    if signed is not None:
        before = before[: signed.start()]
    prose = _FORMULA.sub(" ", before)
    if (
        _CHANGES.search(prose)
        or _CHANGES.search(after)
        or _BESIDE.search(before)
        or _SIGN_WORDS.search(prose)
        or _SIGN_WORDS.search(after)
    ):
        return ()
    if len(formulas) > 1 and _JOINED.fullmatch(text, formulas[-2].end(), formulas[-1].start()):
        return ()
    of = _OF.search(before)
    if of is not None and not _IDLE_OF.fullmatch(of[1]):
        return ()
    # Stars of bold text, also where the opening ones went with the marker; those of a power have a number after them.
    after = _BOLD_END.sub("", after)
    if _TOUCHES_BEFORE.search(before.removesuffix("**")) or _TOUCHES_AFTER.match(after):
        return ()
    if signed is not None:
        return (f"-{part}" if part.isdigit() else f"-({part})",)
    return (part,)


def _content(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group is not None).strip()


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
    return Extraction(line, rule="whole", shorter=_shorter(line))


_MAX_TAIL = 20000


def _last(text: str) -> Extraction | None:
    tail = text[-_MAX_TAIL:].rstrip()
    for line in reversed(tail.split("\n")):
        bold = [item for item in _BOLD.findall(line) if re.search(r"[\d\\$]", item)]
        if bold:
            return Extraction(bold[-1].strip(" :"), rule="last", shorter=_shorter(bold[-1]))
        formulas = [_content(found) for found in _FORMULA.finditer(line)]
        formulas = [item for item in formulas if not re.search(r"(?<![\\A-Za-z{])[A-Za-z]{3,}\s", item)]
        if formulas:
            return Extraction(formulas[-1], rule="last")
        numbers = list(_NUMBER.finditer(line))
        if numbers:
            clause = re.split(r"[.,;:!?]\s", line[: numbers[-1].start()])[-1]
            if re.search(r"\b(?:not|never|cannot|or|either|maybe|perhaps)\b|n['’]t\b", clause):
                return Extraction(None, rule="last", reason="the last number is denied or hedged")
            return Extraction(numbers[-1].group(), rule="last")
    return None


_FUNCTIONS = {"boxed": _boxed, "answer_tag": _answer_tag, "marker": _marker, "whole": _whole, "last": _last}
