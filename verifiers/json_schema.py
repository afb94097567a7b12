"""`json_schema`: the answer is JSON that a schema accepts."""

from __future__ import annotations

import json
import re
from typing import Any

from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.shown import shown

MAX_CHARS = 100_000
"""Of a schema, and of an instance."""
_FENCE = re.compile(r"^```[ \t]*(?:json)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}


@register(
    "json_schema",
    preload=("jsonschema",),
    example=Sample(
        completion='<think>Easy.</think>\n```json\n{"age": 7}\n```',
        problem=Problem(id="1", prompt="Write a person of 7.", data={"json_schema": _SCHEMA}),
    ),
)
def json_schema(completion: str, problem: Problem) -> Verdict:
    """Correct when the answer is JSON and the problem's `json_schema` (or `schema`), an object or its text, accepts it.

    The answer: the answer tag, else the last fenced block of the text after the thinking, else that text whole. NaN and
    Infinity are no JSON; a key twice in one object is refused, since readers differ on it. Drafts 3 to 2020-12, by
    `$schema`; `format` is not checked. References are followed within the schema only: nothing is fetched. Schema and
    instance hold at most 100,000 characters. A schema that refers to itself without end is an `error`, an instance
    nested too deep for it `wrong`; what runs on is ended by the pool's deadline.
    It says nothing of whether the content is true.
    """
    try:
        import jsonschema
        from referencing import Registry
        from referencing.exceptions import Unresolvable
    except ImportError as error:
        raise UserError("verifier 'json_schema' needs jsonschema: `pip install 'r1zero[schema]'`") from error
    schema = read_schema(problem.data)
    if isinstance(schema, str):
        return Verdict(Outcome.ERROR, reason=schema)
    text = answer_text(completion)
    if not text or len(text) > MAX_CHARS:
        reason = f"an answer of over {MAX_CHARS} characters" if text else "no answer"
        return Verdict(Outcome.UNPARSEABLE, reason=reason)
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError) as error:
        return Verdict(Outcome.ERROR, reason=f"the schema is none: {str(error).splitlines()[0][:300]}")
    try:
        instance = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        return Verdict(Outcome.UNPARSEABLE, reason=f"no JSON: {str(error)[:200]}", extracted=text[:200])
    try:
        fault = next(iter(kind(schema, registry=Registry()).iter_errors(instance)), None)
    except Unresolvable as error:
        return Verdict(Outcome.ERROR, reason=f"the schema refers to what is not in it: {str(error)[:200]}")
    except RecursionError:
        return _too_deep(kind(schema, registry=Registry()), text)
    except (ArithmeticError, ValueError) as error:  # a number that no arithmetic of the schema's can take
        return Verdict(Outcome.WRONG, reason=f"it cannot be checked: {error}"[:300], extracted=text[:200])
    if fault is not None:
        where = "/".join(map(str, fault.absolute_path)) or "the whole"
        return Verdict(Outcome.WRONG, reason=f"{where[:100]}: {fault.message[:300]}", extracted=text[:200])
    return Verdict(Outcome.CORRECT, reason="the schema accepts it", extracted=text[:200])


def _too_deep(validator: Any, text: str) -> Verdict:
    """A schema that refers to itself without end fails on any value; one that does not, by the instance's depth."""
    try:
        list(validator.iter_errors(None))
    except RecursionError:
        return Verdict(Outcome.ERROR, reason="the schema refers to itself without end")
    return Verdict(Outcome.WRONG, reason="nested too deep", extracted=text[:200])


def read_schema(data: Any) -> dict[str, Any] | bool | str:
    """The schema in a row, or what is wrong with it."""
    schema = data.get("json_schema", data.get("schema"))
    if schema is None:
        return "no schema: `json_schema` in the problem's data"
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        if len(text) > MAX_CHARS:
            return f"a schema of over {MAX_CHARS} characters"
        value = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        return f"the schema is no JSON: {str(error)[:200]}"
    return value if isinstance(value, dict | bool) else "the schema is neither an object nor true or false"


def answer_text(completion: str) -> str:
    """The part of a completion that is to be JSON."""
    text = shown(completion).strip()
    fenced = _FENCE.findall(text) if "```" in text else []
    return fenced[-1].strip() if fenced else text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice in one object")
    return made
