"""State <-> disk. A checkpoint is a Hugging Face model folder, loadable as it stands, with the trainer's state in
`trainer/` beside the weights; a run resumed from one is the same run.

Written under a temporary name, flushed to the disk, then renamed, and renamed before it is deleted: a folder called
`step-N` is always whole. What the disk does to it later is found by its checksums (`trainer/checksums.json`): a
checkpoint that does not match them is passed over, and the one before it is taken.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.errors import UserError

CHECKSUMS = "trainer/checksums.json"
"""Within a checkpoint: the sha256 of each of its files, by relative path."""


def save_checkpoint(
    folder: Path,
    step: int,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    tensors: dict[str, Any],
    state: dict[str, Any],
) -> Path:
    """Write `folder/step-N`: `weights` (None: the model's own) in their master type (float32), `tensors` (optimizer,
    reference) by torch.save,
    `state` (JSON-able counters) and the random state of every library. Returns the folder.

    Raises UserError when it cannot be written (a full disk), leaving nothing half-written behind.
    """
    target = folder / f"step-{step}"
    temporary = folder / f".writing-step-{step}"
    for left_over in [*folder.glob(".writing-*"), *folder.glob(".deleting-*")]:  # of killed runs: we hold the lock
        shutil.rmtree(left_over, ignore_errors=True)
    try:
        trainer = temporary / "trainer"
        trainer.mkdir(parents=True)
        own = model.named_parameters() if weights is None else weights.items()
        model.save_pretrained(temporary, state_dict={name: w.detach().cpu().contiguous() for name, w in own})
        tokenizer.save_pretrained(temporary)
        torch.save({**tensors, "rng": _rng_state()}, trainer / "tensors.pt")
        (trainer / "state.json").write_text(json.dumps({"step": step, **state}, indent=1), encoding="utf-8")
        sums = {str(path.relative_to(temporary)): _sha256(path) for path in _files(temporary)}
        (temporary / CHECKSUMS).write_text(json.dumps(sums, indent=1), encoding="utf-8")
        for path in [*temporary.rglob("*"), temporary]:
            _fsync(path)
        if target.exists():  # the same step again, after a resume
            _delete(target)
        temporary.rename(target)
        _fsync(folder)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch reports a failed write as RuntimeError
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(
            f"checkpoint {target} could not be written ({error}): free some disk space, then go on with --resume"
        ) from error
    return target


def load_trainer_state(checkpoint: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """`(tensors, state)` as given to `save_checkpoint`; also puts every library's random state back."""
    # Our own file: it holds random states of Python and NumPy, which the weights-only loader refuses.
    tensors: dict[str, Any] = torch.load(checkpoint / "trainer" / "tensors.pt", map_location="cpu", weights_only=False)
    _set_rng_state(tensors.pop("rng"))
    state: dict[str, Any] = json.loads((checkpoint / "trainer" / "state.json").read_text(encoding="utf-8"))
    return tensors, state


def latest_checkpoint(folder: Path) -> Path | None:
    """The whole checkpoint with the highest step, if any. One whose files are not what was written is passed over,
    which is said on stderr."""
    for path in sorted(_all(folder), key=step_of, reverse=True):
        # Hashed once in a process, as long as no file's size or time changes.
        stamps = tuple((str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in _files(path))
        if not _corrupt_files(path, stamps):
            return path
    return None


def part_bytes(checkpoint: Path) -> dict[str, int]:
    """Bytes a checkpoint takes: `weights`, `trainer` (optimizer, reference, random states) and `other`."""
    sizes = {"weights": 0, "trainer": 0, "other": 0}
    for path in _files(checkpoint):
        name = "trainer" if path.parent.name == "trainer" else "weights" if path.suffix == ".safetensors" else "other"
        sizes[name] += path.stat().st_size
    return sizes


@lru_cache(maxsize=64)
def _corrupt_files(checkpoint: Path, stamps: tuple[tuple[str, int, int], ...]) -> tuple[str, ...]:
    """Files of a checkpoint that are missing or not as they were written; none for one without checksums (older)."""
    try:
        sums = json.loads((checkpoint / CHECKSUMS).read_text(encoding="utf-8"))
        wrong = tuple(
            name
            for name, digest in sums.items()
            if not (checkpoint / name).is_file() or _sha256(checkpoint / name) != digest
        )
    except FileNotFoundError:
        return ()
    except (ValueError, AttributeError):
        wrong = (CHECKSUMS,)
    if wrong:
        print(
            f"checkpoint {checkpoint} is corrupt ({', '.join(wrong)}: not as it was written): passed over",
            file=sys.stderr,
        )
    return wrong


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def step_checkpoint(folder: Path, step: int | None) -> Path | None:
    """The whole checkpoint of `step`, or for None the best one, as the latest says; None where it is not there."""
    latest = latest_checkpoint(folder)
    if step is None and latest is not None:
        best = json.loads((latest / "trainer" / "state.json").read_text(encoding="utf-8")).get("best")
        step = best[0] if best else None
    return next((path for path in _all(folder) if step_of(path) == step), None)


def resolve_checkpoint(path: str) -> str:
    """`path` itself; of a run folder its latest checkpoint; of a pipeline's that of its last stage that has one.

    Raises UserError for a run that has none yet.
    """
    manifest, stages = Path(path) / "manifest.json", []
    if manifest.is_file() and (Path(path) / "config.yaml").is_file():
        stages = json.loads(manifest.read_text(encoding="utf-8")).get("stages", [])
    folders = [Path(path) / name / "checkpoints" for name in ["", *stages]]
    if not any(folder.is_dir() for folder in folders):
        return path
    latest = [checkpoint for folder in folders if (checkpoint := latest_checkpoint(folder))]
    if not latest:
        raise UserError(f"{path} has no whole checkpoint yet")
    return str(latest[-1])


def prune(folder: Path, keep: int, best_step: int | None) -> None:
    """Delete all but the last `keep` checkpoints and the best one."""
    for path in sorted(_all(folder), key=step_of)[:-keep] if keep else []:
        if step_of(path) != best_step:
            _delete(path)


def _delete(checkpoint: Path) -> None:
    doomed = checkpoint.with_name(f".deleting-{checkpoint.name}")
    checkpoint.rename(doomed)
    shutil.rmtree(doomed)


def _all(folder: Path) -> list[Path]:
    return [p for p in folder.glob("step-*") if (p / "trainer" / "state.json").exists()]


def step_of(checkpoint: Path) -> int:
    """N of a folder called `step-N`."""
    return int(checkpoint.name.removeprefix("step-"))


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rng_state() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _set_rng_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])
