"""Rows of code problems in the shapes of the published sets: read as they are, programs judged rightly."""

from __future__ import annotations

import base64
import json
import pickle
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, Verdict, get
from r1zero.verifiers.code_rows import RowError, read_tests, unpacked
from r1zero.verifiers.running.audit import read_rows
from r1zero.verifiers.sandbox import sandbox_status
from r1zero.verifiers.sandbox.compare import same_output

PROBLEM = sandbox_status()
needs_namespaces = pytest.mark.skipif(PROBLEM is not None, reason=PROBLEM or "")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")


def judge(program: str, data: dict[str, Any], fence: str = "python", answer: str = "", **options: Any) -> Verdict:
    sample = Sample(
        completion=f"```{fence}\n{program}\n```", problem=Problem(id="1", prompt="", answer=answer, data=data)
    )
    return get("code")(sample, {"timeout_seconds": 20.0} | options)


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


STDIN = {"inputs": ["3\n4\n", "10\n-1\n"], "outputs": ["7\n", "9\n"]}
CALLS = {"inputs": [[3, 4], [10, -1]], "outputs": [[7], [9]], "fn_name": "add"}
CASES = [{"input": "3\n4", "output": "7", "testtype": "stdin"}, {"input": "10\n-1", "output": "9", "testtype": "stdin"}]
FUNCTIONAL = [{"input": "[1, 2]\n3", "output": "[1, 2, 3]", "testtype": "functional"}]
READ = "a, b = int(input()), int(input())\n"
ADD, SUB = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a - b"
METHOD = "class Solution:\n    def add(self, a: int, b: int) -> Optional[int]:\n        return {}"
APPEND = "class Solution:\n    def grow(self, xs: List[int], x: int) -> List[int]:\n        return {}"
LEETCODE = {
    "prompt": "import random\nfrom typing import *\n\nclass ListNode:\n    def __init__(self, val=0, next=None):\n"
    "        self.val = val\n        self.next = next\n\ndef list_node(values):\n    head = None\n"
    "    for value in reversed(values):\n        head = ListNode(value, head)\n    return head\n\n"
    "def is_same_list(a, b):\n    while a and b:\n        if a.val != b.val:\n            return False\n"
    "        a, b = a.next, b.next\n    return not a and not b\n",
    "entry_point": "Solution().turn",
    "test": "def check(candidate):\n    assert is_same_list(candidate(head = list_node([1, 2, 3])), "
    "list_node([3, 2, 1]))\n    assert is_same_list(candidate(head = list_node([])), list_node([]))\n",
}
TURN = """class Solution:
    def turn(self, head: Optional[ListNode]) -> Optional[ListNode]:
        last = None
        while head:
            head.next, last, head = last, head, head.next
        return {}
"""
KODCODE = {
    "test": "import pytest\nfrom solution import root\n\ndef test_root():\n    assert root(9) == 3\n"
    "    assert root(2) == pytest.approx(1.41421356)\n\n@pytest.mark.parametrize('x, y', [(16, 4), (25, 5)])\n"
    "def test_more(x, y):\n    assert root(x) == y\n\ndef test_raises():\n    with pytest.raises(ValueError):\n"
    "        root(-1)\n",
    "test_info": [{"function_name": "root", "parameter_list": "(x)"}],
}
ROOT = "def root(x):\n    if x < 0: raise ValueError(x)\n    return x ** 0.5"
CHECKER = "def check(given, expected, printed):\n    return sorted(printed.split()) == sorted(given.split())\n"
FILES_CHECKER = (
    "import sys\ngiven, wanted, got = (open(name).read() for name in sys.argv[1:4])\n"
    "sys.exit(0 if sum(map(int, got.split())) == int(wanted) else 1)\n"
)
HUGE = "9" * 5000

