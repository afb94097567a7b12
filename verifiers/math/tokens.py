"""Text to tokens: LaTeX, plain and Unicode notation brought to one alphabet. No step here changes a value.

`normalise` works on the string (Unicode, thousands separators, dollar delimiters); `tokenise` drops spacing and
wrappers, tells functions, units, words and products of letters apart, and never looks at more than one answer.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from r1zero.verifiers.math.nodes import Unreadable
from r1zero.verifiers.math.units import is_unit_word


class Token(NamedTuple):
    kind: str
    """num, sym, const, func, text, op, cmd, sep, and, or."""
    value: str
    spaced: bool = False
    """True when blank space stood before it."""


GREEK = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lambda", "mu", "nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "varepsilon", "vartheta", "varphi", "varrho", "varsigma", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"]
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
        **dict.fromkeys("−–—‐‑﹣－", "-"),
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
    r"(?<![\d.,])\d{1,3}(?:(?:,\s?\\!\s?|\{,\}\s?(?:\\!)?|\\[,:; ]|~| |\\thinspace\s?)\d{3})+(?![\d])"
)
_COMMA_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_HALF_DAY = re.compile(r"\b([apAP])\.\s?[mM]\b\.?")
_NOT_DIGITS = re.compile(r"\D+")
_MARKUP = re.compile(r"\*\*(?=\S)|(?<=\S)\*\*(?!\s*[\d({\\])|`|</?[a-z]{1,6}>")


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
    if "." in text:
        text = _HALF_DAY.sub(r"\1m", text)
    if "**" in text or "`" in text or "</" in text:
        text = _MARKUP.sub("", text)
    if "," in text or " " in text or "~" in text or "\\" in text:
        text = _THIN_THOUSANDS.sub(lambda m: _NOT_DIGITS.sub("", m.group()), text)
        if thousands and "," in text and not _bracketed(text):
            text = _COMMA_THOUSANDS.sub(lambda m: m.group().replace(",", ""), text)
    if "$" in text:
        bare = re.sub(r"\\\$", "", text)
        # An odd one before a digit is money; all others are delimiters.
        mark = r"\\$\1" if bare.count("$") % 2 and re.search(r"\$\s*[\d.]", bare) else r" \1"
        text = re.sub(r"(?<!\\)\$(\s*[\d.]|)", lambda m: m.expand(mark) if m.group(1) else " ", text)
    return _trim(text)


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
            stripped = text[:-1]
            # `5!` is a factorial, `\;` spacing, `p.m.` a word, `\ldots` has no dot.
            if text[-1] == "!" and (stripped[-1:].isalnum() or stripped[-1:] in (")", "}")):
                break
            if text[-1] == "\\" or not stripped.endswith("\\"):
                text = stripped
            else:
                text = stripped[:-1]
    return text


FUNCTIONS = {
    name: name
    for name in ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth", "exp", "ln", "arcsin", "arccos", "arctan", "arccot", "max", "min", "gcd", "lcm"]
} | {
    "log": "ln",
    "lg": "lg",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "arcsinh": "arcsinh",
    "arccosh": "arccosh",
    "arctanh": "arctanh",
    "abs": "abs",
    "floor": "floor",
    "ceil": "ceil",
    "cbrt": "cbrt",
    "Re": "re",
    "Im": "im",
    "det": "det",
    "arg": "arg",
    "sgn": "sign",
    "sign": "sign",
    "deg": "deg",
    "dim": "dim",
    "Arctan": "arctan",
    "Arcsin": "arcsin",
}
CONSTANTS = {
    "infty": "inf",
    "infinity": "inf",
    "Infinity": "inf",
    "inf": "inf",
    "pi": "pi",
    "Pi": "pi",
    "emptyset": "emptyset",
    "varnothing": "emptyset",
    "ldots": "dots",
    "dots": "dots",
    "cdots": "dots",
    "dotsc": "dots",
    "dotsb": "dots",
    "pm": "pm",
    "mp": "mp",
}
_WORD_CONSTANTS = {"pi", "infinity", "inf", "infty", "emptyset"}
_OPERATORS = {
    "cdot": "*",
    "times": "*",
    "ast": "*",
    "bullet": "*",
    "div": "/",
    "le": "<=",
    "leq": "<=",
    "leqslant": "<=",
    "leqq": "<=",
    "ge": ">=",
    "geq": ">=",
    "geqslant": ">=",
    "geqq": ">=",
    "lt": "<",
    "gt": ">",
    "ne": "!=",
    "neq": "!=",
    "approx": "~",
    "simeq": "~",
    "equiv": "=",
    "in": "in",
    "cup": "union",
    "bigcup": "union",
    "cap": "inter",
    "setminus": "minus",
    "backslash": "minus",
    "mid": "mid",
    "vert": "|",
    "lvert": "|",
    "rvert": "|",
    "lfloor": "lfloor",
    "rfloor": "rfloor",
    "lceil": "lceil",
    "rceil": "rceil",
    "lbrace": "\\{",
    "rbrace": "\\}",
    "lbrack": "[",
    "rbrack": "]",
    "lparen": "(",
    "rparen": ")",
    "langle": "<<",
    "rangle": ">>",
    "colon": ":",
    "circ": "deg",
    "degree": "deg",
    "prime": "'",
    "land": "and",
    "wedge": "and",
    "bmod": "mod",
    "mod": "mod",
    "to": "to",
    "over": "over",
    "choose": "choose",
}
_SKIPPED = set(
    ["left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr", "displaystyle", "textstyle", "scriptstyle", "limits", "nolimits", "thinspace", "medspace", "thickspace", "negthinspace", "nonumber", "notag", "mathstrut", "strut", "bf", "rm", "it", "sf", "tt", "boldmath", "mathrm", "mathbf", "normalsize", "large", "Large", "small", "hline", "null", "centering", "bigm", "Bigm"]
)
_DROPPED_WITH_ARGUMENT = {"phantom", "hphantom", "vphantom", "hspace", "vspace", "label", "tag", "mspace", "kern"}
_TEXT_COMMANDS = {"text", "textbf", "textit", "textrm", "textnormal", "mbox", "hbox", "textsf", "texttt", "emph"}
_INLINE_COMMANDS = {
    *("mathrm", "mathbf", "mathit", "mathsf", "mathtt", "operatorname", "boldsymbol", "bm", "rm", "bf", "underline"),
    *("mathcal", "mathscr", "boxed", "fbox", "uline", "textcolor", "displaylimits", "ensuremath", "mathopen"),
}
_BLACKBOARD = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
_WORD_NUMBERS = {
    word: str(value)
    for value, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]
    )
}
# Short words that are never products of letters.
_WORDS = set(
    ["yes", "no", "not", "the", "any", "all", "for", "may", "red", "per", "pct", "is", "an", "if", "are", "to", "by", "of", "does", "dne", "none", "only", "nan", "ways", "way", "am", "pm", "both", "but", "true", "false", "even", "odd", "undefined", "else", "day", "days", "men", "man", "cats", "dogs"]
)
_PRODUCT_CALLS = {"sqrt", "cbrt", "frac", "binom"}
_PATTERN = re.compile(
    r"(?P<text>[0-9A-Z.]*(?:[0-9][A-Z]|[A-Z][0-9]|[A-F]{2})[0-9A-Z]*(?=_\s*\{?\s*(?:1[1-9]|2\d|3[0-6])(?!\d)))"
    r"|(?P<num>\d+(?:\.\d+)?[eE][+-]?\d+(?![\w^])|\d+(?:\.\d*)?|\.\d+)"
    r"|\\(?P<cmd>[A-Za-z]+)\*?"
    r"|\\(?P<esc>[^A-Za-z])"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<op><=|>=|!=|==|\*\*|<<|>>|\.\.\.|[-+*/^_!'%|,;:()\[\]{}<>=&€£¥₹$~\"#@.?])"
    r"|(?P<space>\s+)"
)


def tokenise(text: str, names: frozenset[str] = frozenset()) -> list[Token]:
    """The tokens of a normalised answer. Raises Unreadable for a character outside the alphabet.

    names: the gold's one-letter names; a run of letters made of them is a product, not a word.
    """
    tokens: list[Token] = []
    at, spaced = 0, False
    add = tokens.append
    while at < len(text):
        found = _PATTERN.match(text, at)
        if found is None:
            raise Unreadable(f"no maths: {text[at : at + 10]!r}")
        at, kind, value = found.end(), found.lastgroup, found.group(found.lastgroup or 0)
        if kind == "space":
            spaced = True
            continue
        if kind in ("num", "text"):
            add(Token(kind, value, spaced))
        elif kind == "op":
            if value == "~":
                spaced = True
                continue
            if value == "...":
                add(Token("const", "dots", spaced))
            elif value in ",;":
                add(Token("sep", value, spaced))
            elif value in "€£¥₹":
                add(_currency(value, spaced, tokens))
            elif value == "$" or (value == "&" and "\\begin" not in text):
                continue
            else:
                add(Token("op", {"**": "^", "==": "=", '"': "''"}.get(value, value), spaced))
        elif kind == "word":
            _word(value, spaced, tokens, names)
        elif kind == "esc":
            if value == "\\":
                add(Token("op", "row", spaced))
            elif value in "{}":
                add(Token("op", "\\" + value, spaced))
            elif value in "%":
                add(Token("op", "%", spaced))
            elif value == "$":
                add(_currency(value, spaced, tokens))
            elif value == "|":
                add(Token("op", "|", spaced))
            elif value == "_":
                add(Token("op", "_", spaced))
            elif value in ",:;! ()[]&>\n":
                spaced = True
                continue
            else:
                raise Unreadable(f"no maths: \\{value}")
        else:
            at = _command(text, at, value, spaced, tokens, names)
            if value in _SKIPPED:
                continue
        spaced = False
    return tokens


def _currency(sign: str, spaced: bool, tokens: list[Token]) -> Token:
    """A currency sign before its amount, or after it (then a unit like any other)."""
    if tokens and _ends_value(tokens[-1]):
        return Token("text", sign, spaced)
    return Token("cmd", "currency " + sign, spaced)


def _command(text: str, at: int, name: str, spaced: bool, tokens: list[Token], names: frozenset[str]) -> int:
    """Emit the tokens of the LaTeX command `name`, whose arguments start at `at`; returns where reading goes on."""
    add = tokens.append
    if name in _OPERATORS:
        value = _OPERATORS[name]
        add(Token("and" if value == "and" else "op", value, spaced))
    elif name in ("lor", "vee"):
        add(Token("or", "or", spaced))
    elif name in ("quad", "qquad"):
        add(Token("sep", "quad", spaced))
    elif name == "not" and (found := re.compile(r"\s*(=|\\in\b|<|>)").match(text, at)) and found[1] == "=":
        add(Token("op", "!=", spaced))
        return found.end()
    elif name in CONSTANTS:
        add(Token("const", CONSTANTS[name], spaced))
    elif name in FUNCTIONS:
        add(Token("func", FUNCTIONS[name], spaced))
    elif name in GREEK:
        add(Token("sym", {"varepsilon": "epsilon", "varphi": "phi", "vartheta": "theta"}.get(name, name), spaced))
    elif name in _TEXT_COMMANDS or name in _INLINE_COMMANDS:
        content, end = _argument(text, at)
        if content is None:
            if name in _SKIPPED:
                return at
            raise Unreadable(f"\\{name} without its argument")
        if name == "textcolor":
            content, end = _argument(text, end)
        _text(content or "", name in _TEXT_COMMANDS, spaced, tokens, names)
        return end
    elif name in _SKIPPED:
        # `\left.` and `\right.` stand for no bracket at all.
        if name in ("left", "right") and text[at : at + 1] == ".":
            return at + 1
    elif name in _DROPPED_WITH_ARGUMENT:
        content, end = _argument(text, at)
        return end
    elif name == "mathbb":
        content, end = _argument(text, at)
        if content not in _BLACKBOARD:
            raise Unreadable(f"\\mathbb{{{content}}}")
        add(Token("const", _BLACKBOARD[content], spaced))
        return end
    elif name in ("begin", "end"):
        content, end = _argument(text, at)
        add(Token("cmd", f"{name} {(content or '').rstrip('*')}", spaced))
        return end
    elif name in ("ell", "hbar", "odot", "mho", "Re", "Im", "nabla", "partial", "triangle", "angle", "top", "perp"):
        add(Token("sym" if name not in ("triangle", "angle") else "cmd", name, spaced))
    else:
        add(Token("cmd", {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac"}.get(name, name), spaced))
    return at


def _argument(text: str, at: int) -> tuple[str | None, int]:
    """The raw content of the brace group at `at`, and where it ends; None when there is none."""
    while at < len(text) and text[at].isspace():
        at += 1
    if text[at : at + 1] != "{":
        return None, at
    depth, pos = 1, at + 1
    while pos < len(text):
        c = text[pos]
        if c == "\\":
            pos += 1
        elif c == "{":
            depth += 1
        elif c == "}":
            depth -= 1
            if not depth:
                return text[at + 1 : pos], pos + 1
        pos += 1
    raise Unreadable("a brace is left open")


_MATHS_IN_TEXT = re.compile(r"[-+*/=^_<>\\$\d(){}\[\]|]")
_LETTERS = re.compile(r"[A-Za-z]+")


def _text(content: str, wordy: bool, spaced: bool, tokens: list[Token], names: frozenset[str]) -> None:
    """A \\text{} or \\mathrm{} group: connectors, numbers, single letters and maths are what they are, else words."""
    stripped = re.sub(r"(?<!\\)\$|\\[ ,;:!()]|~", " ", content).strip()
    plain = re.sub(r"\s+", " ", stripped.strip(" .,;:")).lower()
    if not plain:
        if "," in stripped or ";" in stripped:
            tokens.append(Token("sep", ",", spaced))
        return
    if plain in ("and", "or"):
        if stripped[0] in ",;":
            tokens.append(Token("sep", ",", spaced))
        tokens.append(Token(plain, plain, spaced))
    elif plain in _WORD_NUMBERS:
        tokens.append(Token("num", _WORD_NUMBERS[plain], spaced))
    elif stripped in FUNCTIONS and not (wordy and is_unit_word(stripped)):
        tokens.append(Token("func", FUNCTIONS[stripped], spaced))
    elif plain in _WORD_CONSTANTS:
        tokens.append(Token("const", CONSTANTS[plain], spaced))
    elif (
        _LETTERS.fullmatch(stripped)
        and (len(stripped) == 1 or set(stripped) <= names)
        and not (wordy and len(stripped) > 1)
    ):
        after_value = (
            bool(tokens)
            and _is_unit_letter(stripped, names)
            and (
                _ends_value(tokens[-1])
                or (tokens[-1].value in ("/", "*") and len(tokens) > 1 and tokens[-2].kind == "text")
            )
        )
        tokens += [Token("text", stripped, True)] if after_value else [Token("sym", c, spaced) for c in stripped]
    elif re.search(r"[\d\\=^(\[]|(?:^|\s)(?:and|or)(?:\s|$)|,", stripped) and not _is_unit_text(stripped):
        inner = tokenise(stripped, names)
        if inner:
            tokens.append(inner[0]._replace(spaced=spaced))
            tokens += inner[1:]
    else:
        tokens.append(Token("text", re.sub(r"\s+", " ", stripped), spaced))


def _is_unit_letter(letter: str, names: frozenset[str]) -> bool:
    """True when an upright letter after a value is a unit (`5\\text{ m}`), not a name the gold knows."""
    return is_unit_word(letter) and letter not in names and letter not in "ie"


def _is_unit_text(text: str) -> bool:
    words = re.sub(r"\\[a-zA-Z]+|\^\s*\{?-?\d\}?|[/.*\s]+|\\[ ,]", " ", text).split()
    return bool(words) and all(is_unit_word(word) for word in words)


def _ends_value(token: Token) -> bool:
    return token.kind in ("num", "sym", "const", "text") or token.value in (")", "}", "]", "!", "%", "deg", "|", "'")


def _word(word: str, spaced: bool, tokens: list[Token], names: frozenset[str]) -> None:
    """A run of plain letters: a function, a constant, a connector, a unit, a word, or a product of letters."""
    add = tokens.append
    lower = word.lower()
    if len(word) == 1:
        add(Token("sym", word, spaced))
    elif lower in ("and", "or"):
        add(Token(lower, lower, spaced))
    elif word in FUNCTIONS and word not in ("arg", "deg", "dim", "det"):
        add(Token("func", FUNCTIONS[word], spaced))
    elif lower in _WORD_CONSTANTS:
        add(Token("const", CONSTANTS[lower], spaced))
    elif word in _PRODUCT_CALLS:
        add(Token("cmd", word, spaced))
    elif word in GREEK and len(word) > 2:
        add(Token("sym", word, spaced))
    elif set(word) <= names:
        tokens += [Token("sym", c, spaced and not k) for k, c in enumerate(word)]
    elif word == "np" or word == "math":
        add(Token("cmd", "module", spaced))
    elif lower in _WORD_NUMBERS and len(word) > 2:
        add(Token("num", _WORD_NUMBERS[lower], spaced))
    elif (tokens and _ends_value(tokens[-1]) and is_unit_word(word)) or lower in _WORDS or _looks_like_a_word(word):
        add(Token("text", word, spaced))
    else:
        # Letters side by side: a product, or a function run into a name (`xsin`), which nobody should guess at.
        tokens += [Token("sym", c, spaced and not k) for k, c in enumerate(word)]


def _looks_like_a_word(word: str) -> bool:
    return len(word) >= 4 and not word.isupper() and any(c in "aeiouyAEIOUY" for c in word)
