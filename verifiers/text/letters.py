"""The letter that prose chooses: "the answer is C", "D is correct"; and what takes a choice back.

Shared by `choice` and by the multiple-choice answers of `math`.
"""

from __future__ import annotations

import re

from r1zero.verifiers.text.sentences import DENIES, another_answer, is_denied

_MAX_TAIL = 2000
_DRESS = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|boxed)\s*\{|[{}$*`]")
_ALONE = re.compile(r"\(?([A-J])\)?\.?")
_SAID = re.compile(
    r"\b(?:[Aa]nswer|ANSWER|[Oo]ption|[Cc]hoice)\b(?P<between>(?:(?!n't\b|\bor\b)[^.\n]){0,40}?)"
    r"(?:\bis\b|\b(?:should|must|would|has to) be\b|:|=)\s*"
    r"(?:(?:therefore|clearly|thus|simply|option|choice)\s+)?\(?(?P<named>[A-J])\)?(?![\w'’-])"
    r"(?!\s*(?:and|or|/|,|&)\s*\(?[A-J]\b)"
    r"|(?<![\w'’])\(?(?P<judged>[A-J])\)?\s+is (?:the )?(?:correct|right|best)\b"
    r"|\bI(?:['’]ll| will| would)? (?:choose|pick|select|go with)\s+"
    r"(?:option |choice )?\(?(?P<picked>[A-J])\)?(?![\w'’-])"
    r"|\b(?:[Tt]herefore|[Tt]hus|[Hh]ence|[Ss]o),?\s+(?:it(?:['’]s| is)\s+)?\(?(?P<concluded>[A-J])\)?(?=\.?\s*$)",
    re.MULTILINE,
)
_ANOTHER_FIRST = re.compile(r"\W*[A-J](?=[.):,;?]|\s*$|\s+\(?[A-J]\b)")


def said_letter(text: str) -> str | None:
    """The letter that the last line of a text with one in it names as the answer; None where it names none, or two,
    or denies it ("the wrong answer is C", "I don't think C is correct"), asks for it, or offers another beside it."""
    plain = _DRESS.sub("", text[-_MAX_TAIL:]).strip()
    alone = _ALONE.fullmatch(plain)
    if alone is not None:
        return alone[1]
    for line in reversed(plain.split("\n")):
        named: set[str] = set()
        seen = False
        for found in _SAID.finditer(line):
            seen = True
            letter = found["named"] or found["judged"] or found["picked"] or found["concluded"]
            before, after = line[: found.start()], line[found.end() :]
            if is_denied(before, after) or DENIES.search(found["between"] or "") or after.lstrip().startswith("?"):
                continue
            if another_answer(letter, after) is not None:
                return None
            named.add(letter)
        if seen:
            return named.pop() if len(named) == 1 else None
    return None


def is_taken_back(letter: str, rest: str) -> bool:
    """Whether what follows a letter denies it or names another one: "is wrong", ". No, D", ". D. A. B.", " (D)"."""
    return bool(_ANOTHER_FIRST.match(rest)) or is_denied("", rest) or another_answer(letter, rest) is not None
