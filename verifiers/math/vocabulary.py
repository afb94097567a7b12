"""What commands, names and words mean: the tables behind `tokens`."""

from __future__ import annotations

import re


def words(text: str) -> list[str]:
    """A table of names, written as one string."""
    return text.split()


GREEK = words(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau "
    "upsilon phi chi psi omega varepsilon vartheta varphi varrho varsigma Gamma Delta Theta Lambda Xi Pi "
    "Sigma Upsilon Phi Psi Omega"
)
FUNCTIONS = {
    name: name
    for name in (
        words("sin cos tan cot sec csc sinh cosh tanh coth exp ln arcsin arccos arctan arccot max min gcd lcm")
    )
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
WORD_CONSTANTS = {"pi", "infinity", "inf", "infty", "emptyset"}
OPERATORS = {
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
SKIPPED = set(
    words(
        "left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle "
        "scriptstyle limits nolimits thinspace medspace thickspace negthinspace nonumber notag mathstrut strut bf "
        "rm it sf tt boldmath mathrm mathbf normalsize large Large small hline null centering bigm Bigm middle"
    )
)
DROPPED_WITH_ARGUMENT = {
    "color",
    "phantom",
    "hphantom",
    "vphantom",
    "hspace",
    "vspace",
    "label",
    "tag",
    "mspace",
    "kern",
}
TEXT_COMMANDS = {"text", "textbf", "textit", "textrm", "textnormal", "mbox", "hbox", "textsf", "texttt", "emph"}
INLINE_COMMANDS = {
    *("mathrm", "mathbf", "mathit", "mathsf", "mathtt", "operatorname", "boldsymbol", "bm", "rm", "bf", "underline"),
    *("mathcal", "mathscr", "boxed", "fbox", "uline", "textcolor", "displaylimits", "ensuremath", "mathopen"),
}
COMMANDS = {
    *(
        "frac",
        "dfrac",
        "tfrac",
        "cfrac",
        "sqrt",
        "cbrt",
        "qdrt",
        "binom",
        "dbinom",
        "tbinom",
        "sum",
        "prod",
        "int",
        "lim",
    ),
    *(
        "iint",
        "oint",
        "overline",
        "bar",
        "widehat",
        "hat",
        "vec",
        "overrightarrow",
        "dot",
        "ddot",
        "tilde",
        "widetilde",
    ),
    *("pmod", "limsup", "liminf", "sup", "inf"),
}
NUMERAL = re.compile(r"(?=.*[A-Z])[0-9A-Z]{2,}")
RUN_ON = re.compile(r"(sin|cos|tan|cot|sec|csc|ln|log|pi|theta|alpha|beta|cdot|times|pm)([a-zA-Z]{1,2})")
BLACKBOARD = {"R": "reals", "Z": "integers", "N": "naturals", "Q": "rationals", "C": "complexes"}
NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        words(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
            "seventeen eighteen nineteen"
        )
    )
} | {
    word: 10 * tens for tens, word in enumerate(words("twenty thirty forty fifty sixty seventy eighty ninety"), start=2)
}
# Short words that are never products of letters.
WORDS = set(
    words(
        "yes no not the any all for may red per pct is an if are to by of does dne none only nan ways way am pm "
        "both but true false even odd undefined else day days men man cats dogs"
    )
)
