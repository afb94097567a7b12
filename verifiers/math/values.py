"""The inner half of the grammar: factors and what they are made of, down to numerals, names and brackets."""

from __future__ import annotations

import re
from fractions import Fraction

from r1zero.verifiers.math.commands import Commands
from r1zero.verifiers.math.cursor import END
from r1zero.verifiers.math.nodes import (
    EMPTY,
    BaseN,
    Braces,
    Call,
    Const,
    Degrees,
    Group,
    Node,
    Num,
    Percent,
    Pow,
    Quantity,
    Seq,
    Sym,
    Text,
    UnreadableError,
    divide,
    negate,
    number,
)
from r1zero.verifiers.math.numerals import digits_of, flat, read_going_on, read_number
from r1zero.verifiers.math.tokens import Token
from r1zero.verifiers.math.words import words_of

_FUNCTION_NAMES = set("fghFGHPQWTNOu") | {"phi", "psi", "Theta", "Omega", "Phi", "Gamma", "zeta"}
"""Names that a bracket applies to rather than multiplies."""
_ORDINALS = ("st", "nd", "rd", "th")


class Values(Commands):
    """Factors: a primary with its powers, indices, factorials, primes, percent and degree signs."""

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
                elif isinstance(node, Num) and isinstance(exponent, Text) and exponent.words in _ORDINALS:
                    continue  # the 12th
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
            return Quantity(node, f"modulo {flat(self.tokens_of_argument())}")
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
        braced = self.is_op("{")
        if braced:
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
        if not braced and self.take("!"):  # 2^5! is 2^(5!), but 2^{5}! is (2^5)!
            node = Call("factorial", (node,))
        if self.take("^"):
            node = Pow(node, self.exponent())
        self.depth -= 1
        return node

    def subscript(self, node: Node) -> Node:
        tokens = self.tokens_of_argument()
        index = flat(tokens)
        if isinstance(node, (Num, BaseN)) or (isinstance(node, Text) and re.fullmatch(r"[0-9a-z]+", node.words)):
            digits = node.words.upper() if isinstance(node, Text) else digits_of(node)
            if not re.fullmatch(r"[0-9A-Za-z_]+", index):
                raise UnreadableError("a base that is no number")
            return BaseN(digits, index)
        if isinstance(node, Sym):
            if all(token.kind in ("num", "sym", "text", "const", "func") or token.value == "'" for token in tokens):
                return Sym(f"{node.name}_{index}")
            return Call("index", (node, type(self)(tokens).answer()))
        if isinstance(node, Call) and node.name in ("apply", "prime", "overline", "dot", "ddot", "hat", "vec", "tilde"):
            return Call("index", (node, type(self)(tokens).answer()))
        raise UnreadableError("a subscript on an expression")

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
        raise UnreadableError(f"no value at {token.value or 'the end'!r}")

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
            period = flat(self.tokens_of_argument())
            if not period.isdigit():
                raise UnreadableError("a period that is no number")
            whole, _, start = digits.partition(".")
            head = Fraction(int((whole or "0") + start), 10 ** len(start))
            return Num(head + Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(start)))
        if self.token == ("const", "dots", self.token.spaced) and "." in digits:
            self.at += 1
            return read_going_on(digits)
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
        if name in ("Gamma", "zeta") and isinstance(node, Sym) and not primed and len(arguments) == 1:
            return Call(name.lower(), arguments)
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
        before = self.tokens[self.at - 2] if self.at >= 2 else END
        inner = self.peek()
        alone = inner.kind == "num" and self.peek(2).value == ")"
        return alone and before.kind not in ("num", "sym")

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
                    raise UnreadableError("a floor closed as a ceiling")
                return Call("floor" if opener == "lfloor" else "ceil", (inner,))
            case "<<":
                node = self.listed((">>",))
                self.expect(">>")
                return Group("(", node.items, ")") if isinstance(node, Seq) else node
        raise UnreadableError(f"no value at {opener!r}")

    def group(self, opener: str) -> Node:
        bars, self.bars = self.bars, 0
        colons, self.colons = self.colons, True
        node = self.listed((")", "]"))
        self.bars, self.colons = bars, colons
        if self.tokens[self.at - 1].value in (",", ";"):
            raise UnreadableError("a bracket closed after a comma")
        closer = self.expect(")", "]")
        if isinstance(node, Seq) and node.joiner in (",", ";"):
            items = node.items
            if opener + closer in ("(]", "[)") and len(items) != 2:
                raise UnreadableError("brackets that do not match")
            return Group(opener, items, closer)
        if opener + closer in ("(]", "[)"):
            raise UnreadableError("brackets that do not match")
        return node

    def braces(self) -> Node:
        """A LaTeX group: its content; `{n \\choose k}` and `{a \\over b}` are told here."""
        if self.take("}"):
            if self.token is END and self.at == 2:
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
        raise UnreadableError(why)

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
