"""Text to tree: the gate, normalising, tokens, grammar; words where the text is no maths. Nothing is evaluated."""

from __future__ import annotations

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.grammar import Parser
from r1zero.verifiers.math.nodes import (
    Add,
    Colon,
    Degrees,
    Mul,
    Node,
    Percent,
    Pow,
    Sym,
    Text,
    UnreadableError,
    children,
)
from r1zero.verifiers.math.normalize import normalise
from r1zero.verifiers.math.notations import rewrite, school_mark
from r1zero.verifiers.math.tokens import tokenise
from r1zero.verifiers.math.words import NAMED_SETS, plain_text, words_of


def parse(text: str, *, thousands: bool = True, names: frozenset[str] = frozenset()) -> Node:
    """The tree of one answer.

    thousands: read `120,000` as one number; names: one-letter names of the gold, which plain letters then stand for.
    A text that is words and not maths becomes `Text`. Raises UnreadableError, or OverLimitError from the cost gate.
    """
    cost.check_text(text)
    mark = school_mark(text)
    if mark is not None:
        return Text(mark)
    text = rewrite(normalise(text, thousands))
    if not text:
        raise UnreadableError("empty")
    tokens = tokenise(text, names)
    if tokens and all(token.kind == "text" for token in tokens):
        words = words_of(" ".join(token.value for token in tokens))
        return NAMED_SETS.get(words, Text(words))
    parser = Parser(tokens)
    try:
        tree = parser.answer()
        if _has_words_inside(tree):
            raise UnreadableError("words inside an expression")
        return tree
    except UnreadableError:
        if any(token.kind == "text" for token in tokens):
            return Text(words_of(plain_text(text)))
        raise


def _has_words_inside(node: Node) -> bool:
    """True where words take part in arithmetic: a sentence that happens to follow the grammar."""
    parts = children(node)
    if isinstance(node, (Add, Mul, Pow, Degrees, Percent, Colon)) and any(isinstance(part, Text) for part in parts):
        return True
    return any(_has_words_inside(part) for part in parts)


def names_of(node: Node) -> frozenset[str]:
    """The one-letter names in a tree."""
    if isinstance(node, Sym):
        return frozenset((node.name,)) if len(node.name) == 1 else frozenset()
    found: frozenset[str] = frozenset()
    for child in children(node):
        found |= names_of(child)
    return found
