"""A policy's tool calls, in the form that its template writes. What cannot be read is a `BadCall`, to be told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from r1zero.prompts.turns import OUTPUT_FENCE

CallForm = Literal["hermes", "llama", "fenced"]
"""`hermes`: JSON in <tool_call> tags (Hermes, Qwen); `llama`: the whole turn is one JSON object with `name` and
`parameters` (Llama 3.1 and later); `fenced`: the turn ends with a closed ```python block (base models)."""
MAX_CALLS = 16
"""Of one turn; those behind are not made."""
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class Call:
    """A call as the policy wrote it."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class BadCall:
    """What looks like a call and is none."""

    reason: str


def read_calls(text: str, form: CallForm) -> list[Call | BadCall]:
    """The calls in one turn, in order; none where the turn is an answer."""
    if form == "hermes":
        return _hermes(text)
    if form == "llama":
        said = text.strip().removeprefix("<|python_tag|>").lstrip()
        return [_from_json(said, "parameters")] if said.startswith("{") and '"name"' in said else []
    return _fenced(text)


def _hermes(text: str) -> list[Call | BadCall]:
    calls: list[Call | BadCall] = []
    at = text.find(_OPEN)
    while at >= 0 and len(calls) < MAX_CALLS:
        end = text.find(_CLOSE, at)
        if end < 0:
            calls.append(BadCall(f"{_OPEN} without {_CLOSE}"))
            break
        calls.append(_from_json(text[at + len(_OPEN) : end], "arguments"))
        at = text.find(_OPEN, end)
    return calls


def _from_json(text: str, key: str) -> Call | BadCall:
    try:
        call = json.loads(text)
    except (ValueError, RecursionError) as error:
        return BadCall(f"the call is not valid JSON: {error}")
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return BadCall(f'a call is an object {{"name": ..., "{key}": {{...}}}}')
    arguments = call.get(key, {})
    if not isinstance(arguments, dict):
        return BadCall(f"`{key}` must be an object")
    return Call(call["name"], arguments)


def _fenced(text: str) -> list[Call | BadCall]:
    said = text.rstrip().removesuffix(OUTPUT_FENCE).rstrip()
    if not said.endswith("```"):
        return []
    body = said[:-3]
    at = max(body.rfind("```python\n"), body.rfind("```py\n"))
    if at < 0:
        return []
    code = body[body.index("\n", at) + 1 :]
    return [] if "```" in code else [Call("python", {"code": code})]
