"""An evaluation on disk: `manifest.json` first, `NAME/problems.jsonl` and `NAME/samples.jsonl` as it goes,
`results.json` and `results.md` last. Enough to resume it, to grade it again and to compare it."""

from __future__ import annotations

import fcntl
import json
import math
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TextIO

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.manifest import Manifest, differences
from r1zero.eval.samples import EvalSample, dump, read_samples, to_json, write_samples
from r1zero.runs.folder import plain

# The command and the host may change between a run and its resumption; what computes the numbers may not.
_FREE = ("machine.command", "machine.cores", "machine.git", "checkpoint")


class EvalFolder:
    """The folder of one evaluation, locked from `open` to `close`: by one run, or by its shards, each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locks: list[IO[str]] = []
        self._new = False

    def open(self, manifest: Manifest, *, shard: tuple[int, int] | None = None) -> None:
        """Take the folder for a run of `manifest`, new or to be resumed, or for one shard of it, beside others.

        Raises UserError when another process holds it, or when what it holds was made under other settings.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take(".lock", fcntl.LOCK_SH if shard else fcntl.LOCK_EX)
            if shard:
                self._take(f".lock-{shard[0]}-of-{shard[1]}", fcntl.LOCK_EX)
        except OSError as error:
            self.close()
            raise UserError(f"cannot write to {self.path} ({error.strerror}): choose another --out") from error
        known = self.path / "manifest.json"
        self._new = not known.exists() and not shard
        manifest = _json_like(manifest)
        if known.exists():
            changed = [d for d in differences(read_json(known), manifest) if not d[0].startswith(_FREE)]
            if changed:
                key, old, new = changed[0]
                self.close()
                raise UserError(
                    f"{self.path} holds an evaluation under other settings ({key} was {old!r}, is {new!r}"
                    f"{f'; {len(changed) - 1} more' if changed[1:] else ''}): choose another --out, or delete it"
                )
        else:
            _write(known, dump(manifest, indent=1) + "\n")

    def _take(self, name: str, kind: int) -> None:
        file = (self.path / name).open("w")
        self._locks.append(file)
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise UserError(
                f"{self.path} is in use by another process: wait for it, or choose another --out"
            ) from error

    def close(self) -> None:
        """Free the folder. A new one in which not one sample was written (the engine did not start) goes, but for what
        it held before us."""
        if self._new and not any(path.stat().st_size for path in self.path.glob("*/samples.jsonl")):
            ours = [self.path / "manifest.json", self.path / ".lock"]
            for path in [*ours, *self.path.glob("*/samples.jsonl"), *self.path.glob("*/problems.jsonl")]:
                path.unlink(missing_ok=True)
            for folder in [*(path for path in self.path.iterdir() if path.is_dir()), self.path]:
                with suppress(OSError):  # not empty: not ours
                    folder.rmdir()
        while self._locks:
            self._locks.pop().close()

    def start(self, name: str, problems: Sequence[Problem], shard: tuple[int, int] | None = None) -> list[EvalSample]:
        """Write a benchmark's problems; returns the graded samples that earlier runs left. Errors are drawn again.

        The whole run takes in what shards left; a shard reads all and writes only its own file.
        """
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        if shard is None or not (folder / "problems.jsonl").exists():
            _write(folder / "problems.jsonl", "".join(dump(plain(problem)) + "\n" for problem in problems))
        kept: dict[tuple[str, int], EvalSample] = {}
        own = self._file(name, shard)
        for path in sorted(folder.glob("samples*.jsonl")):
            graded = [s for s in read_samples(path) if s.score is not None]
            kept |= {s.key: s for s in graded}
            if path == own and shard is not None:
                write_samples(own, graded)  # half a line left by a kill must go before more is appended
        if shard is None and kept:
            write_samples(own, kept.values())
            self._forget_shards(name)
        return list(kept.values())

    def append_to(self, name: str, shard: tuple[int, int] | None = None) -> TextIO:
        return self._file(name, shard).open("a", encoding="utf-8")

    def finish(self, name: str, samples: Sequence[EvalSample]) -> None:
        """Replace the samples, appended as they came, by all of them in order."""
        write_samples(self._file(name, None), samples)

    def _file(self, name: str, shard: tuple[int, int] | None) -> Path:
        return self.path / name / (f"samples.shard-{shard[0]}-of-{shard[1]}.jsonl" if shard else "samples.jsonl")

    def _forget_shards(self, name: str) -> None:
        for path in (self.path / name).glob("samples.shard-*.jsonl"):
            path.unlink()

    def write_results(self, results: Mapping[str, Any], markdown: str) -> None:
        _write(self.path / "results.md", markdown)
        _write(self.path / "results.json", dump(_json_like(results), indent=1) + "\n")


def append(file: TextIO, sample: EvalSample) -> None:
    """One line, on disk before the next sample is drawn."""
    file.write(to_json(sample) + "\n")
    file.flush()


def read_results(folder: Path) -> dict[str, Any]:
    """`results.json` of a finished evaluation. Raises UserError where there is none."""
    path = folder / "results.json"
    if not path.is_file():
        hint = (
            "it was not finished: run its command again" if (folder / "manifest.json").exists() else "is it the folder?"
        )
        raise UserError(f"{folder} holds no results.json ({hint})")
    results: dict[str, Any] = read_json(path)
    try:
        whole = results["benchmarks"].keys() == results["manifest"]["benchmarks"].keys()
        whole = whole and {"checkpoint", "machine"} <= results["manifest"].keys()
    except (TypeError, KeyError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"{path} is not the result of an evaluation")
    return results


def _write(path: Path, text: str) -> None:
    """To a temporary name of its own (shards write the same file at once), then renamed: all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_problems(folder: Path, name: str) -> list[Problem]:
    path = folder / name / "problems.jsonl"
    if not path.is_file():
        raise UserError(f"{path} is missing: {folder} is no whole evaluation")
    try:
        return [Problem(**json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}): {folder} is no whole evaluation") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}): remove it to start again") from error


def _json_like(value: Any) -> Any:
    """As it will come back from a file: dataclasses as mappings, tuples as lists, nan (which JSON lacks) as null."""
    value = plain(value)
    if isinstance(value, Mapping):
        return {key: _json_like(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_like(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
