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


def words_of(text: str) -> str:
    """Text as it is compared: lower case, no punctuation, no article, no plural s."""
    words = _PUNCTUATION.sub(" ", _OPERATOR.sub(r" \1 ", _THOUSANDS.sub("", text.lower()))).split()
    plain = " ".join(units.singular(word) for word in words if word not in ("a", "an", "the"))
    return _SYNONYMS.get(plain, plain)
