"""Each rule of equality at its edge: for a gold answer, what is accepted and what only looks like it.

Rows are of our own making, not from any data set. An answer is put in a box, except for the rows on prose.
"""

from __future__ import annotations

import pytest

from r1zero.verifiers.math import math


def judged(gold: str, answers: list[str], *, prose: bool = False) -> dict[str, bool]:
    return {answer: math(answer if prose else rf"\boxed{{{answer}}}", gold).correct for answer in answers}


def holds(gold: str, accepted: list[str], refused: list[str], *, prose: bool = False) -> None:
    """Fails with the answers that are judged otherwise."""
    assert [answer for answer, right in judged(gold, accepted, prose=prose).items() if not right] == []
    assert [answer for answer, right in judged(gold, refused, prose=prose).items() if right] == []


# Prose around an answer


@pytest.mark.parametrize(
    "said",
    [
        "The answer is 5, maybe 7.",
        "5. Or 7.",
        "The answer is 5. Or 7.",
        "The answer is 5 or 7.",
        "The answer is 5, or 7.",
        "The answer is 5; or 7",
        "The answer is 5 (or 7).",
        "The answer is 5. Or maybe 7.",
        "The answer is 5, perhaps 7.",
        "The answer is 5. Alternatively, 7.",
        "The answer is 5, alternatively 7",
        "The answer is 5, but could be 7.",
        "The answer is 5. No, 7.",
        "The answer is 5. Actually, 7.",
        "The answer is 5? No, 7.",
        "The answer is 5. Wait, it is 7.",
        "The answer is 5. It could also be 7.",
        "The answer is 5, possibly 7",
        "The answer is 5 or else 7.",
        "The answer is 5. Hmm, or 7.",
        "Answer: 5. Or 7.",
        "#### 5 or 7",
        "#### 5. Or 7.",
        "#### 5, maybe 7",
        "The answer is either 5 or 7.",
        "The answer is 5, else 7.",
        "The answer is not 5.",
        "The answer is 5, if not 7.",
        "The answer is 5, unless 7.",
        "The answer is 5. Otherwise 7.",
        "The answer is 5. If that is wrong, 7.",
        "The answer is $5$. Or $7$.",
        "The answer is $5$, maybe $7$.",
        "The answer is **5**. Or **7**.",
        "The answer is **5**, maybe **7**.",
        "5, maybe 7",
        "5 or 7",
        "5, or maybe 7.",
        "The answer is 5. Correction: 7.",
        "The answer is 5. I mean 7.",
        "The answer is 5. Sorry, 7.",
        "The answer is 5. Then again, 7.",
        "The answer is 5. On second thought, 7.",
        "The answer is 5, but 7 is also possible.",
        "The answer is 5. Not 5, but 7.",
        "The answer is 5... or 7",
        "<answer>5. Or 7.</answer>",
        "<answer>5, maybe 7</answer>",
        "<answer>The answer is 5, maybe 7.</answer>",
        "<answer>The answer is 5. Or 7.</answer>",
        r"\boxed{5}, maybe \boxed{7}",
        r"\boxed{5}. Or \boxed{7}.",
        r"\boxed{5 \text{, maybe } 7}",
        r"\boxed{5. Or 7.}",
        r"\boxed{7}. Or \boxed{5}.",
        r"\boxed{7}, maybe \boxed{5}.",
        "It is 7, maybe 5.",
        "So 7. Or 5.",
        "The result is 7 or perhaps 5.",
        "**5** or **7**",
        "$7$ or $5$",
        "So it is $7$, or maybe $5$.",
        "So it is $7$. Or $5$.",
        "The answer is 5 or thereabouts, maybe 6",
        "The answer is 7. Or 5.",
    ],
)
def test_another_answer_offered_beside_the_first_is_no_answer(said: str) -> None:
    assert not math(said, "5").correct
    assert not math(said, "7").correct


