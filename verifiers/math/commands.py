"""The middle of the grammar: functions with their arguments, LaTeX commands, and environments such as matrices."""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction

from r1zero.verifiers.math import calculus, cost
from r1zero.verifiers.math.cursor import Cursor
from r1zero.verifiers.math.names import under_a_bar, under_an_arrow
from r1zero.verifiers.math.nodes import (
    MINUS_ONE,
    Call,
    Const,
    Degrees,
    Matrix,
    Mul,
    Node,
    Num,
    OverLimitError,
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
from r1zero.verifiers.math.numerals import flat
from r1zero.verifiers.math.tokens import Token
from r1zero.verifiers.math.vocabulary import words as _list

_SIDE = re.compile(r"\^\{?([+-])\}?$")
_HALF = Num(Fraction(1, 2))
_MATRICES = set(_list("pmatrix bmatrix matrix array smallmatrix Bmatrix psmallmatrix bsmallmatrix"))
_LINES = set(_list("aligned align cases gather gathered equation split eqnarray"))
_INVERSES = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sinh", "cosh", "tanh")}


def _is_solution(node: Node) -> bool:
    """True for a system that gives each of its names a value: x = 1, y = 2."""
    items = node.items if isinstance(node, Seq) else (node,)
    names = [item.operands[0] for item in items if isinstance(item, Relation) and item.ops == ("=",)]
    return len(names) == len(items) and all(isinstance(name, Sym) for name in names) and len(set(names)) == len(names)


class Commands(Cursor):
    """What a name of a function or a backslash begins."""

    integrals = 0
    """How many integrals are being read, one inside another."""

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
            if self.integrals and self.token.value == "d" and self.peek().kind == "sym":
                break  # the dx of the integral
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
                return self.quotient(top, self.argument(single_digit=True))
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
                if name in ("overline", "bar"):
                    return under_a_bar(inner)
                if name in ("vec", "overrightarrow"):
                    return under_an_arrow(name, inner)
                return Call({"widehat": "hat"}.get(name, name), (inner,))
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

    def quotient(self, top: Node, bottom: Node) -> Node:
        """A fraction, or the derivative of the rest of the product: \\frac{d}{dx} x^2."""
        match top, bottom:
            case Sym("d"), Mul((Sym("d"), Sym() as variable)) if self.starts_factor(self.token):
                return Call("derivative", (self.product(), variable))
        return divide(top, bottom)

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
        """A definite integral, a limit; any other is kept as written, equal only to itself."""
        bounds: list[Node] = []
        read: dict[str, Node] = {}
        side = ""
        while self.is_op("_", "^"):
            mark = self.token.value
            self.at += 1
            tokens = self.tokens_of_argument()
            bounds += [Text(mark), Text(flat(tokens))]
            if name == "lim" and len(tokens) > 2 and (found := _SIDE.search("".join(t.value for t in tokens))):
                side = found[1]
                tokens = tokens[: -len(found[0])]
            with suppress(UnreadableError):
                read[mark] = type(self)(tokens).answer()
        if name == "lim":
            body = self.product()
            return calculus.limit(body, read.get("_"), side) or Call("opaque lim", (body, *bounds))
        self.integrals += 1
        start = self.at
        body = self.product()
        found_integral = calculus.integral(body, read.get("_"), read.get("^")) if name == "int" else None
        if name == "int" and found_integral is None and self.is_op("+", "-"):  # x^2 + 1 dx
            end, self.at = self.at, start
            found_integral = calculus.integral(self.sum(), read.get("_"), read.get("^"))
            self.at = self.at if found_integral is not None else end
        self.integrals -= 1
        return found_integral or Call("opaque " + name, (body, *bounds))

    def environment(self, name: str) -> Node:
        if name == "array":
            self.tokens_of_argument()
        if name in _LINES:
            # Lines of an alignment are items; the ampersands only place them.
            depth_end = self.find_end(name)
            lines = self.tokens[self.at : depth_end]
            inner = [t for t in lines if t.value != "&"]
            self.at = depth_end + 1
            node = type(self)(inner).answer()
            if name == "cases" and not _is_solution(node):
                raise UnreadableError("a definition by cases")
            return node
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
