"""Rows of code problems, as data sets publish them, read into one form. Pure: nothing is run, nothing is unpickled.

`SHAPES` lists what is read. A row may hold several fields; a script of tests goes before pairs of input and output.
"""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from r1zero.verifiers.code_calls import Call
from r1zero.verifiers.pytest_rows import plain_script
from r1zero.verifiers.sandbox.base import InputTest

SHAPES = (
    "`tests` or `test` (asserts, `check(candidate)`, pytest functions; HumanEval, LeetCodeDataset, KodCode), "
    "`test_list` (MBPP), `stdin_tests`, `tests` or `test_cases` (pairs of `input` and `output`; DeepCoder), "
    "`input_output` (APPS, TACO), `public_test_cases` and `private_test_cases` (LiveCodeBench), `public_tests`, "
    "`private_tests` and `generated_tests` (CodeContests), `official_tests` (Codeforces), `ground_truth` or "
    "`reward_model.ground_truth` (PRIME, DAPO), `verification_info`"
)
MAX_PACKED_CHARS = 256 << 20
"""Of LiveCodeBench's packed tests, once unpacked."""

_SCRIPTS = ("tests", "test", "test_list")
_PAIRS = ("stdin_tests", "input_output", "test_cases", "public_test_cases", "private_test_cases", "public_tests",
          "private_tests", "generated_tests", "official_tests", "ground_truth", "verification_info")  # fmt: skip
_STDIN_KINDS = {"stdin", "stdin_stdout"}


class RowError(ValueError):
    """A row that cannot be read: says what about it."""


@dataclass(frozen=True, kw_only=True)
class CodeTests:
    """What a row asks of a program."""

    script: str = ""
    """Python source whose asserts must hold."""
    entry_point: str = ""
    prelude: str = ""
    """Trusted source that goes before the program and helps the tests (LeetCodeDataset's imports and node classes)."""
    input_tests: tuple[InputTest, ...] = ()
    calls: tuple[Call, ...] = ()
    checker: str = ""
    """Python source that judges an output; see `r1zero.verifiers.code`."""
    tolerance: float | None = None
    language: str = ""

    def __bool__(self) -> bool:
        return bool(self.script or self.input_tests or self.calls)


def read_tests(data: Mapping[str, Any], answer: str = "") -> CodeTests:
    """The tests in a row's fields; `answer`: the gold text, which holds them where it was mapped from `ground_truth`.

    Raises RowError for a row in no known shape, and for one whose tests are damaged.
    """
    row = _flat(data, answer)
    tests = CodeTests(
        checker=_text(row.get("checker") or row.get("generated_checker")),
        tolerance=_tolerance(row),
        language=_text(row.get("language")),
        entry_point=_text(row.get("entry_point") or row.get("fn_name")),
    )
    for field in _SCRIPTS:
        tests = _add(tests, row.get(field), row)
    fields = [field for field in _PAIRS if field == "stdin_tests" or not tests.script]
    for field in fields:
        tests = _add(tests, row.get(field), row)
    if not tests:
        known = ", ".join(sorted(row)) or "none"
        raise RowError(f"the row has no tests in a known shape (its fields: {known}); known: {SHAPES}")
    return _finished(tests, row)


def _flat(data: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """The row's fields with those of `reward_model`, `verification_info` and `metadata` among them."""
    row = dict(data)
    for field in ("reward_model", "verification_info", "metadata"):
        inner = _parsed(row.get(field))
        if isinstance(inner, Mapping):
            row = {**inner, **{key: value for key, value in row.items() if key != field}}
    if "func_name" in row:  # LiveCodeBench's metadata
        row.setdefault("fn_name", row["func_name"])
    infos = _parsed(row.get("test_info"))  # KodCode
    if isinstance(infos, Sequence) and len(infos) == 1 and isinstance(infos[0], Mapping):
        row.setdefault("entry_point", infos[0].get("function_name"))
    if answer.lstrip()[:1] in ("{", "[") and not any(row.get(field) for field in (*_SCRIPTS, *_PAIRS)):
        row["ground_truth"] = answer
    return row


def _add(tests: CodeTests, value: Any, row: Mapping[str, Any]) -> CodeTests:
    """`tests` with what one field holds: a script, a list of asserts, pairs, or a column of each side."""
    value = _parsed(value)
    if value is None or (isinstance(value, str | Sequence) and not len(value)):
        return tests
    if isinstance(value, str):
        return replace(tests, script=f"{tests.script}\n{value}" if tests.script else value)
    if isinstance(value, Mapping):
        return _add_columns(tests, value, row)
    if not isinstance(value, Sequence):
        raise RowError(f"tests of type {type(value).__name__}")
    if all(isinstance(one, str) for one in value):
        asserts = "\n".join([*_lines_of(row, "test_imports"), *_lines_of(row, "test_setup_code"), *value])
        return _add(tests, asserts, {})
    if not all(isinstance(one, Mapping) and {"input", "output"} <= one.keys() for one in value):
        raise RowError("a list of tests needs `input` and `output` in each, or an assert's text each")
    return _add_pairs(tests, value, row)


def _add_columns(tests: CodeTests, table: Mapping[str, Any], row: Mapping[str, Any]) -> CodeTests:
    for left, right in (("inputs", "outputs"), ("input", "output")):
        if left in table and right in table:
            inputs, outputs = table[left], table[right]
            if not isinstance(inputs, list | tuple) or not isinstance(outputs, list | tuple):
                inputs, outputs = [inputs], [outputs]
            if len(inputs) != len(outputs):
                raise RowError(f"{len(inputs)} `{left}` for {len(outputs)} `{right}`")
            pairs = [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs, strict=True)]
            return _add_pairs(tests, pairs, {**row, **table})
    for field in ("test_cases", "ground_truth"):
        if field in table:
            return _add(tests, table[field], {**row, **table})
    return tests


