"""The `code` verifier: which text of a completion is the program, and what each way of failing is called."""

from __future__ import annotations

import json
from typing import Any

import pytest

from r1zero.data.records import FinishReason, Problem
from r1zero.verifiers import Outcome, Sample, Verdict, VerifierPool, VerifierSpec, get
from r1zero.verifiers.sandbox import Job, Report, Status, TestResult, sandbox_status
from r1zero.verifiers.text.program import extract_program, prompt_code, visible
from tests import SHARED
from tests.mutants import mutants

PROBLEM = sandbox_status()
needs_namespaces = pytest.mark.skipif(PROBLEM is not None, reason=PROBLEM or "")
DATA = SHARED / "data" / "code"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets in {DATA.name}")

ADD = Problem(
    id="add",
    prompt="Write add(a, b).",
    data={"tests": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"], "entry_point": "add"},
)
HEAD = 'import math\n\n\ndef half(x):\n    return x / 2\n\n\ndef up(x):\n    """Half of x, rounded up."""\n'
UP = Problem(
    id="up",
    prompt=HEAD,
    data={"tests": "def check(candidate):\n    assert candidate(3) == 2\n    assert candidate(4) == 2\n\ncheck(up)\n"}
    | {"entry_point": "up"},
)
DOUBLE = Problem(id="double", prompt="Print 2n.", data={"stdin_tests": [{"input": "3\n", "output": "6\n"}]})
PATIENT = {"timeout_seconds": 20.0}


def judge(completion: str, problem: Problem = ADD, finish: FinishReason = "stop", **options: Any) -> Verdict:
    return get("code")(Sample(completion=completion, problem=problem, finish_reason=finish), PATIENT | options)


# The program in a completion


@pytest.mark.parametrize(
    "completion",
    [
        "```python\ndef add(a, b):\n    return a + b\n```",
        "Sure! Here it is:\n\n```py\ndef add(a, b):\n    return a + b\n```\nIt adds `a` and `b`.",
        "```\ndef add(a, b):\n    return a + b\n```",
        "~~~Python3\ndef add(a, b):\n    return a + b\n~~~",
        "````python title=x\ndef add(a, b):\n    return a + b\n````",
        "1. Like this:\n   ```python\n   def add(a, b):\n       return a + b\n   ```",
        "```python\ndef add(a, b):\n    return a + b\n",  # stopped at the closing fence, as a stop string does
        "def add(a, b):\n    return a + b",
        "The function:\n\ndef add(a, b):\n    return a + b\n\nThis adds its two arguments.",
        "add = lambda a, b: a + b",
        "<think>Should it subtract?\n```python\ndef add(a, b):\n    return a - b\n```\n</think>\n"
        "```python\ndef add(a, b):\n    return a + b\n```",
        "It adds.</think>```python\ndef add(a, b):\n    return a + b\n```".replace("```py", "\n```py"),
        "<think>x</think><answer>\n```python\ndef add(a, b):\n    return a + b\n```\n</answer>",
        "<think>x</think><answer>def add(a, b):\n    return a + b</answer>",
        "```python\ndef add(a, b):\n    return a - b\n```\nNo:\n```python\ndef add(a, b):\n    return a + b\n```",
        "```bash\npip install x\n```\n```python\ndef add(a, b):\n    return a + b\n```\n"
        "```python\nprint(add(1, 2))\n```\n```\n3\n```",
        "```python\nfrom __future__ import annotations\ndef add(a: int, b: int) -> int:\n    return a + b\n```",
        "```python\ndef add(a, b):\n    '''Use ```add``` so:\n    >>> add(1, 1)\n    '''\n    return a + b\n```",
        "```python\ndef add(a, b):\n    return a + b\n\nif __name__ == '__main__':\n    raise SystemExit(add(1))\n```",
    ],
)
@needs_namespaces
def test_the_program_is_found(completion: str) -> None:
    verdict = judge(completion)
    assert verdict.outcome is Outcome.CORRECT, verdict


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "   \n",
        "I cannot do this.",
        "42",
        "add",
        "```cpp\nint add(int a, int b) { return a + b; }\n```",
        "```python\n\n```",
        "<think>```python\ndef add(a, b):\n    return a + b\n```",
        "<think>\ndef add(a, b):\n    return a + b\n</think>",
        "```python\ndef add(a, b):\n    return a + b\n```</think>",
        "```python\ndef add(a, b):\n    return a + b\n```\n<think>hm",
        "<answer>def add(a, b):\n    return a + b</answer> <answer>I do not know</answer>",
        "x" * 1_000_000,
        "`" * 1_000_000,
        "```\n" * 250_000,
        "(" * 50_000,
        "-" * 50_000 + "1",
        "```python\ndef add(a, b):\n    return a + b\n" + "#" * 100_000 + "\n```",
    ],
    ids=lambda text: repr(text[:40]),
)
def test_what_holds_no_program_is_unparseable(completion: str) -> None:
    if completion.endswith("<think>hm"):
        # What stands before an open think block does count: the model answered, then thought on.
        assert extract_program(completion, "add", "") == "def add(a, b):\n    return a + b\n"
        return
    assert judge(completion).outcome is Outcome.UNPARSEABLE


