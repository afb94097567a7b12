"""Problem sources: files, hub datasets or generated sources in, `Problem`s out. The first arrow of the pipeline.

data -> [problem] -> prompt. Order of work: read rows, filter, make `Problem`s, shuffle with the seed, keep `limit`;
of several sources each so, then all one after the other (`order.mix` draws them by weight).
Every row is checked before the first step of a run: a bad one is named by file and line.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from r1zero.config import DataConfig
from r1zero.config.data import SourceConfig
from r1zero.data import presets
from r1zero.data.generated import GYM, TINY, gym_problems, normal, tiny_problems
from r1zero.data.records import Problem
from r1zero.data.rows import DataRow, field_names, read_rows, value_at
from r1zero.errors import UserError

_ID_FIELDS = ("id", "unique_id", "task_id")
SOLVE_RATE = "solve_rate"
"""The field in which `r1zero data difficulty` keeps the share of right answers."""


@dataclass(frozen=True, kw_only=True)
class Problems:
    """What was read and what was left out."""

    kept: list[Problem]
    dropped: dict[str, list[Problem]]
    """By the reason."""
    repeated: int
    """Of those kept, how many ask what an earlier one asks."""

    def said(self) -> list[str]:
        """What the user has to know of what was left out, a line a reason."""
        lines = [f"{len(problems)} problems left out: {reason}" for reason, problems in self.dropped.items()]
        if self.repeated:
            lines.append(f"{self.repeated} of {len(self.kept)} problems repeat an earlier question (data.duplicates)")
        return lines


def load_problems(config: DataConfig) -> list[Problem]:
    """The problems `config` describes, shuffled with its seed; of mixed data, source after source.

    Raises UserError, in one line: no such file, nothing in it, a row that cannot be read or lacks a field (file and
    line named), an unknown task, a filter that leaves nothing.
    """
    return load(config).kept


def load(config: DataConfig) -> Problems:
    """As `load_problems`, with what was left out and why."""
    if not config.sources:
        problems = _one_source(config)
    else:
        problems = []
        for source in config.sources:
            own = {field.name: getattr(source, field.name) for field in fields(SourceConfig)}
            part = _one_source(DataConfig(**own, seed=config.seed, folder=config.folder))
            problems += [replace(p, id=f"{source.key}/{p.id}", source=source.key) for p in part]
    dropped: dict[str, list[Problem]] = {}
    if config.solve_rate:
        problems = _by_solve_rate(problems, config, dropped)
    firsts, repeats = _first_of_each(problems)
    if config.duplicates == "drop" and repeats:
        problems, repeats, dropped["a question that stood before"] = firsts, [], repeats
    left = {problem.source for problem in problems}
    empty = [source.key for source in config.sources if source.key not in left] or ([] if problems else [config.source])
    if empty:
        raise UserError(f"{empty[0]}: no problem is left: {'; '.join(f'{len(p)} {r}' for r, p in dropped.items())}")
    return Problems(kept=problems, dropped=dropped, repeated=len(repeats))


def _one_source(config: DataConfig) -> list[Problem]:
    config = presets.resolve(config)
    source = config.source
    if not source:
        raise UserError(
            "data.source is empty: name a file, a hub dataset, preset:NAME, reasoning_gym:TASK, tiny:arithmetic or "
            "module:function"
        )
    if source.startswith(GYM):
        problems = gym_problems(config)
    elif source.startswith(TINY):
        problems = tiny_problems(config)
    else:
        problems = [_problem(row, index, config) for index, row in enumerate(read_rows(config))]
        problems = _with_unique_ids(problems)
    if config.verifier:
        name, options = config.verifier, config.verifier_options
        problems = [p if p.verifier else replace(p, verifier=name, verifier_options=options) for p in problems]
    random.Random(config.seed).shuffle(problems)
    return problems[: config.limit] if config.limit else problems


def _by_solve_rate(problems: Sequence[Problem], config: DataConfig, dropped: dict[str, list[Problem]]) -> list[Problem]:
    low, high = config.solve_rate
    kept = []
    for problem in problems:
        rate = problem.data.get(SOLVE_RATE)
        if isinstance(rate, bool) or not isinstance(rate, int | float):
            raise UserError(
                f"data.solve_rate: problem {problem.id!r} has no number {SOLVE_RATE!r}: measure it first with "
                "`r1zero data difficulty`"
            )
        if low <= rate <= high:
            kept.append(problem)
        else:
            reason = f"too hard (solve rate under {low:g})" if rate < low else f"too easy (solve rate over {high:g})"
            dropped.setdefault(reason, []).append(problem)
    return kept


def _first_of_each(problems: Sequence[Problem]) -> tuple[list[Problem], list[Problem]]:
    """Those whose question is new, and those whose question stood before."""
    seen: set[str] = set()
    firsts: list[Problem] = []
    repeats: list[Problem] = []
    for problem in problems:
        question = normal(problem.prompt)
        (repeats if question in seen else firsts).append(problem)
        seen.add(question)
    return firsts, repeats


def fingerprint(problems: Sequence[Problem]) -> str:
    """Hash of what the problems say, in their order: prompt, answer and verifier data. 16 hex digits.

    Two runs with the same fingerprint saw the same problems in the same order.
    """
    digest = hashlib.sha256()
    for problem in problems:
        says = [problem.prompt, problem.answer, dict(problem.data)]
        if problem.verifier:
            says += [problem.verifier, dict(problem.verifier_options)]
        text = json.dumps(says, sort_keys=True, default=str)
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


def overlap(problems: Sequence[Problem], others: Sequence[Problem]) -> list[str]:
    """Questions that stand in both, spaces and case aside: a held-out set must share none with the training set."""
    seen = {normal(problem.prompt) for problem in others}
    return [problem.prompt for problem in problems if normal(problem.prompt) in seen]


# Rows to problems

# Fields of rows that need no answer: tests, as published sets name them (`verifiers/code_rows.py`), and the like.
_TESTS = frozenset(
    {"tests", "test", "test_list", "stdin_tests", "test_cases", "input_output", "public_test_cases", "official_tests",
     "private_test_cases", "public_tests", "private_tests", "verification_info", "instruction_id_list", "json_schema"}
)  # fmt: skip


def _problem(row: DataRow, index: int, config: DataConfig) -> Problem:
    prompt = _text(row, config.prompt_field, "prompt_field")
    answer = ""
    # Code problems have tests instead of an answer, and instructions their kinds.
    if config.answer_field and not (config.answer_field not in row.fields and _TESTS.intersection(row.fields)):
        answer = _answer(row, config)
    used = {config.prompt_field, config.answer_field, *_ID_FIELDS}
    name = next((str(row.fields[key]) for key in _ID_FIELDS if row.fields.get(key) is not None), f"row-{index}")
    data = {key: value for key, value in row.fields.items() if key not in used and _is_jsonable(value)}
    return Problem(
        id=name, prompt=prompt, answer=answer, data=data, source=config.source, verifier=_verifier(row, config)
    )


def _verifier(row: DataRow, config: DataConfig) -> str:
    """What the row says of who judges it; empty where it says nothing."""
    value = row.fields.get(config.verifier_field) if config.verifier_field else None
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise UserError(f"{row.where}: field {config.verifier_field!r} is a {type(value).__name__}, not a name")
    return config.verifiers.get(value, value)


def _text(row: DataRow, name: str, setting: str) -> str:
    try:
        value = value_at(row.fields, name)
    except KeyError:
        raise UserError(
            f"{row.where}: no field {name!r} {field_names(row)}; name the right one with data.{setting}"
        ) from None
    if setting == "prompt_field" and isinstance(value, list):
        value = _question_of_chat(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{row.where}: field {name!r} is a {type(value).__name__}, not text")
    text = str(value)
    if not text.strip():
        raise UserError(f"{row.where}: field {name!r} is empty")
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise UserError(f"{row.where}: field {name!r} holds half of a UTF-16 pair (\\ud800 to \\udfff): not valid text")
    return text


def _question_of_chat(messages: list[Any]) -> Any:
    """The last user's message; the list itself where it is no chat of one question."""
    users = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return users[-1] if users and users[-1] is not None else messages


