"""Notations that the grammar has no rule for, rewritten in ones that it has: combinations and permutations, compound
times and lengths, systems in braces, marks at school. Text to text, before the tokens; a value is never changed.

The patterns are text, and compiled by `re` when first needed: most answers need none, and importing stays quick.
"""

from __future__ import annotations

import re

_ARG = r"(?:\{\s*(\d{1,4}|[a-z])\s*\}|(\d{1,4}|[a-z]))"
_UPRIGHT = r"(?:\\(?:text|mathrm|mathbf)\s*\{\s*([CP])\s*\}|([CP]))"
# {}_{10}C_3, _nC_r, ^{10}C_3, {}^nC_r
_SIDES = rf"(?:\{{\s*\}}\s*)?[_^]\s*{_ARG}\s*{_UPRIGHT}\s*_\s*{_ARG}"
_CALLED = r"(?<![A-Za-z\\])([CP])\s*\(\s*(\d{1,4}|[a-z])\s*,\s*(\d{1,4}|[a-z])\s*\)"
_INDEXED = r"(?<![A-Za-z\\])([CPA])_\s*\{?\s*(\d{1,4})\s*\}?\s*\^\s*(?:\{\s*(\d{1,4})\s*\}|(\d))"
_CHOOSE = (
    r"\(?(?<![\w.])(\d{1,4}|[a-z])\s*(?:\\(?:text|mathrm)\s*\{\s*choose\s*\}|(?<!\\)\bchoose\b)\s*"
    r"(\d{1,4}|[a-z])(?![\w.])\)?"
)
_MINUTES = r"(?<=\d)\s*min(?=\s*$|\s+\d)"
_HOURS = r"(?<![\w.])(\d+)\s*h(?:rs?)?\s+(\d+)\s*m(?:ins?)?(?![\w^/])|(?<![\w.])(\d+)h(\d+)m(?:in)?(?![\w^/])"
_FEET = r"(\d+)\s*'\s*(\d+(?:\.\d+)?)\s*(?:''|\")"
_SYSTEM = (
    r"(?s)(?:\\left\s*)?\\(?:\{|lbrace)\s*\\begin\{(array|aligned|matrix|gathered)\}(?:\s*\{[lcr|\s]*\})?(.*?)\\end\{\1\}"
    r"(?:\s*\\right\s*\.)?"
)


def rewrite(text: str) -> str:
    """The text of an answer with these notations in the grammar's own."""
    if "C" in text or "P" in text or "A_" in text:
        text = re.sub(_SIDES, _by_sides, text)
        text = re.sub(_CALLED, lambda m: _combined(m[1], m[2], m[3]) or m[0], text)
        text = re.sub(_INDEXED, _by_index, text)
    if "choose" in text:
        text = re.sub(_CHOOSE, lambda m: _combined("C", m[1], m[2]) or m[0], text)
    if "'" in text and (found := re.fullmatch(_FEET, text.strip())):
        return f"{found[1]} feet {found[2]} inches"
    if "h" in text and "m" in text:
        text = re.sub(_HOURS, lambda m: f"{m[1] or m[3]} hours {m[2] or m[4]} minutes", text)
    if "min" in text:
        text = re.sub(_MINUTES, " minutes", text)
    if "\\begin" in text:
        text = re.sub(_SYSTEM, lambda m: rf"\begin{{cases}}{m[2]}\end{{cases}}", text)
    return text


def _by_sides(found: re.Match[str]) -> str:
    top, kind, bottom = found[1] or found[2], found[3] or found[4], found[5] or found[6]
    return _combined(kind, top, bottom) or found[0]


def _by_index(found: re.Match[str]) -> str:
    """C_{10}^3, as much of the world writes it; C_1^2 is the square of a constant."""
    top, bottom = found[2], found[3] or found[4]
    return (_combined(found[1], top, bottom) if int(top) > 2 else None) or found[0]


def _combined(kind: str, top: str, bottom: str) -> str | None:
    """n over k, or the permutations of k of n; None where that is none (a point C(2, 5))."""
    if top.isdigit() != bottom.isdigit() and not bottom.isdigit():
        return None
    if top.isdigit() and int(bottom) > int(top):
        return None
    if kind == "C":
        return rf"\binom{{{top}}}{{{bottom}}}"
    return rf"\frac{{{top}!}}{{({top}-{bottom})!}}"


_MARK = r"(?i)(?:\\(?:text|mathrm|textbf)\s*\{)?\s*([A-F])\s*\}?\s*(?:\^?\s*\{?\s*([-+])\s*\}?|\s(plus|minus))\s*\}?"


def school_mark(text: str) -> str | None:
    """`B-`, `\\text{B}^-` and `B minus` as words; None for all that is no mark."""
    text = text.strip()
    if len(text) > 30 or text[:1] not in "ABCDEF\\" or text[-1:].isdigit():
        return None
    found = re.fullmatch(_MARK, text)
    if found is None or not found[1].isupper():
        return None
    sign = found[2] or found[3].lower()
    return f"{found[1].lower()} {'minus' if sign in ('-', 'minus') else 'plus'}"