def test_a_last_block_cut_off_is_truncated_and_lets_no_earlier_one_win() -> None:
    good = "```python\ndef add(a, b):\n    return a + b\n```\n"
    assert judge(good + "Better:\n```python\ndef add(a, b):\n    ret", finish="length").outcome is Outcome.TRUNCATED
    assert judge("<think>still", finish="length").outcome is Outcome.TRUNCATED


def test_only_text_after_the_thinking_and_in_the_last_answer_is_visible() -> None:
    assert visible("<think>a</think>b<think>c</think>d") == "bd"
    assert visible("a</think>b") == "b"
    assert visible("a<think>b") == "a"
    assert visible("<think><answer>a</answer></think><answer>b</answer>c<answer>d</answer>") == "d"
    assert visible("<answer>a</answer><answer>b") == "b"
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        program = f"def f(x):\n    return x.split('{tag}')"
        assert visible(program) == program
        assert visible(f"<think>a '</think>' b</think><answer>{program}</answer>") == program


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<answer>", "</answer>"])
@pytest.mark.parametrize(
    "program",
    [
        "print('a {tag} b')",
        'print("it\'s a {tag} b")',
        "print(f'a {tag} b')",
        "x = 1  # not a {tag} tag",
        'def f():\n    """Up to {tag}.\n\n    {tag}\n    """\n    return 1',
    ],
)
def test_a_tag_in_a_string_or_comment_of_a_program_is_no_markup(tag: str, program: str) -> None:
    fenced = f"```python\n{program.format(tag=tag)}\n```"
    assert visible(f"<think>a plan, don't rush</think>\n{fenced}") == f"\n{fenced}"
    assert visible(f"<think>I'd try\n{fenced}\nbut no, it's bad</think>\n{fenced}") == f"\n{fenced}"
    assert visible(f"<think>x</think><answer>\n{fenced}\n</answer>") == f"\n{fenced}\n"


def test_an_apostrophe_or_an_open_fence_in_the_thinking_does_not_hide_its_end() -> None:
    assert visible("<think>don't. It's</think>that's all") == "that's all"
    thought = "<think>\n```python\nx = 1\n</think>\n"
    assert visible(thought + "```python\nx = 2\n```") == "\n```python\nx = 2\n```"


IN_PLACE = """
def change(pair, rows, table):
    pair[0].append(9)
    rows[1][0] = 7
    rows.insert(0, [])
    table["a"]["b"].add(3)
"""
IN_PLACE_TESTS = """
inner, row, last = [1], [2], [3]
pair, rows, table = (inner, 5), [row, last], {"a": {"b": {1}}}
deep = table["a"]["b"]
change(pair, rows, table)
assert inner == [1, 9] and pair == ([1, 9], 5)
assert rows == [[], [2], [7]]
assert rows[1] is row and rows[2] is last and row == [2] and last == [7]
assert table == {"a": {"b": {1, 3}}} and table["a"]["b"] is deep
"""


def test_a_container_in_an_argument_that_is_changed_in_place_is_changed_for_the_tests() -> None:
    problem = Problem(id="1", prompt="", data={"tests": IN_PLACE_TESTS, "entry_point": "change"})
    verdict = get("code")(Sample(completion=f"```python\n{IN_PLACE}\n```", problem=problem), {"sandbox": "none"})
    assert verdict.correct, verdict.reason


