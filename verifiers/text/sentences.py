"""Sentences around an answer: the value in them, and the words that deny it, hedge it or change it.

Shared by everything that reads an answer out of prose: the extraction rules, multiple choice, and the names of `math`.
"""

from __future__ import annotations

import re

# Values in prose

FORMULA = re.compile(
    r"(?<![\\$\w])\$(?![\s$])((?:[^$\\\n]|\\.)*?)(?<!\s)\$(?![\d$])|\\\((.*?)\\\)|\\\[(.*?)\\\]", re.DOTALL
)
BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
NUMBER = re.compile(
    r"(?<![\w.{^])(?<![\d)]-)[-−+]?(?:\\?[$€£])?[-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:\s?/\s?\d+)?"
    r"(?:[eE][+-]?\d+)?(?:\s?\\?%|\s?percent\b|€)?(?![\w])"
)
_LETTER = re.compile(r"(?<![\w'’])[A-J](?=\W*$|[.):,;?*]|\s+(?:is|or|and)\b)")
_MAX_CHARS = 4000

# Words that deny an answer, before it or after it.

DENIES = re.compile(
    r"\b(?:not|never|neither|nor|none|no|cannot|wrong|incorrect|false|invalid|impossible|unlikely|rejected|eliminated?|"
    r"excluded?|discarded?|ruled? out|out of|least|except|worst|trap|mistaken?|avoid|reject|distractor)\b|n['’]t\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    # the wrong answer is, not the answer, the least likely answer
    r"(?:\b(?:wrong|incorrect|false|invalid|impossible|unlikely|eliminated|excluded|rejected|discarded|worst|bad|fake|"
    r"second[- ]best|next[- ]best|"
    r"nor|neither|least \w+|not(?: the| an?| my)?)|n['’]t(?: the| an?)?)\s+(?:\w+\s+){0,2}[(\[*$]*$"
    # I do not think that (it is) C, not sure if the answer is
    r"|(?:n['’]t|\b(?:not|never|hardly|doubt|deny|unsure|no way|false|wrong|impossible))\s+"
    r"(?:(?:really|think|believe|say|claim|that|sure|certain|"
    r"if|whether|it|is|the|my|final|correct|right)\s+){1,6}[(\[*$]*$"
    r"|\bneither\b[^.;\n]{0,30}$",
    re.IGNORECASE,
)
_DENIES_AFTER = re.compile(
    r"\W{0,4}(?:is|was|are|were|seems|looks|must be|would be|has been|can be|should be|as)\b[^.;,\n]{0,40}",
    re.IGNORECASE,
)
_CONTRACTED_AFTER = re.compile(r"\W{0,4}(?:cannot|(?:is|was|ca|could|would|do|does)n['’]t)\b", re.IGNORECASE)


def is_denied(before: str, after: str) -> bool:
    """Whether the words around an answer deny it: "the wrong answer is 5", "I don't think C is correct", "C is out"."""
    if _DENIED.search(before[-80:]) or _CONTRACTED_AFTER.match(after):
        return True
    said = _DENIES_AFTER.match(after)
    return said is not None and DENIES.search(said.group()) is not None


# Words that offer another answer beside the one given: a hedge, or a correction.

_HEDGE_WORDS = (
    r"(?:or|maybe|perhaps|possibly|probably|alternatively|otherwise|else|unless|(?:it |this )?(?:could|might|may)|"
    r"if not|either)"
)
_CORRECTION_WORDS = (
    r"(?:no|nope|nah|actually|wait|correction|sorry|rather|scratch that|oops|i mean|i meant|not \S{1,20},? but|"
    r"then again|on (?:second|further|closer) (?:thought|look|inspection)|but(?=[^.\n]{0,30} (?:also|possible|too)\b)|"
    r"but (?:now|actually|then|also|it)|if (?:that|this|it|so|wrong|i)\b)"
)
_LINK = r"[\s.,;:!?()*$–—-]*(?:(?:hmm+|and|but|well|oh|then|so|uh|um)\b[\s.,;:!?()*–—-]*)*"
_HEDGE = re.compile(_LINK + _HEDGE_WORDS + r"\b", re.IGNORECASE)
_OFFER = re.compile(_LINK + rf"(?:{_HEDGE_WORDS}|{_CORRECTION_WORDS})" + r"(?![\w'’])", re.IGNORECASE)
_SAME_AGAIN = re.compile(
    r"\b(?:equivalent\w*|same|words|decimals?|approximately|about|roughly|simpl\w+|written|form|rounded|percent|fraction|"
    r"check|verify|so|because|since|let|question|questions|more|less|fewer|step|steps)\b|[=≈]",
    re.IGNORECASE,
)
_MAX_OFFER = 60
JOINS_BOXES = re.compile(_LINK + _HEDGE_WORDS + r"(?:\s+\w+){0,3}[\s,:$]*", re.IGNORECASE)


