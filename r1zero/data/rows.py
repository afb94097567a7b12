"""Raw rows: a file, a hub dataset or a function in, fields and where they stand out.

Every row knows its place, for the error that names it.
"""

from __future__ import annotations

import gzip
import importlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1zero.config import DataConfig
from r1zero.data.hub import hub
from r1zero.errors import UserError, first_line

SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class DataRow:
    """One raw row and where it stands, for the error that names it."""

    where: str
    fields: Mapping[str, Any]


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
    import datasets  # Hugging Face's

    local = Path(config.folder) / config.source
    place = str(local) if config.folder and local.is_dir() else config.source
    name = f"{config.source} ({config.config})" if config.config else config.source
    try:
        with nullcontext() if Path(place).exists() else hub():
            rows = datasets.load_dataset(place, config.config or None, split=config.split)
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


def _filter(rows: Sequence[DataRow], config: DataConfig) -> list[DataRow]:
    """Rows whose fields have the wanted values; 3 and "3" are the same, as files disagree on it."""
    kept = list(rows)
    for name, wanted in config.filter.items():
        values = {str(value) for value in wanted}
        if not any(name in row.fields for row in rows):
            raise UserError(f"data.filter: no row of {config.source} has a field {name!r} {field_names(rows[0])}")
        seen = Counter(str(row.fields.get(name)) for row in kept)
        kept = [row for row in kept if name in row.fields and str(row.fields[name]) in values]
        if not kept:
            common = ", ".join(repr(value) for value, _ in seen.most_common(10))
            raise UserError(
                f"data.filter: no row of {config.source} is left with {name} in {list(wanted)}; values there: {common}"
            )
    return kept


def value_at(fields: Mapping[str, Any], name: str) -> Any:
    """The value called `name`: a field of that very name, else dots go inward (`reward_model.ground_truth`,
    `prompt.0.content`). Raises KeyError where there is none."""
    if name in fields:
        return fields[name]
    value: Any = fields
    for part in name.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise KeyError(name)
    return value


def field_names(row: DataRow) -> str:
    return f"(it has {', '.join(sorted(map(str, row.fields))) or 'none'})"
