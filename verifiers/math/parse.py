"""Tokens to tree: one recursive-descent parser for both sides, LaTeX and plain notation alike. Nothing is evaluated.

    answer   := relation (separator relation)*            separators: , ; and or
    relation := ratio (op ratio)*                         = < > <= >= != ~ in
    ratio    := set (":" set)*
    set      := sum (union|inter|minus sum)*
    sum      := [+-±] product ([+-±] product)* [unit]
    product  := factor ([* /] factor | factor)*           side by side multiplies
    factor   := primary (^ exponent | _ index | ! | ' | % | degrees)*

Where notations clash: `2\\frac13` is the mixed number 7/3, `\\frac 59` is 5/9, `x^10` and `\\sqrt12` take the whole
number, `a/bc` is (a/b)c, `sin^{-1}` is the inverse function, `e` and `i` are the constants, and `f(x)` is an
application for the names people use for functions. Both sides are read by the same rule, so a clash costs a match
only where the two answers are written differently.
"""

from __future__ import annotations

import re
from fractions import Fraction

from r1zero.verifiers.math import cost, units
from r1zero.verifiers.math.nodes import (
    EMPTY,
    MINUS_ONE,
    Add,
    BaseN,
    Braces,
    Call,
    Colon,
    Const,
    Degrees,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    Percent,
    Pow,
    Quantity,
    Relation,
    Seq,
    SetOp,
    Sym,
    Text,
    Unreadable,
    divide,
    negate,
    number,
)
from r1zero.verifiers.math.tokens import GREEK, Token, normalise, tokenise

_END = Token("end", "")
_RELATIONS = {"=", "<", ">", "<=", ">=", "!=", "~", "in"}
_SETS = {"union", "inter", "minus"}
_FUNCTION_NAMES = set("fghFGHPQWTNOu") | {"phi", "psi", "Theta", "Omega", "Phi"}
"""Names that a bracket applies to rather than multiplies."""
_HALF = Num(Fraction(1, 2))
_DEGREE_WORDS = {"degree", "degrees", "deg", "degs"}
_PERCENT_WORDS = {"percent", "pct", "percentage", "per cent", "percents", "percentage points", "percentage point"}
_MATRIX_ENVIRONMENTS = {
    "pmatrix",
    "bmatrix",
    "matrix",
    "array",
    "smallmatrix",
    "Bmatrix",
    "psmallmatrix",
    "bsmallmatrix",
}
_LINE_ENVIRONMENTS = {"aligned", "align", "cases", "gather", "gathered", "equation", "split", "eqnarray"}
_INVERSES = {"sin": "arcsin", "cos": "arccos", "tan": "arctan", "cot": "arccot", "sinh": "arcsinh", "cosh": "arccosh",
             "tanh": "arctanh"}  # fmt: skip


def parse(text: str, *, thousands: bool = True, names: frozenset[str] = frozenset()) -> Node:
    """The tree of one answer.

    thousands: read `120,000` as one number; names: one-letter names of the gold, which plain letters then stand for.
    A text that is words and not maths becomes `Text`. Raises Unreadable, or OverLimit from the cost gate.
    """
    cost.check_text(text)
    text = normalise(text, thousands)
    if not text:
        raise Unreadable("empty")
    tokens = tokenise(text, names)
    if tokens and all(token.kind == "text" for token in tokens):
        return Text(words_of(" ".join(token.value for token in tokens)))
    parser = _Parser(tokens)
    try:
        return parser.answer()
    except Unreadable:
        if any(token.kind == "text" for token in tokens):
            return Text(words_of(plain_text(text)))
        raise


def plain_text(text: str) -> str:
    """A sentence without its LaTeX wrappers."""
    text = re.sub(r"\\(?:text|textbf|textit|mbox|mathrm|textrm|mathbf|operatorname)\s*\{", "{", text)
    return re.sub(r"\\[ ,;:!]|[{}$]|\\(?:left|right)\b", " ", text)


_PUNCTUATION = re.compile(r"[.,;:!?\"'()\[\]{}$*_`]+")
_SYNONYMS = {
    "dne": "does not exist",
    "doesn t exist": "does not exist",
    "doesnt exist": "does not exist",
    "infinite": "infinitely many",
    "infinite solution": "infinitely many solution",
    "no real solution": "no real solution",
    "correct": "correct",
}