@pytest.mark.parametrize(
    "completion",
    [
        "    return math.ceil(half(x))\n",
        "return math.ceil(half(x))",
        "y = half(x)\n    return math.ceil(y)",  # the first line's indent was stripped
        "```python\n    return math.ceil(half(x))\n```",
        "```python\ny = half(x)\nreturn math.ceil(y)\n```",
        "    return math.ceil(half(x))\n\n\ndef test():\n    assert up(\n",  # a base model runs on
        "    return math.ceil(half(x))\n\n# Test\nprint(up(3)",
        "```python\ndef up(x):\n    return math.ceil(half(x))\n```",
        HEAD + "    return math.ceil(half(x))\n",
        "```python\n" + HEAD + "    return math.ceil(half(x))\n```",
        "from __future__ import annotations\ndef up(x: int) -> int:\n    return math.ceil(half(x))",
    ],
)
@needs_namespaces
def test_a_body_and_a_whole_function_both_complete_the_prompt(completion: str) -> None:
    verdict = judge(completion, UP)
    assert verdict.outcome is Outcome.CORRECT, verdict


def test_a_prompt_that_is_the_head_of_the_function_is_known_from_prose() -> None:
    assert prompt_code(HEAD, "up") == HEAD
    assert prompt_code("def up(x):\n", "up") == "def up(x):\n    pass\n"
    assert prompt_code(f"Complete this:\n```python\n{HEAD}```\n", "up") == HEAD
    assert prompt_code("Write up(x): def up(x) rounds.", "up") == ""
    assert prompt_code(HEAD, "down") == ""


# Verdicts


@needs_namespaces
def test_a_wrong_value_names_the_test_and_both_sides() -> None:
    verdict = judge("```python\ndef add(a, b):\n    return a - b\n```")
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.0)
    assert verdict.reason == "assert add(1, 2) == 3: -1 == 3 does not hold"
    assert verdict.details["tests"][1] == {"test": "assert add(-1, 1) == 0", "status": "not run"}
    assert json.dumps(dict(verdict.details))


@needs_namespaces
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("def add(a, b) return", "SyntaxError"),
        ("def add(a, b):\n    return '\ud800'", "UnicodeEncodeError"),
        ("def add(a, b):\n    return '\0'", "null bytes"),
        ("raise ValueError('early')", "early (program line 1)"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import numpy_of_nowhere", "ModuleNotFoundError"),
        ("def sub(a, b):\n    return a - b", "NameError"),
        ("def add(a, b):\n    return 1 / 0", "ZeroDivisionError"),
        ("import os\ndef add(a, b):\n    os.abort()", "died"),
        ("def add(a, b):\n    return bytearray(1 << 40)", "MemoryError"),
    ],
)
def test_a_program_that_fails_is_wrong_and_says_how(program: str, reason: str) -> None:
    verdict = judge(f"```python\n{program}\n```")
    assert verdict.outcome is Outcome.WRONG
    assert reason in verdict.reason


@needs_namespaces
def test_partial_credit_is_the_share_of_tests_passed() -> None:
    half_right = "```python\ndef add(a, b):\n    return 0 if a < 0 else None\n```"
    assert judge(half_right).score == 0.0
    verdict = judge(half_right, partial_credit=True)
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, 0.5)
    assert judge("```python\ndef add(a, b):\n    return a + b\n```", partial_credit=True).score == 1.0


@needs_namespaces
def test_past_the_deadline_is_a_timeout() -> None:
    verdict = judge("```python\ndef add(a, b):\n    while True: pass\n```", timeout_seconds=0.7)
    assert (verdict.outcome, verdict.score, verdict.reason) == (Outcome.TIMEOUT, 0.0, "over 0.7 s")


@needs_namespaces
def test_stdin_tests_run_the_program_as_a_script() -> None:
    assert judge("```python\nprint(2 * int(input()))\n```", DOUBLE).correct
    wrong = judge("```python\nprint(3 * int(input()))\n```", DOUBLE)
    assert wrong.reason == "3\n: printed '9\\n', not '6\\n'"
    crashed = judge("```python\nprint(6)\nint('x')\n```", DOUBLE)
    assert "exit status 1: ValueError" in crashed.reason
    both = Problem(id="both", prompt="", data={**ADD.data, **DOUBLE.data})
    program = (
        "```python\ndef add(a, b):\n    return a + b\nif __name__ == '__main__':\n    print(2 * int(input()))\n```"
    )
    assert judge(program, both).details["passed"] == 3


@needs_namespaces
def test_faults_of_ours_are_errors_without_a_score() -> None:
    good = "```python\ndef add(a, b):\n    return a + b\n```"
    for data in ({}, {"tests": "assert add(", "entry_point": "add"}, {"tests": "x = 1", "entry_point": "add"}):
        verdict = judge(good, Problem(id="bad", prompt="", data=data))
        assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None), verdict