def _answer(row: DataRow, config: DataConfig) -> str:
    """The gold answer. `options: {answer_after: "####"}` takes what follows the last mark (GSM8K's solutions);
    `{answer_in: boxed}` the content of the last \\boxed{} (MATH's); `{answer_in: json}` the first of a JSON list."""
    text = _text(row, config.answer_field, "answer_field")
    mark, kind = config.options.get("answer_after"), config.options.get("answer_in")
    if mark:
        if mark not in text:
            raise UserError(f"{row.where}: field {config.answer_field!r} has no {mark!r} (data.options.answer_after)")
        text = text.rpartition(mark)[2].strip()
    elif kind == "boxed":
        boxed = last_boxed(text)
        if boxed is None:
            raise UserError(
                f"{row.where}: field {config.answer_field!r} has no whole \\boxed{{}} (data.options.answer_in)"
            )
        text = boxed
    elif kind == "json":
        text = _first_of_json(text)
        if not text:
            raise UserError(f"{row.where}: field {config.answer_field!r} is no JSON list of answers")
    if not text:
        raise UserError(f"{row.where}: the answer taken from field {config.answer_field!r} is empty")
    return text


def _first_of_json(text: str) -> str:
    try:
        answers = json.loads(text)
    except json.JSONDecodeError:
        return ""
    return str(answers[0]) if isinstance(answers, list) and answers else ""


def last_boxed(text: str) -> str | None:
    """Content of the last `\\boxed{…}` (or `\\fbox`) of a gold solution, braces balanced; None where there is none."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    begin = text.index("{", start) + 1
    depth = 1
    for position in range(begin, len(text)):
        if text[position - 1] == "\\":
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position].strip()
    return None


def _is_jsonable(value: Any) -> bool:
    """Problems are written to the run's rollouts: images and other objects of a hub row stay behind."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _with_unique_ids(problems: Sequence[Problem]) -> list[Problem]:
    """Rows that share an id get `#2`, `#3` … after it: records of a run refer to problems by id."""
    counts: Counter[str] = Counter()
    unique = []
    for p in problems:
        counts[p.id] += 1
        name = p.id if counts[p.id] == 1 else f"{p.id}#{counts[p.id]}"
        unique.append(replace(p, id=name))
    return unique