@pytest.mark.parametrize(
    "said",
    [
        "The answer is 5, as required.",
        "The answer is 5. This uses 7 steps.",
        "The answer is 5, since 7-2=5.",
        "The answer is 5. I hope it is correct.",
        "The answer is 5, not 7.",
        "The answer is 5 because 3+2=5.",
        "The answer is 5, which is less than 7.",
        "#### 5",
        "The answer is 5 apples.",
        "The answer is 5, or five.",
        "We have 3 or 4 at first. The answer is 5.",
        "Therefore the answer is $5$, as 10/2 = 5.",
        r"The answer is \boxed{5}. You may check with 7 or 8.",
        "Is it 7? No. The answer is 5.",
        "Maybe 7? No, the answer is 5.",
        "The answer is 5 dollars.",
        "The answer is $5$. Let me know if you have any questions!",
        "The answer is 5, and we are done.",
        "I could be wrong, but the answer is 5.",
        "The answer is 5. Or, in words, five.",
        "The answer is 5, or 5.0.",
        "So he has 5 left or so.",
    ],
)
def test_words_after_an_answer_that_offer_no_other_leave_it_alone(said: str) -> None:
    assert math(said, "5").correct


# What is equal to what

INTERVALS = [
    (
        r"(5,\infty)",
        [
            "x>5",
            "5<x",
            "t > 5",
            r"x \in (5,\infty)",
            "2x>10",
            "x-5>0",
            "5-x<0",
            r"\alpha>5",
            "x_1>5",
            r"\theta > 5",
            "f(x) > 5",
            "-x<-5",
            "3x+1>16",
            r"\{x \mid x>5\}",
        ],
        [
            "x^3>5",
            r"\ln x>5",
            r"\sqrt x>5",
            "e^x>5",
            "2^x>5",
            "x^2>5",
            "|x|>5",
            r"\frac1x>5",
            "x>=5",
            "xy>5",
            "x+y>5",
            r"\sin x>5",
            "x^2+1>5",
            "-x>5",
            "x!>5",
            r"\sqrt{x+1}>5",
            r"\log_2 x > 5",
            r"\lfloor x\rfloor>5",
            "f(x)^2>5",
            "x^{1/3}>5",
            "x^{-1}>5",
            r"\ln(x)>5",
            "x^x>5",
            "|x-1|>5",
        ],
    ),
    (
        r"(-\infty,2)\cup(3,\infty)",
        [
            r"x<2 \text{ or } x>3",
            "x<2 or x>3",
            r"x\in(-\infty,2)\cup(3,\infty)",
            r"x<2\lor x>3",
            "x<2, x>3",
            r"x>3\text{ or }x<2",
            "(x-2)(x-3)>0",
            "x^2-5x+6>0",
        ],
        [r"x<2 \text{ and } x>3", "x<2 and x>3", r"x<2\land x>3", "2<x<3", "x<2", r"x<2 \text{ or } x>4"],
    ),
    (
        "(2,3)",
        ["2<x<3", r"x>2 \text{ and } x<3", "x>2, x<3", "x<3 and 2<x", "|x-2.5|<0.5", "(x-2)(x-3)<0"],
        [r"x>2 \text{ or } x<3", "x>2", "4<x^2<9", r"2<\sqrt x<3", "2<e^x<3", "(2,4)"],
    ),
    ("x>5", [r"(5,\infty)", "5<x"], ["x^3>125+1", "x^3>5", r"\ln x>5"]),
    (r"[0,\infty)", [r"x\ge 0"], [r"\sqrt{x}>0", r"e^x\ge 0", r"|x|\ge 0", r"x^2\ge 0"]),
    (r"(-\infty,2)\cup(2,\infty)", [r"x\ne 2", "x<2 or x>2"], [r"x^3\ne2", "x<2 and x>2", r"\ln x\ne 2"]),
    ("x^3>8", ["x^3>8"], []),
]
EQUATIONS = [
    (
        "5",
        [
            "x=5",
            "f(2)=5",
            "x_1=5",
            "f'(2)=5",
            "AB=5",
            r"\angle ABC=5",
            "|AB|=5",
            "n = 5",
            r"\text{Area}=5",
            "x=2+3=5",
            "a_{10}=5",
            r"\theta=5",
            "m+n=5",
            r"\overline{AB}=5",
            "S_5=5",
            "P(X)=5",
            r"\frac{a}{b}=5",
            "x+y=5",
            "ab=5",
            "a+b+c=5",
            r"x = \frac{10}{2} = 5",
            "[ABC]=5",
        ],
        [
            "-x=5",
            "|x|=5",
            r"\ln x=5",
            r"\sin x=5",
            "x^2=5",
            r"\sqrt x=5",
            "-m-n=5",
            r"x=7\approx5",
            "x=7=5",
            "2x=5",
            "x-2=5",
            "2x+1=5",
            "1/x=5",
            "e^x=5",
            "x^{-1}=5",
            "x!=5",
            r"\lfloor x\rfloor=5",
            r"x\ne5",
            "5=7",
            r"x=3\approx 5",
            "-f(2)=5",
            "x=4.9 = 5",
            "5=4",
            "x<5",
            r"\max(x,y)=5",
            "|x-1|=5",
            r"x=\frac{22}{7}=5",
        ],
    ),
    ("113", ["m+n=113"], ["-m-n=113", "m^2+n=113", "-(m+n)=113", "m-n=112"]),
    ("2", [], [r"\ln x=2", "x^2=2", r"\log_2 x=2"]),
    ("0.5", [], [r"\sin x=0.5"]),
    ("7", [r"x = 7 \approx 7.0"], [r"x=7\approx5"]),
    (r"\sqrt{2}", [r"x=\sqrt2\approx1.414", r"\sqrt2\approx1.414"], [r"x=\sqrt2\approx1.5", r"\sqrt2\approx 2"]),
    ("1.414", [], [r"x=1.5\approx1.414"]),
    ("5", ["5=x", "5 = f(2)", "5=n"], ["5=x^2", "5=-x", "5=7", "5=2x", r"5=\ln x", r"5\approx x=7"]),
]
ROUNDED = [
    (
        "12.0",
        ["12.0", "12", "12.00", r"\frac{24}{2}", r"\sqrt{144}"],
        ["12.04", "12.049", "11.96", "12.05", "11.9999", "12.01", r"12+\frac{1}{30}"],
    ),
    (
        "3.50",
        ["3.5", "3.50", "7/2", r"\frac72", r"3\frac12"],
        ["3.504", "3.496", "3.501", "3.5049", r"3.5+\frac1{3000}"],
    ),
    ("0.333", ["1/3", "0.333"], ["0.3334", "0.33", "0.3333333", "0.3326"]),
    ("3.14", [r"\pi", "3.14"], ["3.141", "3.1416", "3.136", "3.145"]),
    ("2.5e3", ["2500"], ["2510", "2549", "2504"]),
    ("6.02e23", [r"6.02\times10^{23}"], ["6.03e23", "6.1e23"]),
    ("100.0", ["100"], ["100.04", "99.96", r"\frac{1001}{10}"]),
    ("12.5", ["25/2"], ["12.54", "12.46"]),
    ("1.0e3", ["1000"], ["1040", "1049", "1001"]),
]
LISTS = [
    ("1", ["1"], ["1,1", "1, 1", "(1,1)", r"1 \text{ and } 1", "(1,)"]),
    ("5", ["5", r"\{5\}"], ["(5,)", "5, 5", "(5,5)", "[5,]"]),
    (r"\{1,2\}", [r"\{1,2\}", r"\{2,1\}", r"\{1,2,2\}"], ["(1,2)"]),
    ("1,2", ["2,1", "1, 2"], ["1,2,3"]),
    ("1,1", ["1,1"], ["1,1,2"]),
    ("x=1", ["1", "x=1"], ["1,1", "x=1,1", "x=1, y=1"]),
]
TEXTS = [
    (r"\text{3.5 hours}", ["3.5 hours", r"3.5\text{ hours}"], [r"\text{35 hours}", r"\text{3 5 hours}"]),
    (r"\text{version 1.5}", [r"\text{version 1.5}"], [r"\text{version 15}", r"\text{version 1 5}"]),
    ("January 1.5", ["January 1.5"], ["January 15", "January 1 5"]),
    (r"\text{Team 2.0}", [r"\text{team 2.0}"], [r"\text{team 20}", r"\text{team 2 0}"]),
    (r"\text{Room 1,000}", [], [r"\text{Room 1 000 1}"]),
]
FUNCTIONS = [
    (
        r"6.63\times10^{-34}\sqrt{x}",
        [r"6.63e-34 \sqrt{x}"],
        [r"9.9\times10^{-34}\sqrt{x}", r"6.64\times10^{-34}\sqrt{x}", "0"],
    ),
    (r"10^{-40}\sin x", [], [r"10^{-40}\cos x", r"2\cdot10^{-40}\sin x", "0"]),
    (r"\lfloor t\rfloor", [r"\lfloor t \rfloor"], ["t", r"\lceil t\rceil", "t-1", r"\lfloor t\rfloor+1"]),
    ("n", [], [r"\lfloor n\rfloor", r"\lceil n\rceil"]),
    (r"\lceil x\rceil", [r"-\lfloor -x\rfloor"], [r"\lfloor x\rfloor+1", "x"]),
    (
        r"\lfloor n/2\rfloor",
        [r"\frac{n}{2}-\frac{1-(-1)^n}{4}", r"\lfloor \frac{n}{2}\rfloor"],
        ["n/2", r"\frac{n-1}{2}"],
    ),
    (r"\lceil \frac{n}{2}\rceil", [r"\lfloor\frac{n+1}{2}\rfloor"], [r"\lfloor \frac n2\rfloor"]),
    (r"\lfloor\frac{n^2}{4}\rfloor", [r"\lfloor\frac n2\rfloor\lceil\frac n2\rceil"], [r"\frac{n^2}{4}"]),
    (r"1-\cos(10^{-20}x)", [r"2\sin^2(10^{-20}x/2)"], ["0", r"\sin^2(10^{-20}x)"]),
    (r"\sin x+10^{-35}", [], [r"\sin x"]),
    ("e^{-100 x}", [r"\frac{1}{e^{100x}}"], ["e^{-101x}", "0"]),
    ("e^x", ["e^x"], ["e^x+10^{-40}"]),
    (r"\sqrt{x^2+1}-x", [r"\frac{1}{\sqrt{x^2+1}+x}"], []),
    (r"\cos^2x+\sin^2x-1", ["0"], ["10^{-32}"]),
    (r"x \bmod 2", [], ["x", "0", "x-2"]),
]
TIMES_AND_RATIOS = [
    ("2:30", ["2:30", "02:30", "2:30 pm", r"2:30\text{ p.m.}"], ["1:15", "3:30"]),
    ("2:1", ["4:2", "2:1", r"2\text{ to }1", "6:3"], ["1:2", "3:1"]),
    ("3:5", ["6:10", "3:5"], ["5:3"]),
    ("12:45", ["12:45"], ["4:15", "8:30"]),
    ("1:15", ["1:15"], ["2:30"]),
    ("10:45", ["10:45", "2:9"], ["1:15"]),
    ("1:2:3", ["2:4:6"], ["1:3:2"]),
    (r"7:30\text{ a.m.}", ["7:30", r"7:30\text{ am}"], [r"7:30\text{ pm}", "1:4"]),
]


