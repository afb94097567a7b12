"""The inner half of the grammar: factors and what they are made of, down to numerals, names and brackets."""

from __future__ import annotations

import re
from fractions import Fraction

from r1zero.verifiers.math import cost
from r1zero.verifiers.math.cursor import END, Cursor
from r1zero.verifiers.math.nodes import (
    EMPTY,
    MINUS_ONE,
    BaseN,
    Braces,
    Call,
    Const,
    Degrees,
    Group,
    Matrix,
    Mul,
    Node,
    Num,
    OverLimitError,
    Percent,
    Pow,
    Quantity,
    Relation,
    Seq,
    Sym,
    Text,
    UnreadableError,
    determinant,
    divide,
    negate,
    number,
)
from r1zero.verifiers.math.numerals import digits_of, flat, read_going_on, read_number
from r1zero.verifiers.math.tokens import Token
from r1zero.verifiers.math.vocabulary import words as _list
from r1zero.verifiers.math.words import words_of

_FUNCTION_NAMES = set("fghFGHPQWTNOu") | {"phi", "psi", "Theta", "Omega", "Phi"}
"""Names that a bracket applies to rather than multiplies."""
_HALF = Num(Fraction(1, 2))
_ORDINALS = ("st", "nd", "rd", "th")
_MATRICES = set(_list("pmatrix bmatrix matrix array smallmatrix Bmatrix psmallmatrix bsmallmatrix"))
_LINES = set(_list("aligned align cases gather gathered equation split eqnarray"))
_INVERSES = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sinh", "cosh", "tanh")}


class Values(Cursor):
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

    def function(self, name: str) -> Node:
        if name in ("exp",) and not self.is_op("(", "{", "["):
            raise UnreadableError("exp without its argument")
        base: Node | None = None
        power: Node | None = None
        while self.is_op("^", "_", "'"):
            if self.take("^"):
                power = self.exponent()
            elif self.take("_"):
                if name not in ("ln", "max", "min"):
                    raise UnreadableError(f"an index on {name}")
                base = self.argument()
            else:
                raise UnreadableError("a primed function")
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
        if name == "det" and isinstance(argument, Matrix):
            return determinant(argument)
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
                raise UnreadableError("two numbers side by side")
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
                    raise UnreadableError("frac without its arguments")
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
                    raise UnreadableError("a numeral under a bar")
                return Call({"bar": "overline", "widehat": "hat"}.get(name, name), (inner,))
            case "angle" | "triangle":
                sign: list[str] = [name]
                while self.token.kind in ("sym", "num") or self.is_op("_"):
                    if self.token.kind == "op":
                        self.at += 1
                        sign.append("_" + flat(self.tokens_of_argument()))
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
                raise UnreadableError(f"\\{name}")
        if name.startswith("currency "):
            sign_token = self.sign()
            value = self.product()
            return Quantity(negate(value) if sign_token == "-" else value, name.split()[1])
        if name.startswith("begin "):
            return self.environment(name[6:])
        raise UnreadableError(f"unknown command \\{name}")

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
                lower = type(self)(self.tokens_of_argument()).answer()
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
            bounds += [Text(mark), Text(flat(tokens))]
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

    def environment(self, name: str) -> Node:
        if name == "array":
            self.tokens_of_argument()
        if name in _LINES:
            # Lines of an alignment are items; the ampersands only place them.
            depth_end = self.find_end(name)
            inner = [t for t in self.tokens[self.at : depth_end] if t.value != "&"]
            if name == "cases":
                raise UnreadableError("a definition by cases")
            self.at = depth_end + 1
            return type(self)(inner).answer()
        if name not in _MATRICES and name != "vmatrix":
            raise UnreadableError(f"environment {name!r}")
        rows: list[tuple[Node, ...]] = []
        row: list[Node] = []
        cells = 0
        while True:
            if self.is_op("row") and self.peek().value == "[" and self.peek(2).kind == "num":
                while not self.is_op("]"):  # \\\\[8pt] only spaces the rows
                    self.at += 1
                self.at += 1
                self.tokens[self.at - 1] = Token("op", "row")
                self.at -= 1
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
                raise OverLimitError(f"a matrix of more than {cost.MAX_MATRIX_CELLS} cells")
        if not rows or any(len(r) != len(rows[0]) for r in rows):
            raise UnreadableError("a matrix with uneven rows")
        if name == "array" and cells == 1:
            return rows[0][0]
        matrix = Matrix(tuple(rows))
        return determinant(matrix) if name == "vmatrix" else matrix

    def find_end(self, name: str) -> int:
        for at in range(self.at, len(self.tokens)):
            if self.tokens[at].kind == "cmd" and self.tokens[at].value == f"end {name}":
                return at
        raise UnreadableError(f"environment {name!r} is left open")
