"""The outer half of the grammar: lists, relations, ratios, sets, sums and products. One parser for both sides.

    answer   := relation (separator relation)*            separators: , ; and or
    relation := ratio (op ratio)*                         = < > <= >= != ~ in
    ratio    := set (":" set)*
    set      := sum (union|inter|minus sum)*
    sum      := [+-±] product ([+-±] product)* [unit]
    product  := factor ([* /] factor | factor)*           side by side multiplies
    factor   := primary (^ exponent | _ index | ! | ' | % | degrees)*       (values.py)

Where notations clash: `2\\frac13` is the mixed number 7/3, `\\frac 59` is 5/9, `x^10` and `\\sqrt12` take the whole
number, `a/bc` is (a/b)c, `sin^{-1}` is the inverse function, `e` and `i` are the constants, and `f(x)` is an
application for the names people use for functions. Both sides are read by the same rule, so a clash costs a match
only where the two answers are written differently.
"""

from __future__ import annotations

import re

from r1zero.verifiers.math import cost, units
from r1zero.verifiers.math.cursor import END
from r1zero.verifiers.math.nodes import (
    MINUS_ONE,
    Add,
    Call,
    Colon,
    Const,
    Degrees,
    Mul,
    Node,
    Num,
    OverLimitError,
    Percent,
    Pow,
    Quantity,
    Relation,
    Seq,
    SetOp,
    Text,
    UnreadableError,
    divide,
    negate,
    number,
    rebuild,
)
from r1zero.verifiers.math.numerals import is_mixed
from r1zero.verifiers.math.tokens import Token
from r1zero.verifiers.math.values import Values

_RELATIONS = {"=", "<", ">", "<=", ">=", "!=", "~", "in"}
_SETS = {"union", "inter", "minus"}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_DEGREE_WORDS = {"degree", "degrees", "deg", "degs"}
_PERCENT_WORDS = {"percent", "pct", "percentage", "per cent", "percents", "percentage points", "percentage point"}
_CONDITION = re.compile(r"(?:,\s*)?(?:for|where|with) (?:all|any|every|each|some)\b")
_CLOCK = re.compile(r"(?:[01]?\d|2[0-4]):[0-5]\d")
_NO_CONDITION = re.compile(r"\b(?:or|not|never|else|except|unless|wrong|false|maybe|but|instead)\b")


