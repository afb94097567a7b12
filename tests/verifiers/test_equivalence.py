"""`sympy` and `math_verify`: other people's notions of equality, kept in bounds."""

import signal
import threading

import pytest

from r1zero.verifiers import Outcome, Sample, VerifierPool, VerifierSpec
from r1zero.verifiers.math import math
from r1zero.verifiers.math.by_sympy import check_cost, to_sympy
from r1zero.verifiers.math.nodes import OverLimitError, UnreadableError
from r1zero.verifiers.math.parse import parse
from r1zero.verifiers.registry import get

C, W, U, T = Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSEABLE, Outcome.TRUNCATED

PAIRS = [
    ("1/2", r"\frac{2}{4}", C),
    ("1/2", "0.5", C),
    ("1/2", "0.51", W),
    (r"2\sqrt{3}", r"\sqrt{12}", C),
    (r"2\sqrt{3}", r"\sqrt{13}", W),
    ("x^2-4", "(x-2)(x+2)", C),
    ("x^2-4", "(x-2)^2", W),
    (r"\{1, 2\}", r"\{2, 1\}", C),
    (r"\{1, 2\}", r"\{1, 3\}", W),
    ("(1, 2)", "(1, 2)", C),
    ("(1, 2)", "(2, 1)", W),
]


@pytest.mark.parametrize(("gold", "pred", "outcome"), PAIRS)
@pytest.mark.parametrize("name", ["sympy", "math_verify"])
def test_equal_answers_are_correct_however_they_are_written(name: str, gold: str, pred: str, outcome: Outcome) -> None:
    pytest.importorskip("math_verify")
    verdict = get(name)(Sample(completion=rf"So it is $\boxed{{{pred}}}$.", answer=gold))
    assert verdict.outcome is outcome, verdict.reason
    assert pred.replace(" ", "") in (verdict.extracted or "").replace(" ", "")


@pytest.mark.parametrize(
    ("gold", "pred", "outcome"),
    [
        (r"1 + \tan^2 x", r"\sec^2 x", C),
        (r"1 - \tan^2 x", r"\sec^2 x", W),
        ("n(n+1)/2", r"\sum_{k=1}^{n} k", C),
        ("n(n-1)/2", r"\sum_{k=1}^{n} k", W),
        ("5", "x = 5", C),
        ("x = 5", "y = 5", W),
        ("x = 1, y = 2", "x = 2, y = 1", W),
        ("5", "1/0", W),
        ("5", r"\int_0^1 x", U),
        ("5", r"9^{9^{9^{9}}}", U),
        ("5", r"x^{9999}", U),
        ("5", "__import__('os')", U),
    ],
)
def test_sympy_judges_what_our_parser_reads(gold: str, pred: str, outcome: Outcome) -> None:
    verdict = get("sympy")(Sample(completion=rf"\boxed{{{pred}}}", answer=gold))
    assert verdict.outcome is outcome, verdict.reason


def test_a_gold_that_sympy_has_no_form_for_is_an_error_of_ours() -> None:
    assert get("sympy")(Sample(completion=r"\boxed{5}", answer=r"\text{odd}")).outcome is Outcome.ERROR


def test_only_nodes_of_our_own_tree_become_sympy_objects() -> None:
    import sympy

    assert to_sympy(parse("2x + e^{i}")) == 2 * sympy.Symbol("x") + sympy.exp(sympy.I)
    with pytest.raises(UnreadableError, match="no form in sympy for Text"):
        to_sympy(parse(r"\text{import os}"))
    with pytest.raises(OverLimitError):
        check_cost(parse("(x + 1)^{201}"))
    with pytest.raises(OverLimitError):
        check_cost(parse("x + 9^{9^{9}}"))


@pytest.mark.parametrize("name", ["sympy", "math_verify"])
def test_a_cut_text_is_no_answer(name: str) -> None:
    pytest.importorskip("math_verify")
    for text, outcome in ((r"so \boxed{5}", C), ("<answer>5</answer> and", C), (r"\boxed{5}. But 3 +", T), ("$5$", T)):
        assert get(name)(Sample(completion=text, answer="5", finish_reason="length")).outcome is outcome


def test_math_verify_works_off_the_main_thread_and_sets_no_alarm() -> None:
    pytest.importorskip("math_verify")
    before = signal.getsignal(signal.SIGALRM)
    verdicts = []
    sample = Sample(completion=r"\boxed{0.5}", answer="1/2")
    thread = threading.Thread(target=lambda: verdicts.append(get("math_verify")(sample)))
    thread.start()
    thread.join()
    assert verdicts[0].outcome is C
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("name", ["sympy", "math_verify"])
def test_costly_answers_are_refused_before_the_deadline(name: str) -> None:
    pytest.importorskip("math_verify")
    costly = (r"9^{9^{9^{9}}}", "10!!!!", "(9999!)!", "x^{9^{9^9}}", r"\binom{10^9}{10^8}", "(" * 5000)
    with VerifierPool(workers=1, deadline_seconds=20) as pool:
        samples = [Sample(completion=rf"\boxed{{{text}}}", answer="5") for text in costly]
        verdicts = pool.verify([(VerifierSpec(name=name), sample) for sample in samples])
    assert {verdict.outcome for verdict in verdicts} <= {W, U}


def test_math_asks_sympy_only_where_told_to_and_where_it_finds_no_value_itself() -> None:
    gold, text = r"\pi", r"\boxed{\int_0^{2\pi} \sin(1000x)^2 dx}"
    assert not math(text, gold).correct
    slow_series = r"\boxed{\sum_{k=1}^{\infty} \frac{1}{k^{1.01}}}"
    assert not math(slow_series, r"\zeta(1.01)").correct
    assert math(slow_series, r"\zeta(1.01)", ask_sympy=True).correct
    asked = math(text, gold, ask_sympy=True)
    assert asked.correct, asked.reason
    assert asked.reason.startswith("sympy:")
    assert not math(text, r"2\pi", ask_sympy=True).correct