class Elsewhere:
    """A sandbox as a plugin would bring it."""

    def status(self) -> str | None:
        return None

    def run(self, job: Job) -> Report:
        if "return a + b" not in job.source:
            return Report(status=Status.NO_SANDBOX, reason="the service is down: start it")
        return Report(status=Status.RAN, tests=(TestResult(test="remote", status="passed"),))


def test_another_sandbox_is_one_name_away() -> None:
    name = f"{__name__}:Elsewhere"
    assert judge("```python\ndef add(a, b):\n    return a + b\n```", sandbox=name).correct
    down = judge("```python\ndef add(a, b):\n    return 0\n```", sandbox=name)
    assert (down.outcome, down.reason) == (Outcome.ERROR, "the service is down: start it")


def test_without_protection_only_when_told_so_in_as_many_words() -> None:
    assert judge("```python\ndef add(a, b):\n    return a + b\n```", sandbox="none").correct
    assert judge("```python\ndef add(a, b):\n    return a - b\n```", sandbox="none").outcome is Outcome.WRONG
    assert get("code").options["sandbox"] == "bubblewrap"


@needs_namespaces
def test_it_works_in_a_pool_whose_deadline_also_ends_it() -> None:
    good = Sample(completion="```python\ndef add(a, b):\n    return a + b\n```", problem=ADD)
    loop = Sample(completion="```python\nwhile True: pass\n```", problem=ADD)
    spec = VerifierSpec(name="code", options={"timeout_seconds": 60.0})
    with VerifierPool(workers=1, deadline_seconds=5) as pool:
        assert pool.verify([(spec, good)])[0].correct
        quick = VerifierSpec(name="code", options={"timeout_seconds": 0.5})
        inside, outside, after = pool.verify([(quick, loop), (spec, loop), (spec, good)])
    assert inside.reason == "over 0.5 s"
    assert outside.outcome is Outcome.TIMEOUT
    assert after.correct


# Real data


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def as_problem(row: dict[str, Any]) -> Problem:
    data = {"tests": row["tests"], "entry_point": row["entry_point"]}
    return Problem(id=row["id"], prompt=row["prompt"], data=data)


def all_verdicts(samples: list[Sample], seconds: float = 25.0) -> list[Verdict]:
    spec = VerifierSpec(name="code", options={"timeout_seconds": seconds})
    with VerifierPool(workers=2, deadline_seconds=30) as pool:
        return pool.verify((spec, sample) for sample in samples)


@needs_data
@needs_namespaces
def test_every_humaneval_reference_passes_and_fails_when_it_returns_nothing() -> None:
    samples, broken = [], []
    for row in rows("humaneval.jsonl"):
        problem = as_problem(row)
        samples.append(Sample(completion=row["canonical_solution"], problem=problem))
        program = mutants(row["prompt"] + row["canonical_solution"], row["entry_point"], 1)[0][1]
        broken.append(Sample(completion=f"```python\n{program}\n```", problem=problem))
    verdicts = all_verdicts(samples + broken)
    assert [v.reason for v in verdicts[:164] if not v.correct] == []
    assert [v.outcome for v in verdicts[164:]] == [Outcome.WRONG] * 164


@pytest.mark.slow
@needs_data
@needs_namespaces
def test_every_mbpp_reference_passes() -> None:
    samples = [
        Sample(completion=f"~~~~python\n{row['canonical_solution']}\n~~~~", problem=as_problem(row))
        for row in rows("mbpp.jsonl")
    ]
    verdicts = all_verdicts(samples)
    assert len(verdicts) == 974
    assert [v.reason for v in verdicts if not v.correct] == []


@needs_data
@needs_namespaces
def test_gpt4_outputs_agree_with_their_labels_but_for_one() -> None:
    """HumanEval/133 imports math in a first definition that a second one replaces: the program as written raises
    NameError, and the label comes from a harness that imported math itself."""
    problems = {row["id"]: as_problem(row) for row in rows("humaneval.jsonl")}
    outputs = rows("outputs_humaneval_gpt4.jsonl")
    samples = [Sample(completion=o["output"], problem=problems[o["problem_id"]]) for o in outputs]
    verdicts = all_verdicts(samples, seconds=6)  # one loops for ever
    disputed = [o["problem_id"] for o, v in zip(outputs, verdicts, strict=True) if v.correct != o["correct"]]
    assert disputed == ["HumanEval/133"]
    assert "name 'math' is not defined" in verdicts[133].reason
