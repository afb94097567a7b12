"""The `math` verifier: every kind of answer, near misses, attacks, and the promises in its docstring."""

import asyncio
import multiprocessing
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from r1zero.verifiers import Sample, get
from r1zero.verifiers.math import math
from tests.bench.fuzz_math import corpus, fuzz
from tests.math_variants import VARIANTS


def outcome(text: str, gold: str) -> str:
    return str(math(text, gold).outcome)


@pytest.mark.parametrize("kind", sorted({kind for kind, *_ in VARIANTS}))
def test_every_hand_labelled_answer_of_a_kind_is_judged_as_its_label_says(kind: str) -> None:
    wrong = []
    for _, gold, text, correct in (row for row in VARIANTS if row[0] == kind):
        verdict = math(text, gold)
        if verdict.correct != correct or verdict.outcome == "error":
            wrong.append((gold, text, verdict.outcome, verdict.reason))
    assert not wrong


def test_it_accepts_its_own_example() -> None:
    verifier = get("math")
    assert verifier.example is not None
    assert verifier(verifier.example).correct


def test_the_reason_names_the_stage_and_shows_both_normal_forms() -> None:
    assert math(r"\boxed{\sqrt{117}}", r"3\sqrt{13}").reason == "numeric: 117^(1/2) = 3*13^(1/2) (by boxed)"
    assert math("The answer is 0.33.", r"\frac{1}{3}").reason == "exact: 0.33 != \\frac{1}{3} (by marker)"
    assert math(r"\boxed{x>5}", r"(5,\infty)").reason == "set: x > 5 = (5, inf) (by boxed)"
    assert math(r"\boxed{7}", "7").reason == "identical: 7 (by boxed)"


def test_outcomes_are_kept_apart() -> None:
    assert outcome(r"\boxed{8}", "7") == "wrong"
    assert outcome(r"\boxed{8", "7") == "unparseable"
    assert outcome("", "7") == "unparseable"
    assert outcome(r"\boxed{?}", "7") == "unparseable"
    assert outcome(r"\boxed{7}", "") == "error"
    assert outcome(r"\boxed{7}", r"\frac{1}{") == "error"


def test_a_gold_that_cannot_be_read_still_equals_itself() -> None:
    assert outcome(r"\boxed{\weird{1}}", r"\weird{1}") == "correct"
    assert outcome(r"\boxed{2}", r"\weird{1}") == "error"


def test_a_completion_cut_off_before_its_answer_is_truncated() -> None:
    verdict = get("math")(Sample(completion="<think>so", answer="7", finish_reason="length"))
    assert verdict.outcome == "truncated"


@pytest.mark.parametrize(
    "text",
    [
        r"9^{9^{9^9}}",
        r"10^{-10^{10^{10}}}",
        r"\sqrt[99999]{2^{99999^3}+1}",
        r"(10^9)!",
        r"\sin(10^{10^{10}})",
        r"e^{e^{e^{e^e}}}",
        "1" * 5000,
        "0." + "1" * 50_000,
        "(" * 3000 + "7" + ")" * 3000,
        r"\sqrt{" * 300 + "2" + "}" * 300,
        r"\sqrt" * 500 + "2",
        "2" + "^2" * 500,
        "-" * 3001 + "7",
        "{" * 60 + "7" + "}" * 60,
        r"\begin{pmatrix}" + " & ".join("1" * 600) + r"\end{pmatrix}",
        "1e99999999",
        r"\pm" + r"1\pm" * 30 + "1",
        ",".join(["x"] * 1500),
        r"\sum_{k=1}^{10^{9}} \frac{1}{k}",
    ],
)
def test_what_would_cost_too_much_is_refused_or_judged_wrong_without_being_worked_out(text: str) -> None:
    verdict = math(r"\boxed{" + text + "}", "7")
    assert verdict.outcome in ("unparseable", "wrong")
    assert math(r"\boxed{" + text + "}", r"\frac{\pi}{7}+x").outcome in ("unparseable", "wrong")


def test_markup_between_digits_does_not_join_them() -> None:
    assert outcome(r"\boxed{5</b>12}", "512") == "unparseable"


def test_over_limit_says_so() -> None:
    assert math(r"\boxed{9^{9^{9^9}}}", "7").reason.startswith("over limit: a power of more than")


