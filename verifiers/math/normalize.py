"""One alphabet for answers: Unicode to LaTeX, thousands separators, dollar delimiters, spelled numbers. No step here
changes a value."""

from __future__ import annotations

import re
import unicodedata

from r1zero.verifiers.math.vocabulary import GREEK, NUMBER_WORDS

_GREEK_LETTERS = dict(
    zip(
        "αβγδεζηθικλμνξοπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ",
        (GREEK[:24] + [g for g in GREEK if g[0].isupper()]),
        strict=True,
    )
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ", "0123456789+-ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")
_VULGAR = {c: unicodedata.normalize("NFKC", c).split("⁄") for c in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"}
_UNICODE = str.maketrans(
    {
        **{letter: f"\\{name} " for letter, name in _GREEK_LETTERS.items()},
        **{c: rf"\frac{{{n}}}{{{d}}}" for c, (n, d) in _VULGAR.items()},
        **dict.fromkeys("−–—‐‑‒﹣－", "-"),
        **dict.fromkeys("∣｜", "|"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f", ""),
        **dict.fromkeys("\u00a0\u2009\u200a\u202f\u2002\u2003\u2005\u2006\u2008\u3000\u205f", " "),
        **dict.fromkeys("⋅·∙•", r"\cdot "),
        **dict.fromkeys("′ʹ’‘´", "'"),
        **dict.fromkeys("“”", '"'),
        "×": r"\times ",
        "✕": r"\times ",
        "÷": r"\div ",
        "⁄": "/",
        "∕": "/",
        "√": r"\sqrt ",
        "∛": r"\cbrt ",
        "∜": r"\qdrt ",
        "∞": r"\infty ",
        "±": r"\pm ",
        "∓": r"\mp ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∖": r"\setminus ",
        "∈": r"\in ",
        "∅": r"\emptyset ",
        "Ø": r"\emptyset ",
        "≤": r"\le ",
        "⩽": r"\le ",
        "≥": r"\ge ",
        "⩾": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "≃": r"\approx ",
        "°": r"^\circ ",
        "º": r"^\circ ",
        "ℝ": r"\mathbb{R}",
        "ℤ": r"\mathbb{Z}",
        "ℕ": r"\mathbb{N}",
        "ℚ": r"\mathbb{Q}",
        "ℂ": r"\mathbb{C}",
        "⌊": r"\lfloor ",
        "⌋": r"\rfloor ",
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "⟨": r"\langle ",
        "⟩": r"\rangle ",
        "∠": r"\angle ",
        "…": r"\ldots ",
        "∨": r"\lor ",
        "∧": r"\land ",
        "ı": "i",
        "，": ",",
        "；": ";",
        "％": "%",
        "。": ".",
    }
)
_SUPER_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ]+")
_SUB_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+")
_THIN_THOUSANDS = re.compile(
    r"(?<![\d.,])\d{1,3}(?:(?:,\s?\\[!,]\s?|\{,\}\s?(?:\\!)?|\\[,:; ]|~| |\\thinspace\s?)\d{3})+(?![\d])"
)
_COMMA_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_STYLE = re.compile(r"^(?:\\(?:displaystyle|textstyle|[lL]arge|LARGE)(?![A-Za-z])\s*)+")
_HALF_DAY = re.compile(r"\b([apAP])\.\s?[mM]\b\.?")
_NOT_DIGITS = re.compile(r"\D+")
_TIMES = re.compile(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))")
_MARKUP = re.compile(r"^\*\*|\*\*$|`")
_GOES_ON = re.compile(r"\.\d+\.\.\.$")
_TAG = re.compile(r"</?[a-z]{1,6}>")


def has_comma_thousands(text: str) -> bool:
    """True for a text such as `120,000`, which may also be a list of two."""
    return "," in text and not _bracketed(text) and _COMMA_THOUSANDS.search(text) is not None


def _bracketed(text: str) -> bool:
    return "(" in text or "[" in text or "\\{" in text


def normalise(text: str, thousands: bool = True) -> str:
    """One alphabet: ASCII and LaTeX; numbers without thousands separators; no dollar delimiters.

    thousands: read `120,000` outside of brackets as one number. Never changes a value: `1\\,000` is 1000.
    """
    if not text.isascii():
        text = _SUPER_RUN.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
        text = _SUB_RUN.sub(lambda m: "_{" + m.group().translate(_SUBSCRIPTS) + "}", text)
        text = unicodedata.normalize("NFKC", text.translate(_UNICODE))
    text = text.strip()
    if text.startswith("\\"):
        text = _STYLE.sub("", text)
    if "." in text:
        text = _HALF_DAY.sub(r"\1m", text)
    if "**" in text or "`" in text or "</" in text:
        text = _TAG.sub(" ", _MARKUP.sub("", text))
    if "10" in text:
        text = _TIMES.sub(r"\\times ", text)
    if "," in text or " " in text or "~" in text or "\\" in text:
        text = _THIN_THOUSANDS.sub(lambda m: _NOT_DIGITS.sub("", m.group()), text)
        if thousands and "," in text and not _bracketed(text):
            text = _COMMA_THOUSANDS.sub(lambda m: m.group().replace(",", ""), text)
    if text[:1] in "\"'" and len(text) > 2 and text[-1] == text[0]:
        text = text[1:-1]
    if text[:1].isalpha() or text.startswith("\\text{"):
        text = _without_sign_word(_IDLE_LEAD.sub(r"\1", text))
        text = spelled_number(text)
    if text.endswith(")") or text.endswith(")}"):
        text = _without_gloss(text)
    if text.startswith("]") or text.endswith("["):  # ]0,1[ is the open interval
        text = _OUTWARD.sub(lambda m: f"{'(' if m[1] == ']' else '['}{m[2]}{')' if m[3] == '[' else ']'}", text)
    if "$" in text:
        bare = re.sub(r"\\\$", "", text)
        # An odd one before a digit is money; all others are delimiters.
        mark = r"\\$\1" if bare.count("$") % 2 and re.search(r"\$\s*[\d.]", bare) else r" \1"
        text = re.sub(r"(?<!\\)\$(\s*[\d.]|)", lambda m: m.expand(mark) if m.group(1) else " ", text)
    return _trim(text)


_IDLE_LEAD = re.compile(
    r"^((?:\\text\{)?)\s*(?:there (?:are|is|were)\s+)?(?:(?:exactly|precisely|simply|a total of)\s+)?(?=\d|\}?\s*\d)",
    re.IGNORECASE,
)
"""Words before a number that change nothing: a total of 5 apples."""
_SIGN_WORD = re.compile(r"(?:\\text\{)?\s*(?:minus|negative)\s+(?!minus|negative)(.*)", re.IGNORECASE | re.DOTALL)


def _without_sign_word(text: str) -> str:
    """`minus five` and `\\text{negative } 5` as -5; a text that is no number behind its sign is returned as it is."""
    found = _SIGN_WORD.fullmatch(text)
    if found is None:
        return text
    rest = found[1].strip()
    if text.startswith("\\text{"):
        head, closing, tail = rest.partition("}")
        rest = f"{head.strip()} {tail.strip()}".strip() if closing else rest
    rest = spelled_number(rest)
    return f"-{rest}" if re.match(r"\d|\\[dt]?frac|\\sqrt", rest) else text


_NUMBER_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_SPELLED = re.compile(r"(?:\\text\{)?\s*([A-Za-z][A-Za-z \-]*)\.?\s*(?:\})?")


def spelled_number(text: str) -> str:
    """`twenty-seven dollars` as `27 dollars`; a text that starts with no number word is returned as it is."""
    found = _SPELLED.fullmatch(text)
    if found is None:
        return text
    words = re.split(r"[\s\-]+", found[1].strip().lower())
    total, current, used = 0, 0, 0
    for word in words:
        if word in NUMBER_WORDS:
            current += NUMBER_WORDS[word]
        elif word == "hundred" and used:
            current *= 100
        elif word in _NUMBER_SCALES and used:
            total, current = total + current * _NUMBER_SCALES[word], 0
        elif not (word == "and" and used and len(words) > used + 1 and words[used + 1] in NUMBER_WORDS):
            break
        used += 1
    if not used:
        return text
    return " ".join([str(total + current), *words[used:]])


_OUTWARD = re.compile(r"([\[\]])([^\[\]]*,[^\[\]]*)([\[\]])")
_GLOSS = re.compile(r"(.*\d)\s*(?:\s|\\text\{\s*)\(([A-Za-z][A-Za-z \-]+)\)\}?", re.DOTALL)


def _without_gloss(text: str) -> str:
    """`42 (forty-two)` without its words."""
    found = _GLOSS.fullmatch(text)
    return found[1] if found is not None and spelled_number(found[2]).isdigit() else text


def _trim(text: str) -> str:
    """Without the sentence's punctuation, spacing commands and delimiters around it."""
    previous = None
    while previous != text:
        previous = text
        text = text.strip(" \n\t\r")
        if text.startswith(("\\(", "\\[")):
            text = text[2:]
        if text.endswith(("\\)", "\\]")):
            text = text[:-2]
        if text.endswith((".", ",", ";", ":", "!", "?", "\\")) and not text.endswith("\\!"):
            if _GOES_ON.search(text):
                break
            stripped = text[:-1]
            # `5!` is a factorial, `\;` spacing, `p.m.` a word, `\ldots` has no dot.
            if text[-1] == "!" and (stripped[-1:].isalnum() or stripped[-1:] in (")", "}")):
                break
            if text[-1] == "\\" or not stripped.endswith("\\"):
                text = stripped
            else:
                text = stripped[:-1]
    return text
