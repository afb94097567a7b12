"""Reading tokens one after the other: what both halves of the grammar share."""

from __future__ import annotations

from abc import ABC, abstractmethod

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.nodes import Node, OverLimitError, UnreadableError
from r1zero.verifiers.math.tokens import Token

END = Token("end", "")


class Cursor(ABC):
    """A place in the tokens. `depth` bounds the recursion of the grammar, whatever form the nesting takes."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.colons = True

    # Reading tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else END

    def is_op(self, *values: str) -> bool:
        token = self.token
        return token.kind == "op" and token.value in values

    def take(self, value: str) -> bool:
        if self.token.kind == "op" and self.token.value == value:
            self.at += 1
            return True
        return False

    def expect(self, *values: str) -> str:
        if not self.is_op(*values):
            raise UnreadableError(f"expected {' or '.join(values)} before {self.token.value or 'the end'!r}")
        self.at += 1
        return self.tokens[self.at - 1].value

    def enter(self) -> None:
        self.depth += 1
        if self.depth > cost.MAX_DEPTH:
            raise OverLimitError(f"nested more than {cost.MAX_DEPTH} deep")

    def tokens_of_argument(self) -> list[Token]:
        """The tokens of the next brace group, or the next token alone."""
        if not self.take("{"):
            if self.token is END:
                raise UnreadableError("an argument is missing")
            self.at += 1
            return [self.tokens[self.at - 1]]
        depth, start = 1, self.at
        while depth:
            if self.token is END:
                raise UnreadableError("a brace is left open")
            if self.token.kind == "op":
                depth += {"{": 1, "}": -1}.get(self.token.value, 0)
            self.at += 1
        return self.tokens[start : self.at - 1]

    # The parts of the grammar call each other: commands.py, values.py and grammar.py.

    @abstractmethod
    def answer(self) -> Node: ...

    @abstractmethod
    def listed(self, closers: tuple[str, ...]) -> Node: ...

    @abstractmethod
    def relation(self) -> Node: ...

    @abstractmethod
    def sum(self) -> Node: ...

    @abstractmethod
    def product(self) -> Node: ...

    @abstractmethod
    def sign(self) -> str | None: ...

    @abstractmethod
    def starts_factor(self, token: Token) -> bool: ...

    @abstractmethod
    def factor(self) -> Node: ...

    @abstractmethod
    def primary(self) -> Node: ...

    @abstractmethod
    def exponent(self) -> Node: ...

    @abstractmethod
    def argument(self, single_digit: bool = False) -> Node: ...
