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
_PUNCTUATION = re.compile(r"[.,;:!?\"'()\[\]{}$*_`]+")
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
    words = _PUNCTUATION.sub(" ", _OPERATOR.sub(r" \1 ", text.lower())).split()
    plain = " ".join(units.singular(word) for word in words if word not in ("a", "an", "the"))
    return _SYNONYMS.get(plain, plain)
