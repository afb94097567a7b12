"""A run from its folder to its last checkpoint: what stands around every stage's algorithm.

Opening and resuming, metrics, evaluation, checkpoints, Ctrl-C. A stage over a fixed set of rows (SFT, DPO, the reward
model) is a `Stage` and goes through `Session`; GRPO's own loop (`loop.py`) takes the pieces.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
import transformers
from accelerate import Accelerator
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.config import DPOConfig, RewardModelConfig, RunConfig, SFTConfig, StageConfig
from r1zero.errors import UserError
from r1zero.runs.checkpoint import latest_checkpoint, load_trainer_state, prune, save_checkpoint
from r1zero.runs.folder import RunFolder, plain
from r1zero.runs.tracking import Tracker, say

REPEAT_WARNING_STEPS = 10
"""The same warning is said again after so many steps."""


class Stage(Protocol):
    """An algorithm over a fixed set of rows, as `Session` drives it."""

    accelerator: Accelerator
    tokenizer: PreTrainedTokenizerBase

    @property
    def model(self) -> PreTrainedModel:
        """What a checkpoint holds."""
        ...

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step, counted from 1; its metrics, `time/step` among them."""
        ...

    def evaluate(self, step: int) -> dict[str, float]:
        """Figures on held-out data (`held_out/…`, `eval/…`); empty where there is none."""
        ...

    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        """What of a step's metrics the terminal shows."""
        ...

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        """Name -> one line on what is going wrong."""
        ...

    def merit(self, metrics: Mapping[str, float]) -> float | None:
        """How good an evaluation is, higher is better; None where it does not say."""
        ...

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        """The run's result, before and after, for a reader."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """`(tensors, counters)` that with the weights make the next step what it would have been."""
        ...

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        ...


class Session:
    """The steps that are left of a stage's run."""

    def __init__(
        self,
        stage: Stage,
        config: SFTConfig | DPOConfig | RewardModelConfig,
        folder: RunFolder,
        checkpoint: Path | None,
        *,
        manifest: Mapping[str, Any],
        eval_every: int,
    ) -> None:
        self.stage = stage
        self.run = config.run
        self.folder = folder
        self.eval_every = eval_every
        self.start = step_of(checkpoint) if checkpoint else 0
        self.best: tuple[int, float] | None = None
        if checkpoint is not None:
            tensors, counters = load_trainer_state(checkpoint)
            stage.load_state(tensors, counters)
            self.best = tuple(counters["best"]) if counters.get("best") else None
        # Before the first checkpoint too: a run killed there begins anew, and its lines go.
        folder.forget_after(self.start or -1)
        folder.write_config(config)
        folder.write_manifest({"stage": config.stage, "seed": config.run.seed, **manifest})
        folder.checkpoints.mkdir(exist_ok=True)
        self.tracker = Tracker(stage.accelerator, folder, config.run, first_step=self.start + 1)
        self.warned: dict[str, int] = {}

    def go(self) -> Path:
        """Every step that is left, then the table of what changed; returns the last checkpoint."""
        run, stage = self.run, self.stage
        say(f"run {self.folder.path}: steps {self.start + 1} to {run.steps}")
        if self.start == 0:
            first = stage.evaluate(0)
            if first:
                self.tracker.log(0, first)
        checkpoint: Path | None = None
        with stop_requests() as stop:
            for step in range(self.start + 1, run.steps + 1):
                metrics = stage.step(step)
                save = step == run.steps or step % run.checkpoint_every == 0 or stop.requested
                if step == run.steps or (self.eval_every and step % self.eval_every == 0):
                    metrics |= stage.evaluate(step)
                    merit = stage.merit(metrics)
                    if merit is not None and (self.best is None or merit > self.best[1]):
                        self.best = (step, merit)
                        save = True
                self._warn(step, stage.alarms(step, metrics))
                self.tracker.log(step, metrics)
                self.tracker.show(step, stage.figures(metrics), metrics["time/step"])
                if save:
                    checkpoint = self._save(step)
                if stop.requested and step < run.steps:
                    say(f"stopped after step {step}: {checkpoint} can be used as it is; go on with --resume")
                    raise KeyboardInterrupt
        self.tracker.close()
        assert checkpoint is not None
        rows = self.folder.metrics()
        if rows and rows[0]["step"] == 0:
            print(stage.table(rows[0], rows[-1]))
        print(f"checkpoint: {checkpoint}")
        return checkpoint

    def _save(self, step: int) -> Path:
        stage = self.stage
        tensors, counters = stage.state()
        saved = save_checkpoint(
            self.folder.checkpoints,
            step,
            stage.model,
            stage.tokenizer,
            tensors=tensors,
            state={**counters, "best": self.best},
        )
        prune(self.folder.checkpoints, self.run.keep_checkpoints, self.best[0] if self.best else None)
        return saved

    def _warn(self, step: int, alarms: Mapping[str, str]) -> None:
        for name, message in alarms.items():
            if step - self.warned.get(name, -REPEAT_WARNING_STEPS) >= REPEAT_WARNING_STEPS:
                self.warned[name] = step
                say(f"warning: {name}: {message}", style="bold yellow")


