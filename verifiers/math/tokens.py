"""Answer to tokens: spacing and wrappers dropped; functions, units, words and products of letters told apart."""

from __future__ import annotations

import re
from typing import NamedTuple

from r1zero.verifiers.math.nodes import UnreadableError
from r1zero.verifiers.math.units import is_unit_word
from r1zero.verifiers.math.vocabulary import (
    BLACKBOARD,
    COMMANDS,
    CONSTANTS,
    DROPPED_WITH_ARGUMENT,
    FUNCTIONS,
    GREEK,
    INLINE_COMMANDS,
    NUMBER_WORDS,
    NUMERAL,
    OPERATORS,
    RUN_ON,
    SKIPPED,
    TEXT_COMMANDS,
    WORD_CONSTANTS,
    WORDS,
)


class Token(NamedTuple):
    kind: str
    """num, sym, const, func, text, op, cmd, sep, and, or."""
    value: str
    spaced: bool = False
    """True when blank space stood before it."""


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


def tokenise(text: str, names: frozenset[str] = frozenset(), wordy: bool = False) -> list[Token]:
    """The tokens of a normalised answer. Raises UnreadableError for a character outside the alphabet.

    names: the gold's one-letter names; a run of letters made of them is a product, not a word. wordy: the text comes
    from a \\text{} group, where a run of letters is a word.
    """
    tokens: list[Token] = []
    at, spaced = 0, False
    add = tokens.append
    while at < len(text):
        found = _PATTERN.match(text, at)
        if found is None:
            raise UnreadableError(f"no maths: {text[at : at + 10]!r}")
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
            _word(value, spaced, tokens, names, wordy)
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
                raise UnreadableError(f"no maths: \\{value}")
        else:
            at = _command(text, at, value, spaced, tokens, names)
            if value in SKIPPED:
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
    if name in OPERATORS:
        value = OPERATORS[name]
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
    elif name in TEXT_COMMANDS or name in INLINE_COMMANDS:
        content, end = _argument(text, at)
        if content is None:
            if name in SKIPPED:
                return at
            raise UnreadableError(f"\\{name} without its argument")
        if name == "textcolor":
            content, end = _argument(text, end)
        if NUMERAL.fullmatch((content or "").strip()) and text[end:].lstrip().startswith("_"):
            add(Token("text", (content or "").strip(), spaced))  # \\text{3A}_{12}
            return end
        if name in ("mathbf", "boldsymbol", "bm", "bf") and (content or "").strip() in ("i", "j", "k"):
            add(Token("sym", (content or "").strip(), spaced))  # a unit vector
            return end
        _text(content or "", name in TEXT_COMMANDS, spaced, tokens, names)
        return end
    elif name in SKIPPED:
        # `\left.` and `\right.` stand for no bracket at all.
        if name in ("left", "right") and text[at : at + 1] == ".":
            return at + 1
    elif name in DROPPED_WITH_ARGUMENT:
        content, end = _argument(text, at)
        return end
    elif name == "mathbb":
        content, end = _argument(text, at)
        if content not in BLACKBOARD:
            raise UnreadableError(f"\\mathbb{{{content}}}")
        add(Token("const", BLACKBOARD[content], spaced))
        return end
    elif name in ("begin", "end"):
        content, end = _argument(text, at)
        add(Token("cmd", f"{name} {(content or '').rstrip('*')}", spaced))
        return end
    elif name in ("imath", "jmath"):
        add(Token("sym", name[0], spaced))
    elif name in ("ell", "hbar", "odot", "mho", "Re", "Im", "nabla", "partial", "triangle", "angle", "top", "perp"):
        add(Token("sym" if name not in ("triangle", "angle") else "cmd", name, spaced))
    elif name in COMMANDS:
        add(Token("cmd", {"dfrac": "frac", "tfrac": "frac", "cfrac": "frac"}.get(name, name), spaced))
    else:
        run_on = RUN_ON.fullmatch(name)  # \\cotx
        if run_on is None:
            raise UnreadableError(f"unknown command \\{name}")
        _command(text, at, run_on[1], spaced, tokens, names)
        tokens += [Token("sym", c) for c in run_on[2]]
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
    raise UnreadableError("a brace is left open")


_LETTERS = re.compile(r"[A-Za-z]+")


def _text(content: str, wordy: bool, spaced: bool, tokens: list[Token], names: frozenset[str]) -> None:
    """A \\text{} or \\mathrm{} group: connectors, numbers, single letters and maths are what they are, else words."""
    stripped = re.sub(r"(?<!\\)\$|\\[ ,;:!()]|~", " ", content).strip()
    plain = re.sub(r"\s+", " ", stripped.strip(" .,;:")).lower()
    if not plain:
        if "," in stripped or ";" in stripped:
            tokens.append(Token("sep", ",", spaced))
        return
    if plain == "to":
        tokens.append(Token("op", "to", spaced))
    elif plain in ("and", "or"):
        if stripped[0] in ",;":
            tokens.append(Token("sep", ",", spaced))
        tokens.append(Token(plain, plain, spaced))
    elif plain in NUMBER_WORDS:
        tokens.append(Token("num", str(NUMBER_WORDS[plain]), spaced))
    elif stripped in FUNCTIONS and not (wordy and is_unit_word(stripped)):
        tokens.append(Token("func", FUNCTIONS[stripped], spaced))
    elif plain in WORD_CONSTANTS:
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
        inner = tokenise(stripped, names, wordy)
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


def _word(word: str, spaced: bool, tokens: list[Token], names: frozenset[str], wordy: bool = False) -> None:
    """A run of plain letters: a function, a constant, a connector, a unit, a word, or a product of letters."""
    add = tokens.append
    lower = word.lower()
    if len(word) == 1:
        add(Token("sym", word, spaced))
    elif lower in ("and", "or"):
        add(Token(lower, lower, spaced))
    elif lower == "to":
        add(Token("op", "to", spaced))
    elif lower in ("st", "nd", "rd", "th") and tokens and tokens[-1].kind == "num" and not spaced:
        return  # 12th
    elif word in FUNCTIONS and word not in ("arg", "deg", "dim", "det"):
        add(Token("func", FUNCTIONS[word], spaced))
    elif lower in WORD_CONSTANTS:
        add(Token("const", CONSTANTS[lower], spaced))
    elif word in _PRODUCT_CALLS:
        add(Token("cmd", word, spaced))
    elif word in GREEK and len(word) > 2:
        add(Token("sym", word, spaced))
    elif set(word) <= names:
        tokens += [Token("sym", c, spaced and not k) for k, c in enumerate(word)]
    elif word == "np" or word == "math":
        add(Token("cmd", "module", spaced))
    elif lower in NUMBER_WORDS and len(word) > 2:
        add(Token("num", str(NUMBER_WORDS[lower]), spaced))
    elif (
        (tokens and _ends_value(tokens[-1]) and is_unit_word(word))
        or lower in WORDS
        or wordy
        or _looks_like_a_word(word)
    ):
        add(Token("text", word, spaced))
    else:
        # Letters side by side: a product, or a function run into a name (`xsin`), which nobody should guess at.
        tokens += [Token("sym", c, spaced and not k) for k, c in enumerate(word)]


def _looks_like_a_word(word: str) -> bool:
    return len(word) >= 4 and not word.isupper() and any(c in "aeiouyAEIOUY" for c in word)