class Parser(Values):
    """One pass over the tokens; `answer` is the start."""

    def answer(self) -> Node:
        node = self.listed(("over", "choose"))
        if self.is_op("over", "choose") and not isinstance(node, (Seq, Relation)):  # 1 \\over 2 without braces
            op = self.expect("over", "choose")
            right = self.listed(())
            node = divide(node, right) if op == "over" else Call("binom", (node, right))
        if self.token is not END:
            raise UnreadableError(f"left over: {self.token.value!r}")
        return node

    def listed(self, closers: tuple[str, ...]) -> Node:
        """A list up to one of `closers` (not consumed); a single item stays itself."""
        items: list[Node] = []
        joiner = ","
        strong: list[tuple[Node, ...]] = []  # groups closed by a semicolon
        while True:
            while self.token.kind in ("sep", "and", "or") and items:
                if self.token.value == ";" or (self.token.kind == "or" and strong):
                    strong.append(tuple(items))
                    items = []
                if self.token.kind in ("and", "or"):
                    joiner = self.token.value
                self.at += 1
                if not items:
                    break
            if self.take("row"):
                continue
            if self.token is END or self.is_op(*closers):
                if items and self.tokens[self.at - 1].kind in ("and", "or"):
                    raise UnreadableError("a connector at the end")
                break
            if self.token.kind == "sep":
                if self.token.value == "quad" or items:
                    self.at += 1
                    continue
                raise UnreadableError("a separator without an item")
            if items and not self.separated():
                raise UnreadableError(f"left over: {self.token.value!r}")
            items.append(self.relation())
            if len(items) > cost.MAX_ITEMS:
                raise OverLimitError(f"more than {cost.MAX_ITEMS} items")
            if isinstance(items[-1], Text) and len(items) > 1 and items[-1].words.startswith(("for ", "where ")):
                items.pop()
        if strong:
            if items:
                strong.append(tuple(items))
            if all(len(group) == 1 for group in strong):
                return Seq(tuple(group[0] for group in strong), ";")
            return Seq(tuple(group[0] if len(group) == 1 else Seq(group) for group in strong), ";")
        if not items:
            raise UnreadableError("empty")
        return items[0] if len(items) == 1 else Seq(tuple(items), joiner)

    def separated(self) -> bool:
        previous = self.tokens[self.at - 1]
        return previous.kind in ("sep", "and", "or") or previous.value == "row"

    def relation(self) -> Node:
        self.enter()
        operands, ops = [], []
        if self.is_op("~", "="):  # `\approx 8.24`, `= 5`: what stands before is the question
            self.at += 1
        elif self.is_op("!=", "<", ">", "<=", ">="):
            raise UnreadableError("a relation without its left side")
        operands.append(self.ratio())
        while self.token.kind == "op" and self.token.value in _RELATIONS:
            ops.append(self.token.value)
            self.at += 1
            if self.token.kind == "op" and self.token.value == "=" and ops[-1] in "<>":  # `< =`
                ops[-1] += "="
                self.at += 1
            operands.append(self.ratio())
        self.depth -= 1
        return Relation(tuple(operands), tuple(ops)) if ops else operands[0]

    def ratio(self) -> Node:
        first = self.sets()
        if not self.colons or not self.is_op(":", "to"):
            return first
        parts = [first]
        written = "".join(token.value for token in self.tokens[max(0, self.at - 1) : self.at + 2])
        is_clock = _CLOCK.fullmatch(written) is not None
        while self.take(":") or self.take("to"):
            parts.append(self.sets())
        suffix = ""
        if isinstance(parts[-1], Quantity):
            word = parts[-1].unit.replace(".", "").replace(" ", "").lower()
            if word not in ("am", "pm"):
                raise UnreadableError("a ratio with a unit")
            suffix, parts[-1] = word, parts[-1].value
        return Colon(tuple(parts), suffix, is_clock and len(parts) == 2)

    def sets(self) -> Node:
        node = self.sum()
        while self.token.kind == "op" and self.token.value in _SETS:
            op = self.token.value
            self.at += 1
            node = SetOp(op, node, self.sum())
        return node

    # sums and products

    def sum(self) -> Node:
        self.enter()
        terms: list[Node] = []
        first = True
        while True:
            sign = self.sign()
            if sign is None:
                if not first:
                    break
                terms.append(self.product())
            else:
                operand = self.product()
                terms.append(
                    operand if sign == "+" else negate(operand) if sign == "-" else Mul((Const(sign), operand))
                )
            first = False
        node = terms[0] if len(terms) == 1 else Add(tuple(terms))
        if self.token.kind == "text":
            node = self.with_unit(node)
        self.depth -= 1
        return node

    def sign(self) -> str | None:
        """One sign or a run of them (`- -x`, `+-`), or None."""
        token = self.token
        if token.kind == "op" and token.value in "+-":
            sign = token.value
            self.at += 1
            while self.is_op("+", "-"):
                sign = "-" if (sign == "-") != (self.token.value == "-") else "+"
                self.at += 1
            return sign
        if token.kind == "const" and token.value in ("pm", "mp"):
            self.at += 1
            return token.value
        return None

    def with_unit(self, value: Node) -> Node:
        """`value` followed by words: degrees, percent, a unit, or a clause that does not bind (`for all n`)."""
        start = self.at
        parts: list[str] = []
        while True:
            token = self.token
            if token.kind == "text" or (
                token.kind == "op" and token.value in ("/", "*") and self.peek().kind == "text"
            ):
                parts.append(token.value)
            elif token.kind == "op" and token.value == "^":
                exponent = self.peek(2) if self.peek().value == "{" else self.peek()
                minus = "-" if exponent.value == "-" else ""
                if minus:
                    exponent = self.peek(3)
                if exponent.kind != "num":
                    break
                parts.append(f"^{minus}{exponent.value}")
                self.at += (3 if self.peek().value == "{" else 1) + len(minus)
            else:
                break
            self.at += 1
        if parts and parts[0].lower() in _SCALES:
            value = Mul((value, number(_SCALES[parts.pop(0).lower()])))
            if not parts:
                return value
        unit = " ".join(parts).strip(" .,")
        lower = unit.lower()
        if lower in _DEGREE_WORDS:
            return Degrees(value)
        if lower in _PERCENT_WORDS:
            return Percent(value)
        if _CONDITION.match(lower) and self.is_plain_condition(lower):
            self.at = len(self.tokens)
            return value
        if lower.replace(".", "").replace(" ", "") in ("am", "pm"):
            return Quantity(value, lower)
        if units.read(unit) is None:
            self.at = start
            raise UnreadableError(f"words after a value: {unit!r}")
        if self.token.kind == "num":  # 2 hours 30 minutes
            more = self.sum()
            if isinstance(more, Quantity):
                return Add((Quantity(value, unit), more))
            raise UnreadableError("a number after a unit")
        return self.with_smaller_unit(Quantity(value, unit))

    def with_smaller_unit(self, first: Quantity) -> Node:
        """`2 hours and 30 minutes` as a sum; `5 cm and 3 cm` and `2 m and 3 s` are two answers, and stay so."""
        start = self.at
        if self.token.kind == "and" and self.peek().kind == "num":
            self.at += 1
            more = self.sum()
            if isinstance(more, Quantity):
                large, small = units.read(first.unit), units.read(more.unit)
                if large and small and large[0] == small[0] and large[1] > small[1]:
                    return Add((first, more))
        self.at = start
        return first

    def is_plain_condition(self, words: str) -> bool:
        """True where all that follows `for all` is about names: `x`, `x, y in R`, `n >= 1`; never a second value."""
        rest = self.tokens[self.at :]
        said = " ".join([words, *(token.value.lower() for token in rest if token.kind == "text")])
        if _NO_CONDITION.search(said) or any(token.kind in ("or", "and") for token in rest):
            return False
        bounds = [token.kind == "op" and token.value in _RELATIONS - {"=", "~"} for token in rest]
        for at, token in enumerate(rest):
            if (
                token.kind == "sep"
                and not any(bounds[at:])
                and any(t.kind not in ("sym", "sep", "text") for t in rest[at:])
            ):
                return False
        return any(bounds) or all(token.kind not in ("num", "const") for token in rest)

    def product(self) -> Node:
        self.enter()
        factors = [self.factor()]
        while True:
            token = self.token
            if token.kind == "op" and token.value in ("*", "/"):
                if self.peek().kind == "text":
                    break
                self.at += 1
                sign = self.sign()
                factor = self.factor()
                if sign in ("pm", "mp"):
                    raise UnreadableError("a plus-minus inside a product")
                if sign == "-":
                    factor = negate(factor)
                factors.append(factor if token.value == "*" else Pow(factor, MINUS_ONE))
            elif token.kind == "op" and token.value == "mod":
                self.at += 1
                value = factors[0] if len(factors) == 1 else Mul(tuple(factors))
                factors = [Call("mod", (value, self.factor()))]
            elif self.starts_factor(token):
                if token.kind == "num" and isinstance(factors[-1], Num) and not self.closed_before():
                    factors[-1] = self.mixed(factors[-1])
                    continue
                factor = self.factor()
                last = factors[-1]
                part = factor.value if isinstance(factor, (Percent, Degrees)) else factor
                if isinstance(last, Num) and is_mixed(last, part):
                    whole = Add((last, part))
                    factors[-1] = whole if part is factor else rebuild(factor, (whole,))
                else:
                    factors.append(factor)
            else:
                break
        self.depth -= 1
        return factors[0] if len(factors) == 1 else Mul(tuple(factors))

    def closed_before(self) -> bool:
        return self.tokens[self.at - 1].kind != "num"

    def mixed(self, whole: Num) -> Node:
        """`1 1/4`: two numbers side by side are a mixed number or nothing."""
        top, slash, bottom = self.token, self.peek(), self.peek(2)
        if slash.value == "/" and bottom.kind == "num" and top.value.isdigit() and bottom.value.isdigit():
            part = divide(number(int(top.value)), number(int(bottom.value)))
            if whole.value.denominator == 1 and whole.places is None and int(top.value) < int(bottom.value):
                self.at += 3
                return Add((whole, part))
        raise UnreadableError(f"two numbers side by side: {top.value!r}")

    def starts_factor(self, token: Token) -> bool:
        if token.kind in ("num", "sym", "func"):
            return True
        if token.kind == "const":
            return token.value not in ("pm", "mp")
        if token.kind == "cmd":
            return not token.value.startswith(("end ", "pmod"))
        if token.kind == "op":
            if token.value == "|":
                return self.bars == 0
            return token.value in ("(", "[", "{", "lfloor", "lceil", "<<", "\\{")
        return False

    # factors
