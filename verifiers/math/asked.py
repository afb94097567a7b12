"""The unit that the question asks for, or that a space sets apart: `5 m` for gold 5, `150 minutes` for gold 2.5."""

from __future__ import annotations

import re

from r1zero.verifiers.math import units
from r1zero.verifiers.math.nodes import Add, Mul, Node, Num, Pow, Quantity, Sym
from r1zero.verifiers.math.scalars import same_scalar, with_unit_letters
from r1zero.verifiers.math.symbolic import Result

_UNIT = r"(?:mm|cm|km|m|ms|s|min|h|mg|kg|g|N|J|kJ|W|kW|V|K|L|mL|Hz|Pa)"
_SPACED = (
    rf"[-+]?(?:\d[\d.,]*|\\[dt]?frac\{{\d+\}}\{{\d+\}})\s+{_UNIT}(?:\^\{{?[23]\}}?)?"
    rf"(?:\s*/\s*{_UNIT}(?:\^\{{?[23]\}}?)?)?"
)
_ASKED = (
    r"(?i)\b(?:how many|(?:answer|express\w*|length|distance|height|time|speed|area|volume|mass|weight|width|radius|"
    r"perimeter)\b[^.?!\n]{0,60}?\bin)\s+((?:square |cubic )?[a-z]{1,14})\b"
)
_MAX_QUESTION_CHARS = 4000


def in_asked_unit(gold: Node, pred: Node, text: str, question: str) -> Result | None:
    """The comparison by a unit that only the prediction names; None where it names none, or none was asked for.

    The unit asked for is the only one that the question has after "how many" or "the length in". Without a question
    the letters of `5 m` are a unit by their space (nobody spaces a product so) and those of `5m` are names.
    """
    if not isinstance(gold, (Num, Mul, Pow)) or not isinstance(pred, (Quantity, Add, Mul)) or _is_named(gold):
        return None
    spaced = re.fullmatch(_SPACED, text.strip()) is not None
    asked = _asked(question) if question else None
    answer = with_unit_letters(pred) if asked is not None or spaced else pred
    if not isinstance(answer, Quantity) and not (isinstance(answer, Add) and isinstance(answer.terms[0], Quantity)):
        return None
    if asked is not None:
        first = answer if isinstance(answer, Quantity) else answer.terms[0]
        told, wanted = units.read(first.unit if isinstance(first, Quantity) else ""), units.read(asked)
        if told is not None and wanted is not None:
            return same_scalar(Quantity(gold, asked), answer) if told[0] == wanted[0] else None
    return same_scalar(gold, answer) if spaced else None


def _asked(question: str) -> str | None:
    found = {units.singular(m[1].lower()) for m in re.finditer(_ASKED, question[-_MAX_QUESTION_CHARS:])}
    named = [word for word in found if units.is_unit_word(word.split()[-1])]
    return named[0] if len(named) == 1 else None


def _is_named(node: Node) -> bool:
    if isinstance(node, Sym):
        return True
    parts = node.factors if isinstance(node, Mul) else (node.base, node.exponent) if isinstance(node, Pow) else ()
    return any(_is_named(part) for part in parts)