UNITS = [
    (
        r"5\text{ meters}",
        ["5 m", r"5\text{ m}", r"5\,\mathrm{m}", "5m", "500 cm", r"5\text{ meter}"],
        ["5 km", "5 s", "5x", "5 n", "6 m"],
    ),
    ("5 m", [r"5\text{ meters}", r"5\text{ m}", "5 m", "500 cm"], ["5 s", "6 m", "5 km"]),
    (r"20\text{ N}", ["20 N", r"20\,\mathrm N", "20", "20 newtons"], ["20 J", r"20\text{ m}", "20 kg"]),
    ("20 N", ["20 N", "20 newtons", r"20\text{ N}"], ["20 J", "21 N"]),
    ("20 newtons", ["20 N", r"20\text{ N}"], ["20 J", "20 M"]),
    (
        r"10\text{ m/s}",
        [
            "10 m/s",
            r"10\,\mathrm{m/s}",
            r"10\ \text{m}\cdot\text{s}^{-1}",
            "10",
            r"10\,\mathrm{m\,s^{-1}}",
            "10 meters per second",
            r"36\text{ km/h}",
        ],
        ["10 km/h", "10 m", "10 s/m", r"10\text{ m/s}^2"],
    ),
    ("10 m/s", ["10 m/s", "10 meters per second", r"10\text{ m/s}"], ["10 km/h", "10 m", "10 s"]),
    (r"5\text{ kg}", ["5 kg", "5000 g", r"5000\text{ grams}", "5", "5000 grams"], ["50 g", "5 g", "5000", "5000 m"]),
    ("5000 grams", ["5 kg", r"5000\text{ g}", "5000 g"], ["5 g"]),
    ("5m", ["5m", "m5", r"5\cdot m"], ["6m"]),
    ("5g", ["5g"], ["5n", "5000"]),
    ("5", [r"5\text{ m}", "5 kg"], ["5x", "5n", "5k"]),
    ("2s", ["2s", "s2"], ["2t", "2"]),
    ("10 hours", ["10 h", "10 hr", "10h", "600 minutes"], ["10 s", "10 m"]),
    ("30 seconds", ["30 s", "30s"], ["30 m", "30 t", "30 h"]),
    ("5x", ["5x"], ["5", "5 m"]),
    (r"100\text{ J}", ["100 J", "100 joules"], ["100 N", "100 K"]),
    (r"9.8\text{ m/s}^2", [r"9.8\ \mathrm{m/s^2}", "9.8 m/s^2"], ["9.8 m/s"]),
]
NOTATIONS = [
    (
        "5",
        [
            "a total of 5 apples",
            r"\text{a total of 5 apples}",
            "5 apples in total",
            "exactly 5 apples",
            r"\text{exactly } 5",
            r"\text{There are 5 apples}",
        ],
        [
            "half of 5 apples",
            "a total of 5 or 6",
            "at least 5 apples",
            "nearly 5",
            "a total of 5 dozen",
            "a total of 6 apples",
            "no more than 5",
            "5 of 7 apples",
            "twice a total of 5",
        ],
    ),
    (
        r"\frac13",
        ["0.333...", r"0.333\ldots", r"0.\overline{3}", r"0.\dot{3}", r"0.3333\dots", "0.33…"],
        ["0.333", "0.34...", "0.3", "0.3334..."],
    ),
    (r"\frac{1}{7}", ["0.142857142857...", r"0.\overline{142857}"], ["0.142857", "0.143..."]),
    (r"\frac{1}{6}", ["0.1666...", r"0.1\overline{6}"], ["0.166", "0.16...7"]),
    ("1", ["0.999...", r"0.999\ldots"], ["0.999"]),
    (r"\pi", [r"\pi"], [r"3.14159\ldots", "3.14..."]),
    ("0.123", ["0.123"], ["0.123..."]),
    (r"\frac12", [r"1 \over 2", r"{1\over2}", r"1\over 2"], [r"2\over1", r"1\over 2 \over 3"]),
    (r"\frac{x+1}{2}", [r"x+1 \over 2", r"{x+1 \over 2}"], [r"x+\frac12"]),
    (
        "-2",
        [r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", r"\det\begin{pmatrix}1&2\\3&4\end{pmatrix}"],
        [r"\begin{vmatrix}1&2\\3&5\end{vmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"],
    ),
    ("x^2-1", [r"\begin{vmatrix}x&1\\1&x\end{vmatrix}"], [r"\begin{vmatrix}1&x\\x&1\end{vmatrix}"]),
    (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", ["-2"], ["2"]),
    (
        "-5",
        ["minus five", r"\text{minus five}", "negative five", "minus 5", r"\text{negative } 5", r"\text{minus }5"],
        ["five", "minus six", "5", "minus minus five"],
    ),
    ("5", ["five"], ["minus five", "negative 5", r"\text{minus }5"]),
    (r"-\frac12", [r"\text{negative }\frac12"], ["one half"]),
    ("-27", ["minus twenty-seven", r"\text{negative twenty-seven}"], ["twenty-seven"]),
    (
        "1",
        ["1^{10^{10^{10}}}", "1^{999999999999}", "(-1)^{10^{100}}", "1^{2^{2000}}"],
        ["2^{10^{10^{10}}}", "(-1)^{10^{100}+1}"],
    ),
    ("0", ["0^{10^{100}}"], []),
]
RULES = {
    "an inequality is an interval of its solutions": INTERVALS,
    "an equation answers only with a name on its side": EQUATIONS,
    "a tolerance needs a gold that is rounded": ROUNDED,
    "a value is no list of itself twice": LISTS,
    "words keep the points of their numbers": TEXTS,
    "functions differ however small or seldom": FUNCTIONS,
    "times of day are no ratios": TIMES_AND_RATIOS,
    "a unit may be a letter beside one in words": UNITS,
    "other ways to write a number are read": NOTATIONS,
}


@pytest.mark.parametrize(
    ("gold", "accepted", "refused"),
    [pytest.param(*row, id=f"{rule}: {row[0]}") for rule, table in RULES.items() for row in table],
)
def test_a_rule_of_equality_holds_at_its_edge(gold: str, accepted: list[str], refused: list[str]) -> None:
    holds(gold, accepted, refused)


@pytest.mark.parametrize(
    ("said", "gold"), [("So we get minus 5.", "-5"), ("We find minus $5$.", "-5"), ("10 minus 5 leaves 5.", "5")]
)
def test_a_sign_said_before_the_last_number_is_its_sign(said: str, gold: str) -> None:
    assert math(said, gold).correct
    assert not math(said, gold.removeprefix("-") if gold.startswith("-") else f"-{gold}").correct