RIGHT_AND_WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "APPS, by input": ({"input_output": json.dumps(STDIN)}, READ + "print(a + b)", READ + "print(a - b)"),
    "APPS, by call": ({"input_output": json.dumps(CALLS)}, ADD, SUB),
    "APPS, a method": ({"input_output": json.dumps(CALLS)}, METHOD.format("a + b"), METHOD.format("a - b")),
    "TACO, an object": ({"input_output": STDIN, "fn_name": None}, READ + "print(a+b)", READ + "print(7)"),
    "APPS, lines": (
        {"input_output": json.dumps({"inputs": [["1", "2"]], "outputs": [["2", "1"]]})},
        "a = input(); print(input()); print(a)",
        "print(input()); print(input())",
    ),
    "APPS, a dict with keys in digits": (
        {"input_output": json.dumps({"fn_name": "f", "inputs": [[{"1": "a"}]], "outputs": [{"1": "b"}]})},
        "def f(d):\n    return {k: 'b' for k in d if d[1]}",
        "def f(d):\n    return {k: 'c' for k in d}",
    ),
    "LiveCodeBench, by input": (
        {"public_test_cases": json.dumps(CASES[:1]), "private_test_cases": packed(json.dumps(CASES))},
        READ + "print(a + b)",
        READ + "print(7)",
    ),
    "LiveCodeBench, functional": (
        {"public_test_cases": json.dumps(FUNCTIONAL), "private_test_cases": packed(json.dumps(FUNCTIONAL)),
         "metadata": json.dumps({"func_name": "grow"})},
        APPEND.format("[*accumulate(xs)] and list(chain(xs, [x]))"),
        APPEND.format("xs"),
    ),
    "PRIME": ({"reward_model": {"ground_truth": json.dumps(STDIN), "style": "rule"}}, READ + "print(a+b)", "print(7)"),
    "PRIME, by call": ({"ground_truth": json.dumps(CALLS)}, ADD, SUB),
    "DeepCoder, pairs": ({"tests": json.dumps(CASES)}, READ + "print(a + b)", READ + "print(b - a)"),
    "DeepCoder, a list": ({"tests": CASES}, READ + "print(a + b)", READ + "print(a)"),
    "DeepCoder, calls": (
        {"tests": [{"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]}]}, ADD, SUB),
    "DeepCoder, columns": ({"tests": json.dumps(STDIN)}, READ + "print(a + b)", READ + "print(b)"),
    "SYNTHETIC-1": (
        {"verification_info": json.dumps({"language": "python", "test_cases": [
            {"type": "stdin_stdout", "input": "3\n4\n", "output": "7\n", "fn_name": None}]})},
        READ + "print(a + b)", READ + "print(a)"),
    "CodeContests": (
        {"public_tests": {"input": ["3\n4\n"], "output": ["7\n"]}}, READ + "print(a + b)", READ + "print(a)"),
    "LeetCodeDataset": (LEETCODE, TURN.format("last"), TURN.format("ListNode(3)")),
    "KodCode": (KODCODE, ROOT, ROOT.replace("0.5", "0.4")),
    "KodCode, no error raised": (KODCODE, ROOT, ROOT.replace("x < 0", "x is None")),
    "MBPP": (
        {"test_list": ["assert add(1, 2) == 3"], "test_setup_code": "import math"}, ADD, SUB),
    "HumanEval": ({"test": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "add"}, ADD, SUB),
    "exit": ({"input_output": STDIN}, READ + "print(a + b)\nexit()\nprint(1)", READ + "print(a + b)\nexit(1)"),
    "quit in a function": (
        {"input_output": STDIN}, f"def main():\n    {READ.strip()}\n    print(a + b)\n    quit()\nmain()", "quit()"),
    "CRLF": ({"input_output": {"inputs": ["ab\r\ncd\r\n"], "outputs": ["abcd\r\n"]}},
             "import sys\nprint(sys.stdin.readline()[:-1] + sys.stdin.readline()[:-1])", "print('ab\\ncd')"),
    "5,000 digits": ({"input_output": {"inputs": [HUGE], "outputs": [HUGE[:-1] + "8"]}},
                     "print(int(input()) - 1)", "print(int(input()))"),
    "5,000 digits, by call": ({"input_output": f'{{"fn_name": "f", "inputs": [[{HUGE}]], "outputs": [{HUGE}]}}'},
                              "def f(x):\n    return x", "def f(x):\n    return x - 1"),
    "blank lines and spaces": (
        {"input_output": STDIN}, READ + "print()\nprint(' ', a + b, ' ')\nprint()", READ + "print(a, b)"),
    "a tolerance": ({"input_output": {"inputs": ["1"], "outputs": ["0.333333"]}, "tolerance": 1e-4},
                    "print(1 / 3)", "print(0.334)"),
    "a tolerance by call": (
        {"input_output": {"fn_name": "f", "inputs": [[3]], "outputs": [[0.333333]]}, "tolerance": 1e-4},
        "def f(x):\n    return 1 / x", "def f(x):\n    return 0.334"),
    "a checker": ({"stdin_tests": [{"input": "1 2 3", "output": ""}], "checker": CHECKER},
                  "print(*reversed(input().split()))", "print(1, 2)"),
    "a checker with files": (
        {"official_tests": [{"input": "5", "output": "5"}], "generated_checker": FILES_CHECKER},
        "print(2, 3)", "print(2, 2)"),
}  # fmt: skip


@needs_namespaces
@pytest.mark.parametrize("name", RIGHT_AND_WRONG)
def test_a_right_program_is_right_and_a_near_miss_is_wrong(name: str) -> None:
    data, right, wrong = RIGHT_AND_WRONG[name]
    good = judge(right, data)
    assert good.outcome is Outcome.CORRECT, good
    bad = judge(wrong, data)
    assert (bad.outcome, bad.score) == (Outcome.WRONG, 0.0), bad


def test_a_row_of_no_known_shape_is_an_error_that_lists_the_shapes() -> None:
    for data in ({}, {"examples": ["x"]}, {"input_output": ""}):
        verdict = judge(ADD, data)
        assert (verdict.outcome, verdict.score) == (Outcome.ERROR, None)
        for shape in ("input_output", "public_test_cases", "ground_truth", "test_list"):
            assert shape in verdict.reason


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"tests": [{"in": "1"}]}, "needs `input` and `output`"),
        ({"input_output": {"inputs": ["1"], "outputs": []}}, "1 `inputs` for 0 `outputs`"),
        ({"tests": [{"type": "function_call", "input": [1], "output": 1}]}, "without a function's name"),
        ({"tests": [{"fn_name": "f(x)", "input": [1], "output": 1}]}, "no function's name"),
        ({"private_test_cases": packed("x")[:-8]}, "damaged"),
        ({"test": "import pytest\n\ndef test_f(tmp_path):\n    assert f(tmp_path)"}, "fixtures (tmp_path)"),
    ],
)
def test_a_damaged_row_is_an_error_that_says_what(data: dict[str, Any], says: str) -> None:
    verdict = judge(ADD, data)
    assert verdict.outcome is Outcome.ERROR
    assert says in verdict.reason