def words_of(text: str) -> str:
    """Text as it is compared: lower case, no punctuation, no article, no plural s."""
    words = _PUNCTUATION.sub(" ", text.lower()).split()
    plain = " ".join(units.singular(word) for word in words if word not in ("a", "an", "the"))
    return _SYNONYMS.get(plain, plain)


class _Parser:
    """One pass over the tokens. `depth` bounds the recursion whatever form the nesting takes."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.bars = 0
        self.colons = True

    # Reading tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _END

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else _END

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
            raise Unreadable(f"expected {' or '.join(values)} before {self.token.value or 'the end'!r}")
        self.at += 1
        return self.tokens[self.at - 1].value

    def enter(self) -> None:
        self.depth += 1
        if self.depth > cost.MAX_DEPTH:
            raise cost.OverLimit(f"nested more than {cost.MAX_DEPTH} deep")

    # answer, relation, ratio, set

    def answer(self) -> Node:
        node = self.listed(())
        if self.token is not _END:
            raise Unreadable(f"left over: {self.token.value!r}")
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
            if self.token is _END or self.is_op(*closers):
                break
            if self.token.kind == "sep":
                if self.token.value == "quad" or items:
                    self.at += 1
                    continue
                raise Unreadable("a separator without an item")
            if items and not self.separated():
                raise Unreadable(f"left over: {self.token.value!r}")
            items.append(self.relation())
            if len(items) > cost.MAX_ITEMS:
                raise cost.OverLimit(f"more than {cost.MAX_ITEMS} items")
            if isinstance(items[-1], Text) and len(items) > 1 and items[-1].words.startswith(("for ", "where ")):
                items.pop()
        if strong:
            if items:
                strong.append(tuple(items))
            if all(len(group) == 1 for group in strong):
                return Seq(tuple(group[0] for group in strong), ";")
            return Seq(tuple(group[0] if len(group) == 1 else Seq(group) for group in strong), ";")
        if not items:
            raise Unreadable("empty")
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
            raise Unreadable("a relation without its left side")
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
        while self.take(":") or self.take("to"):
            parts.append(self.sets())
        suffix = ""
        if isinstance(parts[-1], Quantity):
            word = parts[-1].unit.replace(".", "").replace(" ", "").lower()
            if word not in ("am", "pm"):
                raise Unreadable("a ratio with a unit")
            suffix, parts[-1] = word, parts[-1].value
        return Colon(tuple(parts), suffix)

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
            if token.kind == "text" or (token.kind == "op" and token.value in ("/", "*") and self.peek().kind == "text"):
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
        unit = " ".join(parts).strip(" .,")
        lower = unit.lower()
        if lower in _DEGREE_WORDS:
            return Degrees(value)
        if lower in _PERCENT_WORDS:
            return Percent(value)
        if re.match(r"(?:,\s*)?(?:for|where|with) (?:all|any|every|each|some)\b", lower):
            self.at = len(self.tokens)
            return value
        if lower.replace(".", "").replace(" ", "") in ("am", "pm"):
            return Quantity(value, lower)
        if units.read(unit) is None:
            self.at = start
            raise Unreadable(f"words after a value: {unit!r}")
        if self.token.kind == "num":  # 2 hours 30 minutes
            more = self.sum()
            if isinstance(more, Quantity):
                return Add((Quantity(value, unit), more))
            raise Unreadable("a number after a unit")
        return Quantity(value, unit)

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
                    raise Unreadable("a plus-minus inside a product")
                if sign == "-":
                    factor = negate(factor)
                factors.append(factor if token.value == "*" else Pow(factor, MINUS_ONE))
            elif token.kind == "op" and token.value == "mod":
                self.at += 1
                whole = factors[0] if len(factors) == 1 else Mul(tuple(factors))
                factors = [Call("mod", (whole, self.factor()))]
            elif self.starts_factor(token):
                if token.kind == "num" and isinstance(factors[-1], Num) and not self.closed_before():
                    factors[-1] = self.mixed(factors[-1])
                    continue
                factor = self.factor()
                last = factors[-1]
                if isinstance(last, Num) and self.is_mixed(last, factor):
                    factors[-1] = Add((last, factor))
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
        raise Unreadable(f"two numbers side by side: {top.value!r}")

    @staticmethod
    def is_mixed(whole: Num, part: Node) -> bool:
        """True for a whole number before a proper fraction of whole numbers, written as one (\\frac)."""
        if whole.places is not None or whole.value.denominator != 1 or whole.value < 1:
            return False
        if not (isinstance(part, Mul) and len(part.factors) == 2 and isinstance(part.factors[1], Pow)):
            return False
        top, bottom = part.factors[0], part.factors[1].base
        return (
            isinstance(top, Num)
            and isinstance(bottom, Num)
            and top.value.denominator == bottom.value.denominator == 1
            and 0 < top.value < bottom.value
        )

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

    def factor(self) -> Node:
        self.enter()
        node = self.postfix(self.primary())
        self.depth -= 1
        return node

    def postfix(self, node: Node) -> Node:
        while self.token.kind == "op":
            value = self.token.value
            if value == "^":
                self.at += 1
                if self.take("deg"):
                    node = Degrees(node)
                    continue
                if self.is_op("'", "''"):
                    continue
                exponent = self.exponent()
                if exponent == Const("prime"):
                    node = self.primed(node, "'")
                elif exponent == Const("deg"):
                    node = Degrees(node)
                elif isinstance(node, Num) and exponent == Sym("odot"):
                    raise Unreadable("odot")
                else:
                    node = Pow(node, exponent)
            elif value == "deg":
                self.at += 1
                node = Degrees(node)
            elif value == "_":
                self.at += 1
                node = self.subscript(node)
            elif value == "!":
                self.at += 1
                node = Call("factorial", (node,))
            elif value in ("'", "''"):
                self.at += 1
                node = self.primed(node, value)
            elif value == "%":
                self.at += 1
                node = Percent(node)
            else:
                break
        if self.token.kind == "cmd" and self.token.value == "pmod":
            self.at += 1
            return Quantity(node, f"modulo {_flat(self.tokens_of_argument())}")
        return node

    @staticmethod
    def primed(node: Node, mark: str) -> Node:
        if isinstance(node, Sym):
            return Sym(node.name + mark)
        if isinstance(node, Call) and node.name == "apply" and isinstance(node.args[0], Sym):
            return Call("apply", (Sym(node.args[0].name + mark), *node.args[1:]))
        return Call("prime", (node,))

    def exponent(self) -> Node:
        """What follows `^`: a group, or one signed primary, powers to the right."""
        self.enter()
        if self.is_op("{"):
            inner = self.peek()
            if inner.value in ("'", "deg", "''") and self.peek(2).value == "}":
                self.at += 3
                node: Node = Const("deg" if inner.value == "deg" else "prime")
            else:
                node = self.primary()
        else:
            sign = self.sign()
            node = self.primary()
            if sign == "-":
                node = negate(node)
        if self.is_op("!"):
            self.at += 1
            node = Call("factorial", (node,))
        if self.take("^"):
            node = Pow(node, self.exponent())
        self.depth -= 1
        return node

    def subscript(self, node: Node) -> Node:
        tokens = self.tokens_of_argument()
        flat = _flat(tokens)
        if isinstance(node, (Num, BaseN)) or (isinstance(node, Text) and re.fullmatch(r"[0-9a-z]+", node.words)):
            digits = node.words.upper() if isinstance(node, Text) else _digits(node)
            if not re.fullmatch(r"[0-9A-Za-z_]+", flat):
                raise Unreadable("a base that is no number")
            return BaseN(digits, flat)
        if isinstance(node, Sym):
            if all(token.kind in ("num", "sym", "text", "const", "func") or token.value == "'" for token in tokens):
                return Sym(f"{node.name}_{flat}")
            return Call("index", (node, _Parser(tokens).answer()))
        if isinstance(node, Call) and node.name in ("apply", "prime", "overline", "dot", "ddot", "hat", "vec", "tilde"):
            return Call("index", (node, _Parser(tokens).answer()))
        raise Unreadable("a subscript on an expression")

    def tokens_of_argument(self) -> list[Token]:
        """The tokens of the next brace group, or the next token alone."""
        if not self.take("{"):
            if self.token is _END:
                raise Unreadable("an argument is missing")
            self.at += 1
            return [self.tokens[self.at - 1]]
        depth, start = 1, self.at
        while depth:
            if self.token is _END:
                raise Unreadable("a brace is left open")
            if self.token.kind == "op":
                depth += {"{": 1, "}": -1}.get(self.token.value, 0)
            self.at += 1
        return self.tokens[start : self.at - 1]

    def argument(self, single_digit: bool = False) -> Node:
        """The argument of a LaTeX command: a group, or the next token. `\\frac 59` takes one digit at a time."""
        token = self.token
        if token.kind == "num" and single_digit and len(token.value) > 1 and token.value[0].isdigit():
            self.tokens[self.at] = Token("num", token.value[1:])
            return number(int(token.value[0]))
        return self.primary()

    # primaries

    def primary(self) -> Node:
        self.enter()
        node = self.read_primary()
        self.depth -= 1
        return node

    def read_primary(self) -> Node:
        token = self.token
        self.at += 1
        match token.kind:
            case "num":
                return self.numeral(token.value)
            case "sym":
                return self.symbol(token.value)
            case "const":
                return Const(token.value)
            case "func":
                return self.function(token.value)
            case "text":
                if self.is_op("_"):
                    return Text(token.value.lower())
                return self.text_value(token)
            case "cmd":
                return self.command(token.value)
            case "op":
                return self.bracketed(token.value)
        raise Unreadable(f"no value at {token.value or 'the end'!r}")

    def text_value(self, token: Token) -> Node:
        """Words as a value: allowed for a whole item (`x = \\text{odd}`), a name (`\\text{Area} = 5`), a choice."""
        words = [token.value]
        while self.token.kind == "text":
            words.append(self.token.value)
            self.at += 1
        return Text(words_of(" ".join(words)))

    def numeral(self, digits: str) -> Node:
        if self.token.kind == "cmd" and self.token.value in ("overline", "bar", "dot") and "." in digits:
            self.at += 1
            period = _flat(self.tokens_of_argument())
            if not period.isdigit():
                raise Unreadable("a period that is no number")
            whole, _, start = digits.partition(".")
            head = Fraction(int((whole or "0") + start), 10 ** len(start))
            return Num(head + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(start)))
        return read_number(digits)

    def symbol(self, name: str) -> Node:
        if name in ("e", "i"):
            return Const(name) if not self.is_op("_") else Sym(name)
        node: Node = Sym(name)
        if self.is_op("_"):
            self.at += 1
            node = self.subscript(node)
        while self.is_op("'", "''") or (
            self.is_op("^") and self.peek().value == "{" and self.peek(2).value in ("'", "''")
        ):
            if self.take("^"):
                self.at += 1
                node = self.primed(node, self.token.value)
                self.at += 2
            else:
                node = self.primed(node, self.token.value)
                self.at += 1
        return self.applied(node, name)

    def applied(self, node: Node, name: str) -> Node:
        """`f(x)`, `f^{-1}(x)`, `I(0)`: an application where the name or the argument says so."""
        start = self.at
        inverse = name in _FUNCTION_NAMES and self.is_op("^") and self.inverse_mark()
        if not self.is_op("(") or not isinstance(node, (Sym, Call)):
            self.at = start
            return node
        primed = isinstance(node, Sym) and "'" in node.name
        if not (name in _FUNCTION_NAMES or inverse or primed or self.applies_to_a_number_or_name()):
            self.at = start
            return node
        self.at += 1
        argument = self.listed((")",))
        self.expect(")")
        if inverse:
            node = Call("inverse", (node,))
        arguments = argument.items if isinstance(argument, Seq) else (argument,)
        return Call("apply", (node, *arguments))

    def inverse_mark(self) -> bool:
        """Consume `^{-1}` when a bracket follows."""
        values = [self.peek(k).value for k in range(1, 6)]
        if values[:4] == ["{", "-", "1", "}"] and values[4] == "(":
            self.at += 5
            return True
        if values[:2] == ["-", "1"] and values[2] == "(":
            self.at += 3
            return True
        return False

    def applies_to_a_number_or_name(self) -> bool:
        """True at `(0)`: a bracket with a lone number, which nobody writes for a product."""
        before = self.tokens[self.at - 2] if self.at >= 2 else _END
        inner = self.peek()
        alone = inner.kind == "num" and self.peek(2).value == ")"
        return alone and before.kind not in ("num", "sym")

    def function(self, name: str) -> Node:
        if name in ("exp",) and not self.is_op("(", "{", "["):
            raise Unreadable("exp without its argument")
        base: Node | None = None
        power: Node | None = None
        while self.is_op("^", "_", "'"):
            if self.take("^"):
                power = self.exponent()
            elif self.take("_"):
                if name not in ("ln", "max", "min"):
                    raise Unreadable(f"an index on {name}")
                base = self.argument()
            else:
                raise Unreadable("a primed function")
        inverse = power is not None and power in (MINUS_ONE, Num(Fraction(-1), 0, 1))
        if inverse and name in _INVERSES:
            name, power = _INVERSES[name], None
        node = self.call(name, self.function_argument())
        if base is not None:
            node = divide(node, self.call("ln", base)) if name == "ln" else node
        if name == "lg":
            node = divide(Call("ln", node.args if isinstance(node, Call) else (node,)), Call("ln", (number(10),)))
        return node if power is None else Pow(node, power)

    @staticmethod
    def call(name: str, argument: Node) -> Node:
        if name == "exp":
            return Pow(Const("e"), argument)
        if name == "cbrt":
            return Call("root", (argument, number(3)))
        if name == "deg":
            return Degrees(argument)
        return Call(name, argument.items if isinstance(argument, Seq) else (argument,))

    def function_argument(self) -> Node:
        """A bracket, a brace group, or the factors up to the next sign, slash or function: `sin 2x cos x`."""
        if self.is_op("(", "[", "{"):
            opener = self.token.value
            self.at += 1
            node = self.listed((")", "]", "}"))
            self.expect({"(": ")", "[": "]", "{": "}"}[opener])
            # sin(x)/2, sin(x)^2 and sin(x)y: the bracket was the whole argument.
            return node
        self.enter()
        sign = self.sign()
        factors = [self.factor()]
        while self.token.kind in ("num", "sym", "const", "cmd") and self.starts_factor(self.token):
            if self.token.kind == "num" and isinstance(factors[-1], Num):
                raise Unreadable("two numbers side by side")
            factors.append(self.factor())
        if self.is_op("/") and all(not isinstance(f, Call) for f in factors) and self.peek().kind in ("num", "const"):
            # `sin pi/7`, `\cos 2\pi/3`: the quotient belongs to the argument when it is written plainly.
            self.at += 1
            factors.append(Pow(self.factor(), MINUS_ONE))
        self.depth -= 1
        node = factors[0] if len(factors) == 1 else Mul(tuple(factors))
        return negate(node) if sign == "-" else node

    def command(self, name: str) -> Node:
        match name:
            case "frac":
                if self.is_op("("):  # plain frac(1,2) is no LaTeX
                    raise Unreadable("frac without its arguments")
                top = self.argument(single_digit=True)
                return divide(top, self.argument(single_digit=True))
            case "sqrt" | "qdrt" | "cbrt":
                return self.root(name)
            case "binom" | "dbinom" | "tbinom":
                top = self.argument(single_digit=True)
                return Call("binom", (top, self.argument(single_digit=True)))
            case (
                "overline"
                | "bar"
                | "widehat"
                | "hat"
                | "vec"
                | "overrightarrow"
                | "dot"
                | "ddot"
                | "tilde"
                | "widetilde"
            ):
                inner = self.argument()
                if isinstance(inner, Num) and name in ("overline", "bar"):
                    raise Unreadable("a numeral under a bar")
                return Call({"bar": "overline", "widehat": "hat"}.get(name, name), (inner,))
            case "angle" | "triangle":
                sign = [name]
                while self.token.kind in ("sym", "num") or self.is_op("_"):
                    if self.token.kind == "op":
                        self.at += 1
                        sign.append("_" + _flat(self.tokens_of_argument()))
                        continue
                    sign.append(self.token.value)
                    self.at += 1
                return Sym(" ".join(sign))
            case "sum" | "prod":
                return self.big_operator(name)
            case "int" | "lim" | "iint" | "oint" | "bigcap":
                return self.opaque(name)
            case "module":  # np.arcsin
                self.expect(".")
                return self.primary()
            case "longdiv" | "cancel" | "sout" | "xcancel" | "bcancel" | "input" | "write" | "def":
                raise Unreadable(f"\\{name}")
        if name.startswith("currency "):
            sign_token = self.sign()
            value = self.product()
            return Quantity(negate(value) if sign_token == "-" else value, name.split()[1])
        if name.startswith("begin "):
            return self.environment(name[6:])
        raise Unreadable(f"unknown command \\{name}")

    def root(self, name: str) -> Node:
        index: Node = number({"sqrt": 2, "cbrt": 3, "qdrt": 4}[name])
        if name == "sqrt" and self.take("["):
            index = self.listed(("]",))
            self.expect("]")
        radicand = self.argument()
        if index == number(2):
            return Pow(radicand, _HALF)
        return Call("root", (radicand, index))

    def big_operator(self, name: str) -> Node:
        """\\sum_{k=a}^{b} body, the body being the rest of the product."""
        lower = upper = None
        while self.is_op("_", "^"):
            if self.take("_"):
                lower = _Parser(self.tokens_of_argument()).answer()
            else:
                self.at += 1
                upper = self.argument()
        body = self.product()
        match lower:
            case Relation((variable, start), ("=",)) if upper is not None:
                return Call(name, (body, variable, start, upper))
        return Call("opaque " + name, tuple(part for part in (body, lower, upper) if part is not None))

    def opaque(self, name: str) -> Node:
        """An integral, a limit: kept as written, equal only to itself."""
        bounds: list[Node] = []
        while self.is_op("_", "^"):
            mark = self.token.value
            self.at += 1
            tokens = self.tokens_of_argument()
            bounds += [Text(mark), Text(_flat(tokens))]
        return Call("opaque " + name, (self.product(), *bounds))

    def bracketed(self, opener: str) -> Node:
        match opener:
            case "(" | "[":
                return self.group(opener)
            case "{":
                return self.braces()
            case "\\{":
                return self.set_by_members()
            case "|":
                return self.absolute()
            case "lfloor" | "lceil":
                inner = self.sum()
                closer = self.expect("rfloor", "rceil")
                if closer[1:] != opener[1:]:
                    raise Unreadable("a floor closed as a ceiling")
                return Call("floor" if opener == "lfloor" else "ceil", (inner,))
            case "<<":
                node = self.listed((">>",))
                self.expect(">>")
                return Group("(", node.items, ")") if isinstance(node, Seq) else node
        raise Unreadable(f"no value at {opener!r}")

    def group(self, opener: str) -> Node:
        bars, self.bars = self.bars, 0
        colons, self.colons = self.colons, True
        node = self.listed((")", "]"))
        self.bars, self.colons = bars, colons
        closer = self.expect(")", "]")
        if isinstance(node, Seq) and node.joiner in (",", ";"):
            items = node.items
            if opener + closer in ("(]", "[)") and len(items) != 2:
                raise Unreadable("brackets that do not match")
            return Group(opener, items, closer)
        if opener + closer in ("(]", "[)"):
            raise Unreadable("brackets that do not match")
        return node

    def braces(self) -> Node:
        """A LaTeX group: its content; `{n \\choose k}` and `{a \\over b}` are told here."""
        if self.take("}"):
            if self.token is _END and self.at == 2:
                return EMPTY
            return self.read_primary() if self.starts_factor(self.token) else self.fail("an empty group")
        bars, self.bars = self.bars, 0
        node = self.listed(("}", "over", "choose"))
        if self.is_op("over", "choose"):
            op = self.expect("over", "choose")
            right = self.listed(("}",))
            node = divide(node, right) if op == "over" else Call("binom", (node, right))
        self.bars = bars
        self.expect("}")
        return node

    def fail(self, why: str) -> Node:
        raise Unreadable(why)

    def set_by_members(self) -> Node:
        if self.take("\\}"):
            return EMPTY
        bars, self.bars, colons, self.colons = self.bars, 1, self.colons, False
        node = self.listed(("\\}", "|", "mid", ":"))
        self.colons = colons
        if self.is_op("|", "mid", ":"):  # {x | condition}
            self.at += 1
            self.bars = 0
            node = self.listed(("\\}",))
            self.bars = bars
            self.expect("\\}")
            return node
        self.bars = bars
        self.expect("\\}")
        return Braces(node.items if isinstance(node, Seq) else (node,))

    def absolute(self) -> Node:
        bars, self.bars = self.bars, 1
        node = self.sum()
        self.bars = bars
        self.expect("|")
        return Call("abs", (node,))

    def environment(self, name: str) -> Node:
        if name == "array":
            self.tokens_of_argument()
        if name in _LINE_ENVIRONMENTS:
            # Lines of an alignment are items; the ampersands only place them.
            depth_end = self.find_end(name)
            inner = [t for t in self.tokens[self.at : depth_end] if t.value != "&"]
            if name == "cases":
                raise Unreadable("a definition by cases")
            self.at = depth_end + 1
            return _Parser(inner).answer()
        if name not in _MATRIX_ENVIRONMENTS and name != "vmatrix":
            raise Unreadable(f"environment {name!r}")
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        cells = 0
        while True:
            if self.is_op("row") or (self.token.kind == "cmd" and self.token.value.startswith("end ")):
                ends = self.token.kind == "cmd"
                self.at += 1
                if row:
                    rows.append(tuple(row))
                    row = []
                if ends:
                    break
                continue
            if row:
                self.expect("&")
            row.append(self.relation())
            cells += 1
            if cells > cost.MAX_MATRIX_CELLS:
                raise cost.OverLimit(f"a matrix of more than {cost.MAX_MATRIX_CELLS} cells")
        if not rows or any(len(r) != len(rows[0]) for r in rows):
            raise Unreadable("a matrix with uneven rows")
        matrix = Matrix(tuple(rows))
        return Call("det", (matrix,)) if name == "vmatrix" else matrix

    def find_end(self, name: str) -> int:
        for at in range(self.at, len(self.tokens)):
            if self.tokens[at].kind == "cmd" and self.tokens[at].value == f"end {name}":
                return at
        raise Unreadable(f"environment {name!r} is left open")


def read_number(text: str) -> Num:
    """A numeral: exact for a whole number; a decimal keeps the places and digits it is written with."""
    mantissa, _, ten = text.lower().partition("e")
    exponent = int(ten or 0)
    if abs(exponent) > cost.MAX_TEN_EXPONENT:
        raise cost.OverLimit("an exponent of ten over the limit")
    whole, point, rest = mantissa.partition(".")
    value = Fraction(int((whole + rest) or "0"), 10 ** len(rest)) * Fraction(10) ** exponent
    if not point and not ten:
        return Num(value)
    return Num(value, len(rest) - exponent, len((whole + rest).lstrip("0")))


def _digits(node: Node) -> str:
    if isinstance(node, BaseN):
        return node.digits
    assert isinstance(node, Num)
    if node.places is None:
        return str(node.value)
    whole = node.value * 10**node.places
    text = str(int(whole)).rjust(node.places + 1, "0")
    return f"{text[: len(text) - node.places]}.{text[len(text) - node.places :]}" if node.places else text


_WORD_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
               "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip


def _flat(tokens: list[Token]) -> str:
    """An index as a name: `{\\text{eight}}` is 8, `{MB}` is MB."""
    flat = "".join(
        token.value.lower() if token.kind == "text" else token.value for token in tokens if token.value not in "{}"
    )
    return _WORD_BASES.get(flat, flat)


def names_of(node: Node) -> frozenset[str]:
    """The one-letter names in a tree."""
    from r1zero.verifiers.math.nodes import children

    if isinstance(node, Sym):
        return frozenset((node.name,)) if len(node.name) == 1 else frozenset()
    found: frozenset[str] = frozenset()
    for child in children(node):
        found |= names_of(child)
    return found


__all__ = ["GREEK", "names_of", "parse", "plain_text", "read_number", "words_of"]
