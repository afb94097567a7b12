"""Tools: calls read, told when bad, made in the sandbox; the calculator's arithmetic; attacks through `python`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from r1zero.data.episodes import Budget
from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.environments import EnvironmentSpec
from r1zero.environments.base import Observation
from r1zero.environments.host import EnvironmentHost
from r1zero.environments.play import play
from r1zero.environments.tools.calculator import calculator
from r1zero.environments.tools.calls import BadCall, Call, read_calls
from r1zero.environments.tools.environment import Tool, ToolEnvironment
from r1zero.environments.tools.python import PythonTool
from r1zero.errors import UserError
from r1zero.prompts.turns import OUTPUT_FENCE
from r1zero.rollout.base import Sampling
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.verifiers.sandbox import sandbox_status
from r1zero.verifiers.sandbox.launch import Unprotected
from tests.attack_programs import BREACHES, FORGERIES, HOGS, fill
from tests.chat_tokenizers import sampling_of, turn_text
from tests.some_environments import double

PROBLEM = sandbox_status()
needs_namespaces = pytest.mark.skipif(PROBLEM is not None, reason=PROBLEM or "")
PATIENT = 20.0
ALLOWANCE = 5.0


@pytest.fixture
def python() -> Iterator[PythonTool]:
    tool = PythonTool(seconds=PATIENT)
    yield tool
    tool.close()


def said(text: str, *, cut: bool = False) -> Completion:
    return Completion(token_ids=(1,), text=text, logprobs=(0.0,), finish_reason="length" if cut else "stop")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12345 * 6789", "83810205"),
        ("1 + 2 * 3 ^ 2", "19"),
        ("2 ** 3 ^ 2", "512"),  # powers from the right
        ("-2 ^ 2", "-4"),
        ("(1 - 3) * -.5", "1"),
        ("7 / 8", "0.875"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "1/3 (about 0.333333333333)"),
        ("-7 % 3", "2"),
        ("2 ^ -2", "0.25"),
        ("-1 / 1024", "-0.0009765625"),
        ("(-1) ^ 1000001", "-1"),
        ("1 ^ 999999999999", "1"),
        ("0 ^ 30000", "0"),
        ("0 ^ 0", "1"),
        ("6 × 7 ÷ 2", "21"),
        ("1 / 0", "error: division by zero"),
        ("0 ^ -1", "error: division by zero"),
        ("9 ^ 9 ^ 9", "error: the power is too large"),
        ("2 ^ 0.5", "error: an exponent must be a whole number"),
        ("(1 + 2", "error: a parenthesis is not closed"),
        ("1 +", "error: the expression ends too early"),
        ("1 2", "error: '2' is not expected there"),
        ("__import__('os')", "error: cannot read \"__import__('os')\": numbers, + - * / % ^ and parentheses only"),
        ("٣ + 1", "error: cannot read '٣ + 1': numbers, + - * / % ^ and parentheses only"),
        ("(" * 200 + "1", "error: nested over 50 deep"),
        ("1" * 2001, "error: an expression has at most 2000 characters"),
    ],
)
def test_the_calculator_is_exact_and_says_what_it_cannot_do(expression: str, value: str) -> None:
    assert calculator(expression) == value


def test_the_calculator_s_cost_is_bounded() -> None:
    began = time.monotonic()
    for expression in ("9^9^9^9", "*".join(["9^6000"] * 200), "2^19999", "1/3^6000 + " * 100 + "1", "-" * 1999 + "1"):
        calculator(expression)
    assert time.monotonic() - began < 2
    assert calculator("2^6000") == str(2**6000)
    long = calculator("2^6000 * 2^6000 * 2^6000")  # over the 4,300 digits that Python writes
    assert len(long) == 5419
    assert long.startswith(str(2**18000 // 10**3000))


CALL = '{"name": "double", "arguments": {"number": 4}}'
SHAPE = 'a call is an object {"name": ..., "arguments": {...}}'


@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        ("hermes", f"Let me.\n<tool_call>\n{CALL}\n</tool_call>", [Call("double", {"number": 4})]),
        ("hermes", f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>", [Call("double", {"number": 4})] * 2),
        ("hermes", "It is 8.", []),
        ("hermes", f"<tool_call>{CALL}", [BadCall("<tool_call> without </tool_call>")]),
        ("hermes", '<tool_call>{"name": 3}</tool_call>', [BadCall(SHAPE)]),
        ("hermes", '<tool_call>{"name": "f", "arguments": 1}</tool_call>', [BadCall("`arguments` must be an object")]),
        ("llama", '{"name": "double", "parameters": {"number": 4}}', [Call("double", {"number": 4})]),
        ("llama", '<|python_tag|>{"name": "double", "parameters": {}}', [Call("double", {})]),
        ("llama", "The set {1, 2}", []),
        ("fenced", "So:\n```python\nprint(1)\n```\n", [Call("python", {"code": "print(1)\n"})]),
        ("fenced", "```python\n1\n```\n```output", [Call("python", {"code": "1\n"})]),
        ("fenced", "```python\n1\n```\nso \\boxed{1}", []),
        ("fenced", "```python\nprint(1)", []),
        ("fenced", "```python\n1\n```\nand text\n```", []),
    ],
)  # fmt: skip
def test_calls_are_read_in_each_form(form: str, text: str, calls: list[Call | BadCall]) -> None:
    assert read_calls(text, form) == calls  # type: ignore[arg-type]


@pytest.mark.parametrize("body", ["[" * 100_000, "{", '{"name": "f", "arguments": ' + "9" * 5000 + "}", ""])
def test_a_call_that_is_no_json_is_a_bad_call(body: str) -> None:
    (call,) = read_calls(f"<tool_call>{body}</tool_call>", "hermes")
    assert isinstance(call, BadCall)
    assert len(read_calls("<tool_call>{}</tool_call>" * 1000, "hermes")) == 16


def test_a_function_with_hints_and_docstring_is_a_tool_and_its_arguments_are_checked() -> None:
    tool = Tool.of(double)
    assert tool.schema["parameters"]["properties"]["number"] == {"type": "integer", "description": "The number."}
    assert tool.call({"number": 4}) == "8"
    assert tool.call({}) == "error: double needs number"
    assert tool.call({"number": True}) == "error: 'number' of double must be of type integer"
    assert tool.call({"number": 4, "x": 1}) == "error: double takes no 'x'; it takes number"
    with pytest.raises(UserError, match="is no tool"):
        Tool.of(lambda x: x)


def test_a_bad_call_is_an_observation_and_an_answer_a_verdict() -> None:
    environment = ToolEnvironment(tools=("tests.some_environments:double", "calculator"))
    environment.start(Problem(id="1", prompt="2 * 4?", answer="8"))
    told = environment.step(said(f"<tool_call>{CALL}</tool_call><tool_call>{{</tool_call>"))
    assert isinstance(told, Observation)
    assert told.role == "tool"
    assert told.text.startswith("8\nerror: the call is not valid JSON")
    unknown = environment.step(said('<tool_call>{"name": "rm", "arguments": {}}</tool_call>'))
    assert isinstance(unknown, Observation)
    assert unknown.text == "error: there is no tool 'rm'; the tools are double, calculator"
    verdict = environment.step(said("\\boxed{8}"))
    assert isinstance(verdict, Verdict)
    assert verdict.correct
    cut = environment.step(said(f"<tool_call>{CALL}</tool_call> and", cut=True))
    assert isinstance(cut, Verdict)
    assert not cut.correct
    assert [schema["function"]["name"] for schema in environment.tool_schemas] == ["double", "calculator"]


@needs_namespaces
def test_python_keeps_its_state_and_prints_the_last_value(python: PythonTool) -> None:
    assert python.python("x = 6\ndef f(n): return n * x") == "(no output)"
    assert python.python("print('a')\nf(7)") == "a\n42\n"
    assert python.python("1 / 0").endswith("ZeroDivisionError: division by zero\n")
    assert python.python("if") != ""
    assert python.python("import sys; sys.exit(3)") == "SystemExit: 3\n"
    assert python.python("x") == "6\n"  # all that left it as it was
    assert python.python("'\\ud800'") == "'\\ud800'\n"
    assert python.python("print('\\ud800')") == "?\n"


@needs_namespaces
def test_python_s_output_is_cut_and_says_so() -> None:
    tool = PythonTool(seconds=PATIENT, max_output_chars=100)
    shown = tool.python("print('a' * 300 + 'b')")
    tool.close()
    assert shown == "a" * 50 + "\n[cut: 202 of 302 characters left out]\n" + "a" * 48 + "b\n"


@needs_namespaces
def test_a_cell_that_hangs_costs_its_deadline_and_the_state(python: PythonTool) -> None:
    python.python("x = 1")
    python.seconds = 1.0
    began = time.monotonic()
    assert "over 1 s: killed" in python.python("while True: pass")
    assert time.monotonic() - began < 1.0 + ALLOWANCE
    python.seconds = PATIENT
    assert "NameError" in python.python("x")


ATTACKS = {f"forgery: {name}": source for name, source in FORGERIES.items()} | {
    f"breach: {name}": source for name, source in BREACHES.items()
}


@needs_namespaces
@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_through_python_gets_out_or_marks_itself_right(name: str, tmp_path: Path) -> None:
    inside, outside = tmp_path / "secret", tmp_path / "outside"
    inside.write_text("secret")
    source = fill(ATTACKS[name], secret=str(inside), outside=str(outside), home=str(Path.home()), port=9)
    environment = ToolEnvironment(tools=("python",), form="fenced", tool_seconds=PATIENT)
    environment.start(Problem(id="1", prompt="3 squared?", answer="9"))
    began = time.monotonic()
    for cell in (source, "print('worked:', square(3) == 9 and square(-4) == 16)"):
        told = environment.step(said(f"```python\n{cell}\n```"))
        assert isinstance(told, Observation)
    if name.startswith("breach"):
        assert "worked: True" not in told.text
        assert "worked: False" in told.text
    verdict = environment.step(said("\\boxed{1}"))
    assert isinstance(verdict, Verdict)
    assert verdict.outcome is Outcome.WRONG
    assert not outside.exists()
    assert inside.read_text() == "secret"
    environment.python.close()
    assert time.monotonic() - began < 2 * PATIENT + ALLOWANCE
    assert not _children(), name


def test_without_the_sandbox_a_breach_does_work(tmp_path: Path) -> None:
    """Else the test above would hold for programs that attack nothing."""
    outside = tmp_path / "outside"
    tool = PythonTool(seconds=PATIENT, launcher=Unprotected())
    tool.python(fill(BREACHES["writes outside"], secret="", outside=str(outside), home="", port=9))
    assert tool.python("square(3)") == "9\n"
    assert outside.exists()
    tool.close()


@needs_namespaces
@pytest.mark.parametrize("name", HOGS)
def test_a_hog_in_python_costs_its_deadline_and_the_next_cell_runs(name: str) -> None:
    tool = PythonTool(seconds=1.0)
    for cell in (HOGS[name], "print(list(square(3)))"):
        began = time.monotonic()
        shown = tool.python(cell)
        assert time.monotonic() - began < 1.0 + ALLOWANCE
        assert len(shown) < 5000
    tool.close()
    tool.seconds = PATIENT
    assert tool.python("6 * 7") == "42\n"
    tool.close()
    assert not _children(), name


def _children() -> list[int]:
    """Bubblewrap processes below this one."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "bwrap" and int(rest.split()[1]) == os.getpid():
            found.append(int(stat.parent.name))
    return found