def test_huge_numbers_that_are_written_alike_are_equal_without_being_worked_out() -> None:
    assert outcome(r"\boxed{2^{8^{16^{32}}}}", r"2^{(8^{(16^{32})})}") == "correct"
    assert outcome(r"\boxed{(1+x)^{5000}}", r"(x+1)^{5000}") == "correct"
    assert outcome(r"\boxed{" + "1" * 5000 + "}", "1" * 5000) == "correct"


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch PWNED')",
        "open('PWNED','w').write('1')",
        "[open('PWNED','w').write('1'), 2]",
        r"2\pi if open('PWNED','w').write('1') else 2\pi",
        "exec(\"open('PWNED','w')\")",
        r"\write18{touch PWNED}",
    ],
)
def test_no_text_of_a_model_is_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for gold in ("0", "1", r"2\pi", r"\begin{pmatrix}1\\2\end{pmatrix}"):
        assert not math(r"\boxed{" + text + "}", gold).correct
        assert not math(f"<answer>{text}</answer>", gold).correct
    assert not list(tmp_path.iterdir())


def test_the_source_has_no_way_to_evaluate_text() -> None:
    folder = Path(sys.modules["r1zero.verifiers.math"].__file__ or "").parent
    bridge = folder / "by_sympy.py"  # builds sympy's objects from our tree
    source = "".join(path.read_text() for path in folder.glob("*.py") if path != bridge)
    for name in ("eval(", "exec(", "sympify", "parse_expr", "import sympy", "import signal", "subprocess"):
        assert name not in source
    for name in ("eval(", "exec(", "sympify(", "parse_expr(", ".S(", "sympy.parsing", "import signal", "subprocess"):
        assert name not in bridge.read_text()


