"""The environment `tools`: the policy may call tools, and answers when a turn of its holds no call.

A tool is a Python function with type hints and a docstring (its schema by transformers' `get_json_schema`): `python`,
`calculator`, or `package.module:function`. It runs in the environment's process, which the host kills at its deadline;
`python` has a sandbox and a deadline of its own inside.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Verdict
from r1zero.environments.base import Observation, shortened
from r1zero.environments.registry import Example, environment
from r1zero.environments.tools.calculator import calculator
from r1zero.environments.tools.calls import BadCall, Call, CallForm, read_calls
from r1zero.environments.tools.python import PythonTool
from r1zero.errors import UserError, first_line, unknown_name
from r1zero.prompts.turns import Message
from r1zero.verifiers.registry import Sample, VerifierSpec
from r1zero.verifiers.registry import resolve as resolve_verifier

_EXAMPLE = Example(
    problem=Problem(id="product", prompt="What is 12345 * 6789?", answer="83810205"),
    says=(
        '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12345 * 6789"}}\n</tool_call>',
        "It is \\boxed{83810205}.",
    ),
)
_FORMS = ("hermes", "llama", "fenced")
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
}  # fmt: skip


@dataclass(frozen=True)
class Tool:
    """A function that may be called."""

    function: Callable[..., Any]
    schema: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Tool:
        """Raises UserError where hints or docstring are missing."""
        from transformers.utils import get_json_schema

        try:
            schema: dict[str, Any] = get_json_schema(function)
        except Exception as error:  # transformers has its own kinds, and raises others too
            raise UserError(
                f"{getattr(function, '__name__', function)!r} is no tool: {first_line(error)}; give every parameter "
                "a type hint and a line under `Args:` in the docstring"
            ) from error
        return cls(function, schema["function"])

    @property
    def name(self) -> str:
        return str(self.schema["name"])

    def call(self, arguments: Mapping[str, Any]) -> str:
        """What it returned, or what is wrong, as text."""
        fault = self._fault(arguments)
        if fault:
            return f"error: {fault}"
        try:
            return str(self.function(**arguments))
        except Exception as error:  # noqa: BLE001  told to the policy, which may have caused it
            return f"error: {type(error).__name__}: {first_line(error)[:500]}"

    def _fault(self, arguments: Mapping[str, Any]) -> str:
        parameters = self.schema["parameters"]
        known: Mapping[str, Any] = parameters.get("properties", {})
        missing = [name for name in parameters.get("required", ()) if name not in arguments]
        if missing:
            return f"{self.name} needs {', '.join(missing)}"
        for name, value in arguments.items():
            if name not in known:
                return f"{self.name} takes no {name!r}; it takes {', '.join(known) or 'nothing'}"
            kind = known[name].get("type")
            wanted = _KINDS.get(kind) if isinstance(kind, str) else None
            if wanted and (not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean")):
                return f"{name!r} of {self.name} must be of type {kind}"
        return ""


@environment("tools", example=_EXAMPLE)
class ToolEnvironment:
    """Correct when the last turn, the one without a call, satisfies `verifier`.

    Options: `tools`, names or `package.module:function`; `form`, how calls are written (`hermes`, `llama`, `fenced`);
    `verifier` and `verifier_options`; `tool_seconds`, `python`'s deadline; `max_output_chars` of one result.
    `schemas`, by tool, are made from the functions where not given (`prepare`).
    A turn cut off at its limit makes no calls. A bad call is told to the policy, and costs it the turn.
    """

    def __init__(
        self,
        *,
        tools: Sequence[str] = ("python", "calculator"),
        form: str = "hermes",
        verifier: str = "math",
        verifier_options: Mapping[str, Any] | None = None,
        tool_seconds: float = 5.0,
        max_output_chars: int = 4000,
        schemas: Mapping[str, Any] | None = None,
    ) -> None:
        if form not in _FORMS:
            raise unknown_name("form of tool calls", form, _FORMS)
        self.form: CallForm = form  # type: ignore[assignment]
        self.max_output_chars = max_output_chars
        self.python = PythonTool(seconds=tool_seconds, max_output_chars=max_output_chars)
        functions = [_function(name, self.python) for name in tools]
        made = [Tool(f, schemas[f.__name__]) if schemas else Tool.of(f) for f in functions]
        self.tools = {tool.name: tool for tool in made}
        if form == "fenced" and "python" not in self.tools:
            raise UserError("fenced code is a call of the tool `python`: add it to `tools`")
        self.spec = VerifierSpec(name=verifier, options=dict(verifier_options or {}))
        self.verifier = resolve_verifier(self.spec)
        self.problem = Problem(id="", prompt="")

    @classmethod
    def prepare(cls, **options: Any) -> dict[str, Any]:
        """The option `schemas`: making them imports torch, which has no room in an episode's process."""
        return {"schemas": {tool.name: dict(tool.schema) for tool in cls(**options).tools.values()}}

    @classmethod
    def preload(cls, **options: Any) -> tuple[str, ...]:
        """The modules of its tools and of its verifier: slow imports (sympy) that are not to cost a deadline."""
        made = cls(**options)
        functions = [tool.function for tool in made.tools.values()] + [made.verifier.function]
        return (*dict.fromkeys(function.__module__ for function in functions), *made.verifier.preload)

    @property
    def tool_schemas(self) -> list[dict[str, Any]]:
        """What the chat template writes; fenced code needs no schema."""
        tools = () if self.form == "fenced" else self.tools.values()
        return [{"type": "function", "function": dict(tool.schema)} for tool in tools]

    def start(self, problem: Problem) -> list[Message]:
        self.problem = problem
        return [{"role": "user", "content": problem.prompt}]

    def step(self, completion: Completion) -> Observation | Verdict:
        calls = [] if completion.truncated else read_calls(completion.text, self.form)
        if not calls:
            sample = Sample(
                completion=completion.text,
                answer=self.problem.answer,
                problem=self.problem,
                finish_reason=completion.finish_reason,
                num_tokens=completion.num_tokens,
            )
            return self.verifier(sample, self.spec.options)
        results = [shortened(self._result(call), self.max_output_chars).rstrip("\n") for call in calls]
        return Observation(text="\n".join(results), role="tool")

    def _result(self, call: Call | BadCall) -> str:
        if isinstance(call, BadCall):
            return f"error: {call.reason}"
        if call.name not in self.tools:
            return f"error: there is no tool {call.name[:100]!r}; the tools are {', '.join(self.tools)}"
        return self.tools[call.name].call(call.arguments)


def _function(name: str, python: PythonTool) -> Callable[..., Any]:
    """The function that a recipe names. Raises UserError."""
    if name == "python":
        return python.python
    if name == "calculator":
        return calculator
    module, colon, attribute = name.partition(":")
    if not colon:
        raise unknown_name("tool", name, ("python", "calculator", "package.module:function"))
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"tool {name!r} cannot be imported: {error}") from error
    return function