def another_answer(answer: str, rest: str, *, corrections: bool = True) -> str | None:
    """The other answer that the words after an answer offer: 7 in "5, maybe 7", "5. Or 7", "5? No, 7"; else None.

    rest: what follows the answer, read to the end of its line, sentence by sentence. corrections: "no, 7" counts too,
    not only "or 7". The same answer said again ("1/2, or 0.5 as a decimal") is none.
    """
    line = rest[:400].split("\n", 1)[0]
    opening = _OFFER if corrections else _HEDGE
    start = 0
    while start < len(line):
        cue = opening.match(line, start)
        if cue is not None:
            value = _first_value(line, cue.end(), answer)
            if value is not None:
                between = line[cue.end() : value.start()]
                if len(between) <= _MAX_OFFER and not _SAME_AGAIN.search(between):
                    other = value.group().strip("*$() ")
                    return other if _bare(other) != _bare(answer) else None
        following = re.compile(r"[.!?]\s+").search(line, start)
        if following is None:
            return None
        start = following.end()
    return None


def _first_value(line: str, at: int, answer: str) -> re.Match[str] | None:
    patterns = [_LETTER] if re.fullmatch(r"\W*[A-J]\W*", answer) else [FORMULA, BOLD, NUMBER]
    found = [value for pattern in patterns if (value := pattern.search(line, at)) is not None]
    return min(found, key=lambda value: value.start(), default=None)


def _bare(text: str) -> str:
    return re.sub(r"[\s*$(){},]|\\[()\[\]]|\.$", "", text)


# Words around a value that make it another one

# A hedge, a negation or a program is not a sentence around an answer.
_NO_SENTENCE = re.compile(
    r"\b(?:or|not|either|neither|between|if|else|lambda|import|def)\b|n't\b|__|[=;]\s*[\"']|\w\(['\"]", re.I
)


# Words that change, compare or deny the value beside them: a sentence with one of these is not its number.
CHANGES = re.compile(
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
_SIGN_WORD = re.compile(r"\b(minus|negative)\s+(?:\*\*)?$", re.IGNORECASE)
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


def shorter(text: str) -> tuple[str, ...]:
    """The part of a plain sentence that may be the answer by itself: its formula, bold text or only number.

    Nothing where what would be dropped changes, compares or denies it ("twice 5"); "minus 5" keeps its sign.
    """
    text = text[:_MAX_CHARS]
    if _NO_SENTENCE.search(text):
        return ()
    formulas = list(FORMULA.finditer(text))
    bold = list(BOLD.finditer(text))
    numbers = list(NUMBER.finditer(text))
    if formulas:
        found, part = formulas[-1], content_of(formulas[-1])
    elif bold:
        found, part = bold[-1], bold[-1][1]
    elif len(numbers) == 1:
        found, part = numbers[0], numbers[0].group()
    else:
        return ()
    before, after = text[: found.start()], text[found.end() :]
    sign = _SIGN_WORD.search(before)
    if sign is not None:
        before = before[: sign.start()]
    prose = FORMULA.sub(" ", before)
    if (
        CHANGES.search(prose)
        or CHANGES.search(after)
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
    return (signed(text[: found.start()], part),)


def signed(before: str, part: str) -> str:
    """A value with the sign that the word before it says: minus 5 is -5; the minus of `10 minus 5` is a subtraction."""
    found = _SIGN_WORD.search(before)
    if found is None or (found[1].lower() == "minus" and re.search(r"[\d)$]\s*$", before[: found.start()])):
        return part
    return f"-{part}" if part.isdigit() else f"-({part})"


def content_of(found: re.Match[str]) -> str:
    return next(group for group in found.groups() if group is not None).strip()
