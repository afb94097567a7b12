"""Multiple choice: the letters of a gold, and the letters that a prediction chooses."""

from __future__ import annotations

import re

from r1zero.verifiers.text.letters import is_taken_back

_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox|mathsf|bf|rm)\b\s*|\\[ ,;:!]|\\(?:left|right)|[{}$*`]"
)
_LETTERS = re.compile(r"\(?([A-J](?:\s*(?:,|;|and|&)?\s*\(?[A-J]\)?)*)\)?")
_ONE = re.compile(
    r"(?:option|choice|answer)?\s*(?:\(([A-J])\)(?=$|[\s.:,)]|[^\w*/+^=-])"
    r"|([A-J])(?:\)|(?=$|[.:,]|\s+(?:because|since|as|is (?:the )?(?:correct|right|best|only|answer))\b)))",
    re.IGNORECASE,
)
# "A, B or C": the first letter is not the choice.
_ANOTHER = re.compile(r"\W*(?:,|/|or|and|then)\W*(?:or\W*|and\W*|then\W*)?[A-J](?![A-Za-z])", re.IGNORECASE)


def gold_letters(gold: str) -> frozenset[str] | None:
    """The letters of a multiple-choice gold: C, (C), \\text{(C)}, ACD, \\text{A, B}; None for any other gold."""
    if len(gold) > 60 or not ("\\" in gold or gold[:1].isupper() or gold[:1] == "("):
        return None
    plain = _WRAPPERS.sub(" ", gold).strip(" .,")
    if _LETTERS.fullmatch(plain) is None:
        return None
    letters = re.findall(r"[A-J]", plain)
    # CBAD is an order, not a choice; so is a word such as BAD.
    return frozenset(letters) if letters == sorted(set(letters)) or "," in plain else None


def chosen_letters(text: str) -> frozenset[str] | None:
    """The letters a prediction chooses: `(C)\\ 12`, `E: a risk`, `Option A`, `c`, `A, C, D`; None for none."""
    if len(text) > 500:
        return None
    plain = re.sub(r"\s+", " ", _WRAPPERS.sub(" ", text)).strip(" .,")
    if _LETTERS.fullmatch(plain) is not None:
        return frozenset(re.findall(r"[A-J]", plain))
    one = _ONE.match(plain)
    if one is None or _ANOTHER.match(plain, one.end()):
        return None
    letter = (one[1] or one[2]).upper()
    return None if is_taken_back(letter, plain[one.end() :]) else frozenset(letter)