def test_the_tests_may_be_in_the_gold_answer() -> None:
    assert read_tests({}, json.dumps(STDIN)).input_tests[1].input == "10\n-1\n"


class Bomb:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return (open, ("packed-tests-were-run",))


def test_packed_tests_are_read_and_never_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert unpacked(packed("[1]")) == "[1]"
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        data = base64.b64encode(zlib.compress(pickle.dumps("é" * 300, protocol=protocol))).decode()
        assert unpacked(data) == "é" * 300
    for bad in (Bomb(), [Bomb()], ["a"], {"a": Bomb()}, 7, b"x"):
        with pytest.raises(RowError, match="refused"):
            unpacked(packed(bad))
    assert list(tmp_path.iterdir()) == []
    assert judge("print(1)", {"private_test_cases": packed(Bomb())}).outcome is Outcome.ERROR


def test_packed_tests_that_unpack_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r1zero.verifiers.code_rows.MAX_PACKED_CHARS", 1000)
    with pytest.raises(RowError, match="over 1000"):
        unpacked(packed("x" * 100_000))


@pytest.mark.parametrize(
    ("printed", "expected", "options", "same"),
    [
        ("1 2\n", "1  2", {}, True),
        ("1\n2", "1 2", {}, False),
        ("\n1\n\n2\n", "1\n2", {}, True),
        ("\n1", "1", {"strict": True}, False),
        (" 1", "1", {"strict": True}, False),
        ("1 \n\n", "1", {"strict": True}, True),
        ("yes", "YES", {}, False),
        ("0.5", "0.50", {}, False),
        ("0.5", "0.50", {"tolerance": 1e-9}, True),
        ("1000001.0", "1000000.0", {"tolerance": 1e-6}, True),
        ("1000001", "1000000", {"tolerance": 1e-6}, False),
        ("nan", "0.5", {"tolerance": 1.0}, False),
        ("1e400", "0.5", {"tolerance": 1.0}, False),
        ("inf", "0.5", {"tolerance": 1.0}, False),
    ],
)
def test_outputs_are_compared(printed: str, expected: str, options: dict[str, Any], same: bool) -> None:
    assert same_output(printed, expected, **options) is same