# What a resumed run may have otherwise than it began with: where, how long and how fast it runs, not what it computes.
_MAY_CHANGE = re.compile(
    r"run\.(?!seed$)|health|engine(?!\.(?:name|dtype)$)|eval|optimizer\.micro_batch_tokens$"
    r"|reward\.(?:workers|deadline_seconds|memory_gib)$"
)


def find_run(config: StageConfig, *, resume: bool) -> tuple[RunFolder, Path | None]:
    """The run's folder, not yet opened, and the checkpoint to go on from.

    Raises UserError for a run that is there and not to be resumed, or the other way round, and for one that was begun
    with other settings: it would not be the same run.
    """
    folder = RunFolder(config.run.root, config.run.name)
    if folder.exists and not resume:
        raise UserError(
            f"{folder.path} holds a run already: add --resume to go on with it, give --run.name another name, "
            f"or delete the folder"
        )
    if resume and not folder.exists:
        raise UserError(f"nothing to resume: {folder.path} holds no run")
    if folder.exists:
        begun, now = _flat(folder.read_config()), _flat(plain(config))
        # A setting that only one side has came or went with a version of the program.
        changed = [key for key in now if key in begun and begun[key] != now[key] and not _MAY_CHANGE.match(key)]
        if changed:
            raise UserError(
                f"{folder.path} was begun with other settings: "
                + ", ".join(f"{key} {begun[key]!r}, now {now[key]!r}" for key in changed[:5])
                + ("" if len(changed) <= 5 else f" and {len(changed) - 5} more")
                + ": resume it with the settings it began with, or give --run.name another name"
            )
    return folder, latest_checkpoint(folder.checkpoints)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value."""
    pairs: dict[str, Any] = {}
    for key, value in settings.items():
        pairs |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return pairs


def complete(folder: RunFolder, checkpoint: Path | None, steps: int) -> bool:
    """True, said aloud, where the run has its last step already."""
    if checkpoint is None or step_of(checkpoint) < steps:
        return False
    say(f"{folder.path} is complete: its last checkpoint is {checkpoint}; --run.steps N goes on to step N")
    return True


def start_torch(accelerator: Accelerator, run: RunConfig) -> None:
    """Threads and seed of a run, set after an engine may have set its own."""
    transformers.utils.logging.disable_progress_bar()
    if accelerator.device.type == "cpu":
        torch.set_num_threads(run.threads or os.cpu_count() or 1)
    torch.manual_seed(run.seed)


def before_after(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """A table of (what, before, after)."""
    width = max(len(title), *(len(name) for name, _, _ in rows))
    lines = [f"{title:<{width}}  {'before':>24}  {'after':>24}"]
    return "\n".join(lines + [f"{name:<{width}}  {before:>24}  {after:>24}" for name, before, after in rows])


def step_of(checkpoint: Path) -> int:
    """N of a folder called `step-N`."""
    return int(checkpoint.name.removeprefix("step-"))


class StopRequest:
    requested = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Ctrl-C or SIGTERM asks for a stop after the step under way; a second one stops at once."""
    stop = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True
        say("stopping after this step, with a checkpoint; once more to stop at once", style="bold yellow")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
