"""Problem sources: a file, a hub dataset or a generated source in, `Problem`s out. The first arrow of the pipeline.

data -> [problem] -> prompt. Order of work: read rows, filter, make `Problem`s, shuffle with the seed, keep `limit`.
Every row is checked before the first step of a run: a bad one is named by file and line.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import inspect
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1zero.config import DataConfig
from r1zero.data.records import Problem
from r1zero.errors import UserError, first_line, unknown_name

SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet")
GYM = "reasoning_gym:"
TINY = "tiny:"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_ID_FIELDS = ("id", "unique_id", "task_id")
# One in five questions of a generated source is held out: which one depends on its text alone.
_TEST_SHARE = 5


@dataclass(frozen=True)
class DataRow:
    """One raw row and where it stands, for the error that names it."""

    where: str
    fields: Mapping[str, Any]


def load_problems(config: DataConfig) -> list[Problem]:
    """The problems `config` describes, shuffled with its seed.

    Raises UserError, in one line: no such file, nothing in it, a row that cannot be read or lacks a field (file and
    line named), an unknown task, a filter that leaves nothing.
    """
    source = config.source
    if not source:
        raise UserError(
            "data.source is empty: name a file, a hub dataset, reasoning_gym:TASK, tiny:arithmetic or module:function"
        )
    if source.startswith(GYM):
        problems = _gym_problems(config)
    elif source.startswith(TINY):
        problems = _tiny_problems(config)
    else:
        problems = [_problem(row, index, config) for index, row in enumerate(read_rows(config))]
        problems = _with_unique_ids(problems)
    random.Random(config.seed).shuffle(problems)
    return problems[: config.limit] if config.limit else problems


def read_rows(config: DataConfig) -> list[DataRow]:
    """The raw rows of a file, a hub dataset or a function that pass `config.filter`, in their order.

    Raises UserError as `load_problems` does.
    """
    if config.source.endswith(SUFFIXES):
        rows = list(read_file(Path(config.source)))
    elif _FUNCTION.fullmatch(config.source):
        rows = read_function(config)
    else:
        rows = list(read_hub(config))
    if not rows:
        raise UserError(f"{config.source}: holds no rows")
    return _filter(rows, config)


def fingerprint(problems: Sequence[Problem]) -> str:
    """Hash of what the problems say, in their order: prompt, answer and verifier data. 16 hex digits.

    Two runs with the same fingerprint saw the same problems in the same order.
    """
    digest = hashlib.sha256()
    for problem in problems:
        text = json.dumps([problem.prompt, problem.answer, dict(problem.data)], sort_keys=True, default=str)
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


def overlap(problems: Sequence[Problem], others: Sequence[Problem]) -> list[str]:
    """Questions that stand in both, spaces and case aside: a held-out set must share none with the training set."""
    seen = {_normal(problem.prompt) for problem in others}
    return [problem.prompt for problem in problems if _normal(problem.prompt) in seen]


def in_test_split(question: str) -> bool:
    """True for the fifth of all questions that a generated source holds out. Depends on the text alone, so that no
    seed, size or option can bring a held-out question into training."""
    return hashlib.sha256(_normal(question).encode()).digest()[0] % _TEST_SHARE == 0


def _normal(question: str) -> str:
    return " ".join(question.split()).casefold()


# Rows from files and from the hub


def read_file(path: Path) -> Iterator[DataRow]:
    if not path.is_file():
        raise UserError(f"data file {path} does not exist (working folder: {Path.cwd().name}): check data.source")
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError) as error:
        raise UserError(f"{path}: not a whole gzip file ({error})") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{line}: not UTF-8 text") from error
    if path.name.removesuffix(".gz").endswith(".json"):
        yield from _parse_json(path, text)
        return
    # Not splitlines(): a JSON string may hold U+2028 and its like as they are.
    for number, record in enumerate(text.split("\n"), 1):
        if record.strip():
            yield _object(_loads(record, path, number), f"{path}:{number}")


def _parse_json(path: Path, text: str) -> Iterator[DataRow]:
    if not text.strip():
        return
    rows = _loads(text, path, 1)
    if not isinstance(rows, list):
        raise UserError(f"{path}: holds a {type(rows).__name__}, not a list of objects; one object a line is .jsonl")
    for number, row in enumerate(rows, 1):
        yield _object(row, f"{path}, item {number}")


def _loads(text: str, path: Path, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}:{line}: not JSON ({error.msg} at column {error.colno})") from error
    except RecursionError as error:
        raise UserError(f"{path}:{first_line}: JSON nested too deep") from error


def _object(value: Any, where: str) -> DataRow:
    if not isinstance(value, dict):
        raise UserError(f"{where}: a {type(value).__name__}, not an object with fields")
    return DataRow(where, value)


def _read_parquet(path: Path) -> Iterator[DataRow]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a parquet file ({first_line(error)})") from error
    for number, row in enumerate(rows, 1):
        yield DataRow(f"{path}, row {number}", row)


def read_hub(config: DataConfig) -> Iterator[DataRow]:
    """Rows of a hub dataset (or of a folder that `datasets` can load)."""
    import datasets  # Hugging Face's, not this module: imports are absolute

    name = f"{config.source} ({config.config})" if config.config else config.source
    try:
        rows = datasets.load_dataset(config.source, config.config or None, split=config.split)
    # What the hub's client raises for a bad name, no network or no such split shares no base class but these.
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise UserError(
            f"dataset {name}, split {config.split!r}: cannot be loaded ({first_line(error)[:200]}); check the id and "
            f"the network, or give a local file ({', '.join(SUFFIXES)}) as data.source"
        ) from error
    for number, row in enumerate(rows, 1):
        yield DataRow(f"{name} {config.split}, row {number}", row)


def read_function(config: DataConfig) -> list[DataRow]:
    """What `package.module:function` makes: called with `split`, `size`, `seed` and the options by name, it returns the
    rows as a file would hold them, the same for the same arguments."""
    module, _, name = config.source.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"data.source {config.source}: {error}") from error
    arguments = {"split": config.split, "size": config.size, "seed": config.seed, **config.options}
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise UserError(f"{config.source}: its options are not {config.options} ({error})") from error
    rows = [DataRow(f"{config.source} {config.split}, row {i}", row) for i, row in enumerate(function(**arguments), 1)]
    if len(rows) < config.size:
        raise UserError(
            f"{config.source}, split {config.split}: made only {len(rows)} rows of the {config.size} asked for: lower "
            "data.size or widen data.options"
        )
    return rows


# Rows to problems

# Fields of rows that need no answer: tests, as published sets name them (`verifiers/code_rows.py`), and the like.
_TESTS = frozenset(
    {"tests", "test", "test_list", "stdin_tests", "test_cases", "input_output", "public_test_cases", "official_tests",
     "private_test_cases", "public_tests", "private_tests", "verification_info", "instruction_id_list", "json_schema"}
)  # fmt: skip


def _filter(rows: Sequence[DataRow], config: DataConfig) -> list[DataRow]:
    """Rows whose fields have the wanted values; 3 and "3" are the same, as files disagree on it."""
    kept = list(rows)
    for name, wanted in config.filter.items():
        values = {str(value) for value in wanted}
        if not any(name in row.fields for row in rows):
            raise UserError(f"data.filter: no row of {config.source} has a field {name!r} {_fields(rows[0])}")
        seen = Counter(str(row.fields.get(name)) for row in kept)
        kept = [row for row in kept if name in row.fields and str(row.fields[name]) in values]
        if not kept:
            common = ", ".join(repr(value) for value, _ in seen.most_common(10))
            raise UserError(
                f"data.filter: no row of {config.source} is left with {name} in {list(wanted)}; values there: {common}"
            )
    return kept


def _problem(row: DataRow, index: int, config: DataConfig) -> Problem:
    prompt = _text(row, config.prompt_field, "prompt_field")
    answer = ""
    # Code problems have tests instead of an answer, and instructions their kinds.
    if config.answer_field and not (config.answer_field not in row.fields and _TESTS.intersection(row.fields)):
        answer = _answer(row, config)
    used = {config.prompt_field, config.answer_field, *_ID_FIELDS}
    name = next((str(row.fields[key]) for key in _ID_FIELDS if row.fields.get(key) is not None), f"row-{index}")
    data = {key: value for key, value in row.fields.items() if key not in used and _is_jsonable(value)}
    return Problem(id=name, prompt=prompt, answer=answer, data=data, source=config.source)


def _text(row: DataRow, name: str, setting: str) -> str:
    if name not in row.fields:
        raise UserError(f"{row.where}: no field {name!r} {_fields(row)}; name the right one with data.{setting}")
    value = row.fields[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{row.where}: field {name!r} is a {type(value).__name__}, not text")
    text = str(value)
    if not text.strip():
        raise UserError(f"{row.where}: field {name!r} is empty")
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise UserError(f"{row.where}: field {name!r} holds half of a UTF-16 pair (\\ud800 to \\udfff): not valid text")
    return text


def _answer(row: DataRow, config: DataConfig) -> str:
    """The gold answer. `options: {answer_after: "####"}` takes what follows the last mark (GSM8K's solutions);
    `{answer_in: boxed}` the content of the last \\boxed{} (MATH's)."""
    text = _text(row, config.answer_field, "answer_field")
    mark = config.options.get("answer_after")
    if mark:
        if mark not in text:
            raise UserError(f"{row.where}: field {config.answer_field!r} has no {mark!r} (data.options.answer_after)")
        text = text.rpartition(mark)[2].strip()
    elif config.options.get("answer_in") == "boxed":
        boxed = last_boxed(text)
        if boxed is None:
            raise UserError(
                f"{row.where}: field {config.answer_field!r} has no whole \\boxed{{}} (data.options.answer_in)"
            )
        text = boxed
    if not text:
        raise UserError(f"{row.where}: the answer taken from field {config.answer_field!r} is empty")
    return text


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


def _fields(row: DataRow) -> str:
    return f"(it has {', '.join(sorted(map(str, row.fields))) or 'none'})"


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
        unique.append(Problem(id=name, prompt=p.prompt, answer=p.answer, data=p.data, source=p.source))
    return unique


# Generated sources


def _gym_problems(config: DataConfig) -> list[Problem]:
    """`size` distinct problems of a reasoning-gym task; `options` are the task's own parameters.

    Split `test` has the questions that hash to the held-out fifth and `train` the others: reasoning-gym's own seeds do
    not separate them (item i of seed s is item 0 of seed s + i). Split `all` takes both.
    """
    task = config.source.removeprefix(GYM)
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise UserError("reasoning_gym sources need the package: pip install 'r1zero[gym]'") from error
    if task not in DATASETS:
        raise unknown_name("reasoning-gym task", task, DATASETS)
    _check_generated(config, ("train", "test", "all"))
    tries = 20 * config.size + 1000
    try:
        entries = reasoning_gym.create_dataset(task, seed=config.seed, size=tries, **config.options)
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(f"{config.source}: options {config.options} are not its own ({error})") from error
    problems: dict[str, Problem] = {}
    for index in range(tries):
        if len(problems) == config.size:
            break
        entry = entries[index]
        question = entry["question"]
        wanted = config.split == "all" or in_test_split(question) == (config.split == "test")
        if not wanted or question in problems:
            continue
        problems[question] = Problem(
            id=f"{task}-{config.seed}-{index}",
            prompt=question,
            answer="" if entry["answer"] is None else str(entry["answer"]),
            data={"reasoning_gym": task, "entry": entry},
            source=config.source,
        )
    return _enough(list(problems.values()), config)


def _tiny_problems(config: DataConfig) -> list[Problem]:
    from r1zero.data.miniature import arithmetic

    if config.source != "tiny:arithmetic":
        raise unknown_name("generated source", config.source, ["tiny:arithmetic"])
    _check_generated(config, arithmetic.SPLITS)
    if config.options:
        raise UserError(f"tiny:arithmetic takes no options, got {', '.join(config.options)}")
    return _enough(arithmetic.problems(config.split, config.size, config.seed), config)


def _check_generated(config: DataConfig, splits: Sequence[str]) -> None:
    if config.split not in splits:
        raise unknown_name(f"split of {config.source}", config.split, splits)
    if config.filter:
        raise UserError(f"data.filter is for files and hub datasets; {config.source} is shaped by data.options")


def _enough(problems: list[Problem], config: DataConfig) -> list[Problem]:
    if len(problems) < config.size:
        raise UserError(
            f"{config.source}, split {config.split}: found only {len(problems)} distinct problems of the {config.size} "
            "asked for: lower data.size or widen data.options"
        )
    return problems