@needs_namespaces
def test_the_share_of_tests_passed_is_a_setting() -> None:
    data = {"input_output": {"inputs": ["1", "2", "3", "4"], "outputs": ["1", "4", "9", "16"]}}
    program = "n = int(input())\nprint(n * n if n < 4 else 0)"
    assert judge(program, data, partial_credit=True).score == 0.75
    verdict = judge("print(int(input()))", data)
    assert [test["status"] for test in verdict.details["tests"]] == ["passed", "failed", "not run", "not run"]


@needs_namespaces
def test_library_names_are_there_for_a_solution_class_only() -> None:
    data = {"input_output": CALLS}
    assert judge("def add(a, b):\n    return gcd(a, a) + b if a > 0 else a + b", data).outcome is Outcome.WRONG
    assert judge(METHOD.format("heappop([a + b])"), data).correct


@needs_namespaces
def test_packages_are_there_when_named_and_cannot_be_written() -> None:
    pytest.importorskip("numpy")
    data = {"input_output": {"fn_name": "f", "inputs": [[[1, 2]]], "outputs": [[[2, 4]]]}}
    program = "import numpy as np\ndef f(xs):\n    return np.array(xs) * 2"
    assert judge(program, data, packages=["numpy"], memory_mb=1024).correct
    assert "ModuleNotFoundError" in judge(program, data).reason
    attack = "import numpy, os\ndef f(xs):\n    open(numpy.__file__, 'a').write('#')\n    return [2, 4]"
    assert judge(attack, data, packages=["numpy"], memory_mb=1024).outcome is Outcome.WRONG
    script = {"input_output": {"inputs": ["3"], "outputs": ["[0 1 2]"]}}
    program = "import numpy\nprint(numpy.arange(int(input())))"
    assert judge(program, script, packages=["numpy"], memory_mb=1024).correct
    with pytest.raises(UserError, match="pip install no-such-package"):
        judge(ADD, data, packages=["no-such-package"])


SUM = "#include <bits/stdc++.h>\nusing namespace std;\nint main() {{ long a, b; cin >> a >> b; {} }}"


@needs_namespaces
@needs_compiler
def test_cpp_is_compiled_and_judged() -> None:
    data = {"input_output": STDIN, "language": "cpp"}
    assert judge(SUM.format("cout << a + b << endl;"), data, "cpp").correct
    assert judge(SUM.format("cout << a - b << endl;"), data, "c++").outcome is Outcome.WRONG
    verdict = judge(SUM.format("cout << a + c;"), data, "cpp")
    assert verdict.outcome is Outcome.WRONG
    assert "does not compile" in verdict.reason
    assert "error" in verdict.reason
    assert judge("x", {"input_output": CALLS}, "cpp", language="cpp").outcome is Outcome.ERROR