CALLING = {
    "chatml": ("hermes", '<tool_call>{"name": "calculator", "arguments": {"expression": "12345 * 6789"}}</tool_call>'),
    "llama": ("llama", '{"name": "calculator", "parameters": {"expression": "12345 * 6789"}}'),
    "plain": ("fenced", "```python\n12345 * 6789\n```\n```output"),
}
TOLD = {
    "chatml": "\n<|im_start|>user\n<tool_response>\n83810205\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    "llama": '<|start_header_id|>ipython<|end_header_id|>\n\n"83810205"<|eot_id|>'
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "plain": "\n83810205\n```\n",
}


@pytest.mark.parametrize("form", CALLING)
def test_tools_are_called_and_answered_in_the_form_of_the_template(form: str) -> None:
    if form == "plain" and PROBLEM is not None:
        pytest.skip(PROBLEM)
    text = turn_text(form)
    call_form, call = CALLING[form]
    stop = () if form == "plain" else text.template.stop_token_ids(text.tokenizer)
    sampling = Sampling(max_tokens=200, stop_token_ids=stop, stop=(OUTPUT_FENCE,) if form == "plain" else ())
    problem = Problem(id="1", prompt="12345 * 6789?", answer="83810205")
    spec = EnvironmentSpec(name="tools", options={"form": call_form})
    with EnvironmentHost(spec, workers=1) as host:
        ((episode,),) = play(
            ScriptedEngine([call, "\\boxed{83810205}"], text.tokenizer), [problem], text=text, sampling=sampling, n=1,
            budget=Budget(max_turns=3, max_tokens=1000), host=host,
        )  # fmt: skip
    assert text.tokenizer.decode(episode.turns[0].observation_ids) == TOLD[form]
    assert (episode.finish_reason, episode.verdict.correct if episode.verdict else None) == ("stop", True)
    assert ("calculator" in text.tokenizer.decode(episode.prompt_ids)) is (form == "chatml")


@needs_namespaces
def test_a_hanging_tool_costs_its_deadline_and_the_episode_goes_on() -> None:
    text = turn_text("chatml")
    call = '<tool_call>{"name": "python", "arguments": {"code": "while True: pass"}}</tool_call>'
    problem = Problem(id="7", prompt="Guess.", answer="7")
    spec = EnvironmentSpec(name="tools", options={"tool_seconds": 1.0})
    with EnvironmentHost(spec, workers=1) as host:
        ((episode,),) = play(
            ScriptedEngine([call, "\\boxed{7}"], text.tokenizer), [problem], text=text,
            sampling=sampling_of(text, max_tokens=200), n=1, budget=Budget(max_turns=3, max_tokens=2000), host=host,
        )  # fmt: skip
    assert "over 1 s: killed" in episode.turns[0].observation
    assert episode.verdict is not None
    assert episode.verdict.correct
