"""What a run reports: a line on the terminal, a line in metrics.jsonl, and the trackers accelerate knows."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import ProjectConfiguration
from rich.console import Console

from r1zero.config import RunConfig
from r1zero.errors import UserError
from r1zero.runs.folder import RunFolder

console = Console(stderr=True, highlight=False)


def say(text: str, style: str | None = None) -> None:
    """One line for the user, on stderr: stdout is kept for results. Of several processes the first one speaks."""
    if os.environ.get("RANK", "0") != "0":  # set by torchrun and `accelerate launch`
        return
    console.print(text, style=style, markup=False, soft_wrap=True)


def readable(text: str, limit: int = 600) -> str:
    """Sampled text for a reader: as it stands, lines indented under the first, a long one's middle left out."""
    text = text.strip()
    if len(text) > limit:
        text = f"{text[: limit // 2].rstrip()} … {text[-limit // 2 :].lstrip()}"
    return text.replace("\n", "\n    ")


def processes() -> PartialState:
    """This process among those that torchrun or `accelerate launch` started; it joins them at the first call."""
    return PartialState(cpu=_on_cpus())


def _on_cpus() -> bool:
    """Several processes without a GPU: accelerate takes each for the only one unless it is told."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.cuda.is_available()


def make_accelerator(config: RunConfig, folder: RunFolder, mixed_precision: str) -> Accelerator:
    """An Accelerator whose trackers write into the run's folder."""
    try:
        return Accelerator(
            cpu=_on_cpus(),
            mixed_precision=mixed_precision,
            log_with=config.trackers or None,
            project_config=ProjectConfiguration(project_dir=str(folder.path), logging_dir=str(folder.path)),
        )
    except ValueError as error:
        raise UserError(f"run.trackers {config.trackers}: {error}") from error


class Tracker:
    """Metrics of one run, step by step."""

    def __init__(self, accelerator: Accelerator, folder: RunFolder, config: RunConfig, first_step: int) -> None:
        self._accelerator = accelerator
        self._folder = folder
        self._last_step = config.steps
        self._first_step = first_step
        self._began = time.monotonic()
        if config.trackers:
            # Events a killed run wrote after its checkpoint would show twice in TensorBoard without the purge.
            accelerator.init_trackers("tensorboard", init_kwargs={"tensorboard": {"purge_step": first_step}})

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one step's metrics everywhere; only the main process has anything to write to."""
        if not self._accelerator.is_main_process:
            return
        self._folder.log({"step": step, **metrics})
        self._accelerator.log({k: v for k, v in metrics.items() if isinstance(v, int | float)}, step=step)

    def show(self, step: int, figures: Sequence[str], seconds: float) -> None:
        """A step's `figures` on one line, with the step's time and the time left."""
        done = step - self._first_step + 1
        left = (time.monotonic() - self._began) / max(done, 1) * (self._last_step - step)
        say("  ".join([f"step {step}/{self._last_step}", *figures, f"{seconds:.1f} s", f"left {_clock(left)}"]))

    def close(self) -> None:
        """Flush the trackers. Not `end_training`, which would destroy the process group vLLM made as well."""
        for tracker in self._accelerator.trackers:
            tracker.finish()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