CPP_ATTACKS = {
    "includes a file": '#include "/etc/passwd"\nint main() {}',
    "assembles a file in": 'asm(".incbin \\"/etc/passwd\\"");\nint main() {}',
    "compiles without end": "template<int n> struct A { A<n + 1> a; A<n + 2> b; };\nA<0> a; int main() {}",
    "an endless include": '#include "/dev/zero"\nint main() {}',
    "crashes": "int main() { volatile int* p = nullptr; return *p; }",
    "exits with 0": "int main() { return 0; }",
    "forks": "#include <unistd.h>\n#include <cstdio>\nint main() { if (fork() >= 0) puts(\"7\"); }",
    "reads a file": "#include <cstdio>\nint main() { if (fopen(\"/etc/passwd\", \"r\")) puts(\"7\"); }",
    "runs a shell": "#include <cstdlib>\n#include <cstdio>\nint main() { if (system(\"true\") == 0) puts(\"7\"); }",
    "prints and aborts": "#include <cstdlib>\n#include <cstdio>\nint main() { puts(\"7\"); fflush(stdout); abort(); }",
    "loops": "int main() { for (volatile int i = 0;; ) i = i; }",
    "takes all memory": "#include <cstring>\nint main() { for (;;) memset(new char[1 << 24], 1, 1 << 24); }",
}  # fmt: skip


@needs_namespaces
@needs_compiler
@pytest.mark.parametrize("name", CPP_ATTACKS)
def test_an_attack_in_cpp_is_never_right(name: str) -> None:
    data = {"stdin_tests": [{"input": "3\n4\n", "output": "7\n"}]}
    verdict = judge(CPP_ATTACKS[name], data, "cpp", language="cpp", timeout_seconds=2.0)
    assert verdict.outcome in (Outcome.WRONG, Outcome.TIMEOUT), verdict


CHECKER_ATTACKS = {
    "prints a verdict": "print(1)\nprint('1')",
    "writes the checker's files": "open('/tmp/output.txt', 'w').write('1 2 3')\nopen('/tmp/expected.txt', 'w')",
    "changes the checker": "import builtins, sys\nbuiltins.sorted = lambda x: 1\nprint(0)",
    "exits with 0": "exit(0)",
    "prints no text": "import os\nos.write(1, b'\\xff\\x00\\n1')",
    "prints without end": "while True: print(1)",
}


@needs_namespaces
@pytest.mark.parametrize("name", CHECKER_ATTACKS)
@pytest.mark.parametrize("checker", [CHECKER, FILES_CHECKER], ids=["function", "files"])
def test_a_program_cannot_bend_its_checker(name: str, checker: str) -> None:
    data = {"stdin_tests": [{"input": "1 2 3", "output": "6"}], "checker": checker}
    verdict = judge(CHECKER_ATTACKS[name], data)
    assert verdict.outcome is Outcome.WRONG, verdict


NODE_ATTACKS = {
    "its own judge": "def is_same_list(a, b):\n    return True\n" + TURN.format("None"),
    "its own maker": "def list_node(values):\n    return None\n" + TURN.format("None"),
    "its own class": "class ListNode:\n    def __eq__(self, other): return True\n" + TURN.format("ListNode()"),
    "a node of any value": TURN.format("Any()") + "class Any:\n    val = 3\n    next = None\n",
    "ends": TURN.format("__import__('os')._exit(0)"),
}


@needs_namespaces
@pytest.mark.parametrize("name", NODE_ATTACKS)
def test_a_program_cannot_bend_what_judges_its_nodes(name: str) -> None:
    verdict = judge(NODE_ATTACKS[name], LEETCODE)
    assert verdict.outcome is Outcome.WRONG, verdict


@needs_namespaces
@pytest.mark.parametrize("under_data", [True, False])
def test_an_audited_row_holds_its_tests_in_data_or_beside_it(under_data: bool, tmp_path: Path) -> None:
    tests = {"input_output": json.dumps(CALLS)}
    row = {"problem": "Add.", "output": f"```python\n{ADD}\n```", "correct": True}
    (tmp_path / "a.jsonl").write_text(json.dumps(row | ({"data": tests} if under_data else tests)), encoding="utf-8")
    (read,) = read_rows(tmp_path / "a.jsonl")
    assert get("code")(read.sample, {"timeout_seconds": 20.0}).correct
