"""Kinds of answer that people have, each with right ones and near misses: (gold, prediction, equal)."""

from __future__ import annotations

import pytest

from r1zero.data.records import Problem
from r1zero.verifiers.math import math

T, F = True, False

KINDS: dict[str, list[tuple[str, str, bool]]] = {
    "a free whole number or constant of integration under another name": [
        (r"\frac{\pi}{4} + n\pi, n \in \mathbb{Z}", r"\frac{\pi}{4} + k\pi, k \in \mathbb{Z}", T),
        (r"x = 2\pi n + \frac{\pi}{6}", r"x = \frac{\pi}{6} + 2k\pi, k \in \mathbb{Z}", T),
        (r"\frac{\pi}{4} + n\pi", r"\frac{\pi}{4} + m\pi \text{ for any integer } m", T),
        (r"\frac{x^3}{3} + C", r"\frac{x^3}{3} + c", T),
        (r"e^x + C", r"e^x + K", T),
        (r"y = Ce^{2x}", r"y = c e^{2x}", T),
        (r"y = C_1 e^x + C_2 e^{-x}", r"y = A e^x + B e^{-x}", T),
        (r"\frac{\pi}{4} + n\pi, n \in \mathbb{Z}", r"\frac{\pi}{4} + 2k\pi, k \in \mathbb{Z}", F),
        (r"\frac{\pi}{4} + n\pi", r"\frac{\pi}{3} + k\pi, k \in \mathbb{Z}", F),
        (r"\frac{x^3}{3} + C", r"\frac{x^3}{3} + x", F),
        (r"\frac{x^3}{3} + C", r"\frac{x^2}{3} + c", F),
        (r"\frac{x^3}{3} + C", r"\frac{x^3}{3}", F),
        (r"y = Ce^{2x}", r"y = xe^{2x}", F),
        (r"n^2 + n", r"k^2 + k", F),
        (r"2n+1", r"2k+1", F),
        (r"R/r", r"r/R", F),
    ],
    "binomials and permutations however written": [
        (r"120", r"\binom{10}{3}", T),
        (r"120", r"C(10,3)", T),
        (r"120", r"C(10, 3)", T),
        (r"120", r"{}_{10}C_3", T),
        (r"120", r"_{10}C_{3}", T),
        (r"120", r"{}_{10}C_{3}", T),
        (r"120", r"10 \text{ choose } 3", T),
        (r"120", r"10 choose 3", T),
        (r"120", r"{10 \choose 3}", T),
        (r"120", r"C_{10}^{3}", T),
        (r"120", r"^{10}C_3", T),
        (r"\binom{10}{3}", r"C(10,3)", T),
        (r"\binom{n}{2}", r"C(n,2)", T),
        (r"\binom{n}{2}", r"C(n,3)", F),
        (r"720", r"P(10,3)", T),
        (r"720", r"{}_{10}P_3", T),
        (r"120", r"C(10,4)", F),
        (r"120", r"\binom{10}{4}", F),
        (r"120", r"{}_{10}C_4", F),
        (r"120", r"10 \text{ choose } 2", F),
        (r"C(10,3)", r"(10,3)", F),
        (r"120", r"{}_{10}P_3", F),
    ],
    "compound quantities": [
        (r"2.5 \text{ hours}", r"2 \text{ hours } 30 \text{ minutes}", T),
        (r"2.5 hours", r"2 hours and 30 minutes", T),
        (r"2 \text{ hours } 30 \text{ minutes}", r"150 \text{ minutes}", T),
        (r"2.5", r"2 \text{ hours } 30 \text{ minutes}", T),
        (r"150 minutes", r"2 hr 30 min", T),
        (r"2.5 hours", r"2 h 30 min", T),
        (r"63 \text{ inches}", r"5 \text{ ft } 3 \text{ in}", T),
        (r"5 feet 3 inches", r"5 ft 3 in", T),
        (r"5 feet 3 inches", r"5.25 feet", T),
        (r"5.25 feet", r"5'3''", T),
        (r"2.5 hours", r"2 hours 25 minutes", F),
        (r"2.5 hours", r"2.3 hours", F),
        (r"2.5 hours", r"150", F),
        (r"5 feet 3 inches", r"5 ft 4 in", F),
        (r"5 feet 3 inches", r"5.3 feet", F),
        (r"5 feet 3 inches", r"3 ft 5 in", F),
        (r"3 \text{ hours}", r"180 \text{ minutes}", T),
        (r"3 \text{ hours}", r"180 \text{ seconds}", F),
    ],
    "a system of equations against the tuple of its solution": [
        (r"(1,2)", r"\begin{cases} x = 1 \\ y = 2 \end{cases}", T),
        (r"\begin{cases} x = 1 \\ y = 2 \end{cases}", r"(1, 2)", T),
        (r"\begin{cases} x = 1 \\ y = 2 \end{cases}", r"x = 1, y = 2", T),
        (r"x = 1, y = 2", r"\begin{cases} y = 2 \\ x = 1 \end{cases}", T),
        (r"(1,2)", r"\left\{ \begin{array}{l} x = 1 \\ y = 2 \end{array} \right.", T),
        (r"(3,-1,2)", r"\begin{cases} x = 3, \\ y = -1, \\ z = 2. \end{cases}", T),
        (r"(1,2)", r"\begin{cases} x = 2 \\ y = 1 \end{cases}", F),
        (r"(1,2)", r"\begin{cases} x = 1 \\ y = 3 \end{cases}", F),
        (r"x = 1, y = 2", r"\begin{cases} x = 2 \\ y = 1 \end{cases}", F),
        (r"\begin{cases} x = 1 \\ y = 2 \end{cases}", r"(2, 1)", F),
        (r"(1,2)", r"\begin{cases} x = 1 \end{cases}", F),
        (r"(2,1)", r"\begin{cases} x + y = 3 \\ x - y = 1 \end{cases}", F),
    ],
    "no solution, none, the empty set": [
        (r"\emptyset", r"\text{no solution}", T),
        (r"\emptyset", r"no solutions", T),
        (r"\emptyset", r"\text{There are no real solutions}", T),
        (r"\emptyset", r"None", T),
        (r"\text{no solution}", r"\emptyset", T),
        (r"\text{No solution}", r"\varnothing", T),
        (r"\text{None}", r"\text{no solution}", T),
        (r"\varnothing", r"\{\}", T),
        (r"\text{no real solutions}", r"\emptyset", T),
        (r"\text{no solution}", r"\text{no solution exists}", T),
        (r"\text{no solutions}", r"x \in \emptyset", T),
        (r"\emptyset", r"0", F),
        (r"\emptyset", r"\{0\}", F),
        (r"0", r"\text{no solution}", F),
        (r"0", r"\text{none}", F),
        (r"\emptyset", r"\text{all real numbers}", F),
        (r"\text{no solution}", r"\text{infinitely many solutions}", F),
        (r"\emptyset", r"\text{one solution}", F),
        (r"\{\emptyset\}", r"\emptyset", F),
        (r"\text{no}", r"\emptyset", F),
    ],
    "unit vectors, angle brackets and columns against each other": [
        (r"\mathbf{i} + 2\mathbf{j}", r"\langle 1, 2 \rangle", T),
        (r"\langle 1,2\rangle", r"i + 2j", T),
        (r"\langle 1,2\rangle", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", T),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\mathbf{i}+2\mathbf{j}", T),
        (r"(1,2,3)", r"\hat{i} + 2\hat{j} + 3\hat{k}", T),
        (r"2\mathbf{i} - \mathbf{k}", r"\langle 2, 0, -1 \rangle", T),
        (r"\begin{pmatrix} 3 \\ -1 \\ 2 \end{pmatrix}", r"3\vec{i} - \vec{j} + 2\vec{k}", T),
        (r"\mathbf{i} + 2\mathbf{j}", r"\mathbf{j}2 + \mathbf{i}", T),
        (r"\langle 1,2\rangle", r"2i + j", F),
        (r"\langle 1,2\rangle", r"i - 2j", F),
        (r"\langle 1,2\rangle", r"1 + 2i", F),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\langle 2,1\rangle", F),
        (r"(1,2,3)", r"\hat{i} + 2\hat{j}", F),
        (r"\langle 1,2\rangle", r"\begin{pmatrix} 1 & 2 \end{pmatrix}", T),
        (r"1+2i", r"\langle 1,2\rangle", F),
    ],
    "a segment or a numeral under a bar": [
        (r"\overline{AB}", r"\overline{BA}", T),
        (r"\overline{AB}", r"\overline{AC}", F),
        (r"\overline{CD}", r"DC", F),
        (r"\overline{PQ}", r"\overline{QP}", T),
        (r"\overline{ab}", r"\overline{ba}", F),
        (r"\overline{ab}", r"10a+b", T),
        (r"\overline{abc}", r"100a+10b+c", T),
        (r"\overline{ab}", r"ab", F),
        (r"\overline{ab}", r"10b+a", F),
        (r"AB", r"BA", T),
        (r"\overline{AB} = 5", r"\overline{BA} = 5", T),
        (r"\overrightarrow{AB}", r"\overrightarrow{BA}", F),
        (r"\overrightarrow{AB}", r"\overrightarrow{AB}", T),
        (r"\overline{5a}", r"50 + a", T),
        (r"\overline{ABC}=123", r"123", T),
    ],
    "marks, and units that the gold leaves out": [
        (r"\text{B}-", r"B minus", T),
        (r"B-", r"\text{B minus}", T),
        (r"B+", r"B plus", T),
        (r"\text{A}^-", r"A-", T),
        (r"B-", r"B", F),
        (r"B-", r"B plus", F),
        (r"5", r"5 m", T),
        (r"5", r"5\text{ m}", T),
        (r"5", r"5m", F),
        (r"5", r"5 \mathrm{m}", T),
        (r"5", r"5 \text{ cm}", T),
        (r"5", r"6 m", F),
        (r"5m", r"5", F),
        (r"5", r"5x", F),
        (r"5", r"5m^2", F),
        (r"9.8", r"9.8 m/s^2", T),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_of_a_kind_is_judged_as_labelled(kind: str) -> None:
    rows = KINDS[kind]
    assert sum(equal for *_, equal in rows) >= 4
    assert sum(not equal for *_, equal in rows) >= 2
    wrong = []
    for gold, pred, equal in rows:
        verdict = math(rf"The result is $\boxed{{{pred}}}$.", gold)
        if verdict.correct != equal or verdict.outcome == "error":
            wrong.append((gold, pred, verdict.outcome, verdict.reason))
    assert not wrong


@pytest.mark.parametrize(
    ("question", "gold", "pred", "equal"),
    [
        ("How many hours does it take?", "2.5", r"150 \text{ minutes}", T),
        ("How many hours does it take?", "2.5", "2 h 30 min", T),
        ("How many hours does it take?", "2.5", r"2.5 \text{ minutes}", F),
        ("How many hours does it take?", "2.5", r"2.5 \text{ hours}", T),
        ("How many minutes does it take?", "150", "2.5 hours", T),
        ("How many hours, and how many minutes?", "2.5", r"2.5 \text{ minutes}", T),  # two are asked for: none is known
        ("Find the length of the rod in meters.", "5", "5m", T),
        ("Find the length of the rod in meters.", "5", "5h", F),
        ("Find the length of the rod in meters.", "5000", "5 km", T),
        ("Find the length of the rod in meters.", "5", "5 km", F),
        ("What is the area in square meters?", "12", "12 m^2", T),
        ("What is the area in square meters?", "12", "12 m", F),
        ("How many apples are left?", "5", r"5 \text{ apples}", T),
        ("", "5", "5m", F),  # a product of 5 and m, as far as anybody knows
    ],
)
def test_the_unit_that_the_question_asks_for_is_the_golds(question: str, gold: str, pred: str, equal: bool) -> None:
    verdict = math(rf"\boxed{{{pred}}}", gold, problem=Problem(id="", prompt=question))
    assert verdict.correct == equal, verdict.reason