def _add_pairs(tests: CodeTests, pairs: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> CodeTests:
    scripts, calls = list(tests.input_tests), list(tests.calls)
    # APPS writes an expected value as a list around it, mostly; told by every one of the row being a list of one.
    wrapped = all(isinstance(pair["output"], list) and len(pair["output"]) == 1 for pair in pairs)
    for pair in pairs:
        kind = pair.get("testtype") or pair.get("type")
        inner = _parsed(pair.get("metadata"))
        name = pair.get("fn_name") or (inner.get("func_name") if isinstance(inner, Mapping) else "")
        name = _text(name or row.get("fn_name"))
        if kind in _STDIN_KINDS or not name:
            if kind and kind not in _STDIN_KINDS:
                raise RowError(f"tests of kind {kind!r} without a function's name (`fn_name`)")
            scripts.append(InputTest(input=_stream(pair["input"]), output=_stream(pair["output"])))
        else:
            calls.append(_call(name, pair["input"], pair["output"], wrapped))
    return replace(tests, input_tests=tuple(scripts), calls=tuple(calls))


def _call(name: str, given: Any, wanted: Any, wrapped: bool) -> Call:
    name = name.rpartition(".")[2]
    if not name.isidentifier():
        raise RowError(f"{name[:80]!r} is no function's name")
    if isinstance(given, str):  # LiveCodeBench: an argument a line, in JSON
        values = [_loads(line) for line in given.split("\n") if line.strip()]
        return Call(name=name, args=_dumps(values), expected=_dumps(_loads(_text(wanted))))
    if isinstance(given, Mapping):
        raise RowError("arguments by name are not read: a list is needed")
    args = list(given) if isinstance(given, list | tuple) else [given]
    return Call(name=name, args=_dumps(args), expected=_dumps(wanted), wrapped=wrapped)


def _finished(tests: CodeTests, row: Mapping[str, Any]) -> CodeTests:
    """The script as the tester takes it: a method as entry point (LeetCodeDataset), pytest's functions called."""
    script, entry_point = tests.script, tests.entry_point
    if not script:
        return replace(tests, entry_point=tests.calls[0].name if tests.calls else "")
    prelude = ""
    if entry_point.startswith("Solution()"):
        script += f"\n\ncheck({entry_point})\n"
        entry_point, prelude = "Solution", _text(row.get("prompt"))
    try:
        return replace(tests, script=plain_script(script), entry_point=entry_point, prelude=prelude)
    except ValueError as error:
        raise RowError(str(error)) from error


# Parts


def _parsed(value: Any) -> Any:
    """JSON text (also packed: see `unpacked`) as its value; all else, and a text that is no JSON, as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return _loads(value)
        except RowError:
            return value
    if isinstance(value, str) and value[:2] == "eJ" and " " not in value[:80]:  # base64 of zlib's first bytes
        return _loads(unpacked(value))
    return value


@functools.lru_cache(maxsize=4)
def unpacked(text: str) -> str:
    """The text in LiveCodeBench's private tests: base64 of zlib of a pickled string.

    The pickle is read by its opcodes and never executed: one string, framed and memoised, and nothing else.
    Raises RowError for any other.
    """
    import pickletools

    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text, validate=True), MAX_PACKED_CHARS)
        if not inflate.eof:
            cut = "cut off" if not inflate.unconsumed_tail else f"over {MAX_PACKED_CHARS} bytes"
            raise RowError(f"packed tests that are damaged: {cut}")
        found: list[str] = []
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8") and not found:
                found.append(str(argument))
            elif opcode.name not in ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP"):
                raise RowError(f"packed tests that are more than a text ({opcode.name}): refused")
    except RowError:
        raise
    except (ValueError, zlib.error) as error:
        raise RowError(f"packed tests that are damaged: {error}") from error
    if not found:
        raise RowError("packed tests that hold no text")
    return found[0]


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise RowError("tests nested too deep") from error
    except ValueError:
        pass
    try:  # again, for integers over Python's limit of digits: Decimal has none
        return json.loads(text, parse_int=lambda digits: int(Decimal(digits)))
    except ValueError as error:
        raise RowError(f"a test that is no JSON: {error}") from error


def _dumps(value: Any) -> str:
    try:
        return json.dumps(value)
    except TypeError as error:
        raise RowError(f"a test that is no JSON: {error}") from error
    except ValueError:  # an integer over Python's limit of digits
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(_dumps, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(str(key))}: {_dumps(part)}" for key, part in value.items()) + "}"
        return str(Decimal(value))


def _stream(value: Any) -> str:
    """Standard input or output: a text, or its lines. CRLF is a line's end like another."""
    if isinstance(value, list | tuple):
        value = "\n".join(_stream(line) for line in value)
    return (value if isinstance(value, str) else _dumps(value)).replace("\r\n", "\n")


def _lines_of(row: Mapping[str, Any], field: str) -> list[str]:
    value = row.get(field) or []
    return [value] if isinstance(value, str) else [str(line) for line in value]


def _tolerance(row: Mapping[str, Any]) -> float | None:
    value = row.get("tolerance")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