def test_plain_answers_need_no_mathematics_library() -> None:
    program = (
        "import sys; from r1zero.verifiers.math import math;"
        r"assert math(r'\boxed{1/2}', r'\frac{1}{2}').correct; assert math('The answer is 1,234.', '1234').correct;"
        "print([m for m in ('sympy', 'mpmath', 'math_verify', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_mutated_answers_raise_nothing_and_end_in_time() -> None:
    # 100,000 of them: python tests/bench/fuzz_math.py
    broken, outcomes = fuzz(corpus(None), 1500, deadline_seconds=30.0, seed=3)
    assert not broken
    assert outcomes["correct"] > 80
    assert outcomes["wrong"] > 100


def _verdict(_: int) -> str:
    return outcome(r"\boxed{\sin^2 x + \cos^2 x + \sqrt{2}}", r"1+\sqrt{2}")


def test_it_works_in_threads_that_run_at_once() -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.extend(_verdict(k) for k in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["correct"] * 80


def test_it_works_in_async_code_and_in_a_spawned_process() -> None:
    async def judge() -> str:
        return _verdict(0)

    assert asyncio.run(judge()) == "correct"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_verdict, [0]) == ["correct"]


def test_verdicts_repeat_and_are_picklable() -> None:
    first = math(r"\boxed{\tan x \cos x}", r"\sin x")
    assert first == math(r"\boxed{\tan x \cos x}", r"\sin x")
    assert pickle.loads(pickle.dumps(first)) == first


def test_the_strict_contract_takes_a_box_only() -> None:
    assert math("The answer is 7.", "7").correct
    assert math("The answer is 7.", "7", rules=("boxed",)).outcome == "unparseable"


# The stages, each by a case only it can decide.


@pytest.mark.parametrize(
    ("gold", "pred", "stage"),
    [
        ("x^2+1", "1+x^2", "structure"),
        ("120", "5!", "exact"),
        ("2^{1000}-1", "2^{1000}", "exact"),
        ("(x+1)^{5000}", "(x+1)^{5001}", "rational"),
        (r"\frac{1}{x}+\frac{1}{y}", r"\frac{x+y}{xy}", "rational"),
        (r"1+i", r"\frac{2}{1-i}", "rational"),
        (r"\sin 2x", r"2\sin x\cos x", "numeric"),
        (r"\cosh^2 x - \sinh^2 x", r"\frac{x}{x}", "numeric"),
        ("1-10^{-12}", "1", "exact"),
        (r"\sqrt{2}", r"\sqrt{2}+10^{-100}", "numeric"),
        ("0.333", r"\frac{1}{3}", "rounded"),
        ("[0,1]", r"0 \le x \le 1", "set"),
        ("y=x", "2y=2x", "equation"),
        ("a<b", "b>a", "inequality"),
        ("1,2", "2,1", "list"),
        ("(1,2)", "(2,1)", "tuple"),
        ("12_5", "12_6", "base"),
        ("1:2", "2:4", "ratio"),
        (r"3\text{ km}", r"3\text{ hours}", "unit"),
        ("1", r"\frac{1}{0}", "undefined"),
    ],
)
def test_the_stage_that_decides(gold: str, pred: str, stage: str) -> None:
    assert math(r"\boxed{" + pred + "}", gold).reason.split(":")[0] == stage


@pytest.mark.parametrize(
    ("gold", "pred"),
    [
        ("|x|", "x"),
        ("|x-30|", "30-x"),
        (r"\sqrt{(x-1)^2}", "x-1"),
        (r"\max(x,y)", "x"),
        (r"\lfloor x \rfloor", "x"),
        ("x^{101}", "x^{102}"),
        (r"e^{\pi\sqrt{163}}", "262537412640768744"),
        (r"\sqrt{2}+\sqrt{3}", r"\frac{3146264369941972}{1000000000000000}"),
        ("A+a", "2a"),
        ("x_1x_2", "x^2"),
        (r"\frac{R}{r}", "1"),
        ("f(x)", "f(y)"),
        ("x=1, y=2", "xa=1, y=2"),
        (r"28\%", "28 apples"),
        ("2^n", "n^2"),
        ("5 million", "5"),
        ("5", r"5 \text{ million}"),
        ("5", r"5 \text{ wrong}"),
        ("5", r"5 \text{ squared}"),
        ("101", r"101 \text{ base two}"),
    ],
)
def test_near_identities_are_not_equal(gold: str, pred: str) -> None:
    assert outcome(r"\boxed{" + pred + "}", gold) == "wrong"
    assert outcome(r"\boxed{" + gold + "}", pred) == "wrong"


@pytest.mark.parametrize(
    ("gold", "pred"),
    [
        (r"\cosh^2 x", r"1+\sinh^2 x"),
        (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}"),
        (r"\ln(x^2)", r"2\ln|x|"),
        (r"(-1)^{2n}", "1"),
        (r"\cos(n\pi) + (-1)^n - (-1)^n", r"\cos(\pi n)"),
        (r"\sqrt[3]{-x}", r"-\sqrt[3]{x}"),
        (r"\frac{\sin 3x}{\sin x}", r"3-4\sin^2 x"),
        (r"\arctan 1 + \arctan 2 + \arctan 3", r"\pi"),
        (r"\sqrt{1+\sqrt{2}}", r"\frac{\sqrt{2+2\sqrt2}}{\sqrt2}"),
        ("5 million", "5{,}000{,}000"),
    ],
)
def test_identities_on_the_domain_are_equal(gold: str, pred: str) -> None:
    assert outcome(r"\boxed{" + pred + "}", gold) == "correct"
    assert outcome(r"\boxed{" + gold + "}", pred) == "correct"


@pytest.mark.parametrize(
    ("pred", "gold"),
    [
        ("two thirds", "2"),
        ("three quarters", "3"),
        ("5 tenths", "5"),
        ("5 hundredths", "5"),
        ("5 halves", "5"),
        ("5 pairs", "5"),
        ("5 lakh", "5"),
        ("5 rejected", "5"),
        ("5 extraneous", "5"),
        ("5 never", "5"),
        ("5 for all x or 7", "5"),
        ("5 for all x, 7", "5"),
        ("5 with any 7", "5"),
    ],
)
def test_words_that_change_or_deny_a_value_are_no_unit_and_no_condition(pred: str, gold: str) -> None:
    for text in (rf"\boxed{{{pred}}}", rf"\boxed{{\text{{{pred}}}}}", f"The answer is {pred}.", f"#### {pred}"):
        assert not math(text, gold).correct, text


@pytest.mark.parametrize("condition", ["x", r"x \in \mathbb{R}", r"x, y \in \mathbb{R}", r"x \ge 1"])
def test_a_plain_condition_after_a_value_does_not_bind(condition: str) -> None:
    assert math(rf"\boxed{{2x \text{{ for all }} {condition}}}", "2x").correct
