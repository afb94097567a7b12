"""Words as they are compared: without case, article, punctuation, plural or LaTeX wrapper."""

from __future__ import annotations

import re

from r1zero.verifiers.math import units
from r1zero.verifiers.math.nodes import EMPTY, Const, Node


def plain_text(text: str) -> str:
    """A sentence without its LaTeX wrappers."""
    text = re.sub(r"\\(?:text|textbf|textit|mbox|mathrm|textrm|mathbf|operatorname)\s*\{", "{", text)
    return re.sub(r"\\[ ,;:!]|[{}$]|\\(?:left|right)\b", " ", text)


NAMED_SETS: dict[str, Node] = {
    **dict.fromkeys(("all real number", "all real", "real number", "all real value"), Const("reals")),
    "empty set": EMPTY,
}
# A point, a comma or a colon between digits is a part of the number.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PUNCTUATION = re.compile(r"(?:[;!?\"'()\[\]{}$*_`]|\.(?!\d)|(?<=[a-z])\.|[,:](?!\d)|(?<!\d)[,:])+")
_OPERATOR = re.compile(r"([=+<>/])")
_SYNONYMS = {
    "dne": "does not exist",
    "doesn t exist": "does not exist",
    "doesnt exist": "does not exist",
    "infinite": "infinitely many",
    "infinite solution": "infinitely many solution",
}

_NO_SOLUTION = (
    r"(?:(?:there )?(?:is|are|exist|has|have) )?(?P<none>no|none)(?P<kind> real)?"
    r"(?: (?:such |possible |valid )?(?:solution|root|value|answer))?(?: for \w)?(?: exist)?"
    r"|(?:it |equation |system |this )?(?:does not|doe not|cannot) have (?:any )?(?P<kind_too>real )?solution"
)


def words_of(text: str) -> str:
    """Text as it is compared: lower case, no punctuation, no article, no plural s."""
    words = _PUNCTUATION.sub(" ", _OPERATOR.sub(r" \1 ", _THOUSANDS.sub("", text.lower()))).split()
    plain = " ".join(units.singular(word) for word in words if word not in ("a", "an", "the"))
    if "no" in plain and (found := re.fullmatch(_NO_SOLUTION, plain)) is not None and plain not in ("no", "no real"):
        return "no real solution" if found["kind"] or found["kind_too"] else "no solution"
    return _SYNONYMS.get(plain, plain)


EMPTY_WORDS = frozenset(("empty set", "no solution", "no real solution"))
"""Words that say that a set is empty."""
