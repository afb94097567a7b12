"""The one loop: every stage's run from its settings to its last checkpoint.

    find the run's folder and the checkpoint to go on from            `runs/resume.py`
    check everything that can be wrong with the input                 the stage's `prepare`
    for each step:
        the stage's step; warnings; evaluation; metrics; samples kept; checkpoint
    table

Set-up, resume, best and last checkpoints, warnings, stopping and signals are here and nowhere else. Under torchrun or
`accelerate launch` every process runs this; the first one holds the folder, writes, and decides when to save and stop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch
import transformers
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

from r1zero.config import DPOConfig, GRPOConfig, PPOConfig, RewardModelConfig, SFTConfig
from r1zero.errors import UserError
from r1zero.rollout.weights import named_weights
from r1zero.runs.checkpoint import load_trainer_state, prune, save_checkpoint, step_of
from r1zero.runs.folder import RunFolder
from r1zero.runs.library_log import library_log
from r1zero.runs.resume import complete, find_run
from r1zero.runs.signals import stop_requests, stopped
from r1zero.runs.threads import available_cores, trainer_threads
from r1zero.runs.tracking import Tracker, processes, say
from r1zero.training.stage import Prepared, Stage

C = TypeVar("C", GRPOConfig, PPOConfig, SFTConfig, DPOConfig, RewardModelConfig)

REPEAT_WARNING_STEPS = 10
"""The same warning is said again after so many steps."""


def train(config: C, prepare: Callable[[C], Prepared], *, resume: bool) -> Path:
    """Run `config` to its last step; returns the last checkpoint. `resume` goes on from the latest one.

    Raises UserError for every mistake that is the user's to mend, before anything is written. Ctrl-C and SIGTERM end
    the run after the step under way, with a checkpoint.
    """
    folder, checkpoint = find_run(config, resume=resume)
    prepared = prepare(config)
    if checkpoint is not None and complete(folder, checkpoint, prepared.steps):
        return checkpoint
    transformers.utils.logging.disable_progress_bar()
    everyone = processes()
    everyone.wait_for_everyone()  # all have looked at the folder; from here on it changes
    if everyone.is_main_process:
        folder.open()
    try:
        for note in prepared.notes:
            say(note, style="yellow")
        log = library_log(folder.path if everyone.is_main_process else None)
        with log, prepared.start(folder, checkpoint) as stage:
            whole = dataclasses.replace(config, run=dataclasses.replace(config.run, steps=prepared.steps))
            return Loop(stage, whole, prepared, folder, checkpoint).go()
    finally:
        folder.close()


class Loop:
    """The steps that are left of a stage's run."""

    def __init__(
        self,
        stage: Stage,
        config: GRPOConfig | PPOConfig | SFTConfig | DPOConfig | RewardModelConfig,
        prepared: Prepared,
        folder: RunFolder,
        checkpoint: Path | None,
    ) -> None:
        self.stage = stage
        self.run = config.run
        self.folder = folder
        self.eval_every = prepared.eval_every
        self.about = f", engine {prepared.manifest['engine']}" if "engine" in prepared.manifest else ""
        self.start = step_of(checkpoint) if checkpoint else 0
        self.last = checkpoint
        """The last checkpoint of this run."""
        self.best: tuple[int, float] | None = None
        """Step and merit of the best evaluation."""
        self.warned: dict[str, int] = {}
        """The step at which each warning was last said."""
        self.max_skipped = config.optimizer.max_skipped
        self.skipped = 0
        """Steps in a row that were skipped."""
        self.main = stage.accelerator.is_main_process
        if checkpoint is not None:
            tensors, counters = load_trainer_state(checkpoint)
            stage.load_state(tensors, counters)
            self.best = tuple(counters["best"]) if counters.get("best") else None
        if self.main:
            # Before the first checkpoint too: a run killed there begins anew, and its lines go.
            folder.forget_after(self.start or -1)
            folder.write_config(config)
            facts = {"seed": config.run.seed, "processes": stage.accelerator.num_processes}
            folder.write_manifest({"stage": config.stage, **facts, **prepared.manifest})
            folder.checkpoints.mkdir(exist_ok=True)
        self.tracker = Tracker(stage.accelerator, folder, config.run, first_step=self.start + 1)

    def go(self) -> Path:
        """Every step that is left, then the table of what changed; returns the last checkpoint."""
        run, stage = self.run, self.stage
        say(f"run {self.folder.path}: steps {self.start + 1} to {run.steps}{self.about}")
        if self.start == 0:
            first = stage.evaluate(0)
            if first:
                self.tracker.log(0, first)
        with stop_requests() as stop:
            for step in range(self.start + 1, run.steps + 1):
                metrics = stage.step(step)
                save = step == run.steps or step % run.checkpoint_every == 0
                if step == run.steps or (self.eval_every and step % self.eval_every == 0):
                    metrics |= stage.evaluate(step)
                    save = self._is_best(step, metrics) or save
                self._warn(step, stage.alarms(step, metrics))
                self.skipped = self.skipped + 1 if metrics.get("optimizer/skipped") == 1 else 0
                # What is not finite may be the weights: no checkpoint of them takes the place of a good one.
                save = (save or stop.requested) and (not self.skipped or step == run.steps)
                # The first process's word: another's engine may have sampled otherwise, or its signal come later.
                save, stopping = broadcast_object_list([save, stop.number])
                self.tracker.log(step, metrics)
                self.tracker.show(step, stage.figures(metrics), metrics["time/step"])
                self._keep_samples(step)
                if save:
                    self.last = self._save(step)
                self._refuse_to_skip_on(step)
                if stopping and step < run.steps:
                    say(f"stopped after step {step}: {self.last} can be used as it is; go on with --resume")
                    raise stopped(stopping)
        self.tracker.close()
        assert self.last is not None
        if self.main:
            self._summary(self.last)
        return self.last

    def _refuse_to_skip_on(self, step: int) -> None:
        """Raises UserError where the last `optimizer.max_skipped` steps were all skipped."""
        if self.max_skipped and self.skipped >= self.max_skipped:
            raise UserError(
                f"loss or gradient was not finite in steps {step - self.skipped + 1} to {step}: the last checkpoint "
                f"from before is {self.last or 'none'}; see metrics.jsonl for what grew, and begin anew with a lower "
                "optimizer.lr or max_grad_norm (optimizer.max_skipped 0: never stop for it)"
            )

    def _is_best(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether the evaluation at `step` is the best so far; it is then remembered."""
        merit = self.stage.merit(metrics)
        if merit is None or (self.best is not None and merit <= self.best[1]):
            return False
        self.best = (step, merit)
        return True

    def _warn(self, step: int, alarms: Mapping[str, str]) -> None:
        for name, message in alarms.items():
            if step - self.warned.get(name, -REPEAT_WARNING_STEPS) >= REPEAT_WARNING_STEPS:
                self.warned[name] = step
                say(f"warning: {name}: {message}", style="bold yellow")

    def _keep_samples(self, step: int) -> None:
        own = self.stage.samples(step) if self.run.save_rollouts else None
        if own is not None:
            rows = gather_object(list(own))
            if self.main:
                self.folder.save_rollouts(step, rows)

    def _save(self, step: int) -> Path:
        stage = self.stage
        # Through named_weights, so that LoRA adapters are saved merged: the folder is a plain model either way.
        if self.main:
            tensors, counters = stage.state()
            save_checkpoint(
                self.folder.checkpoints,
                step,
                stage.model,
                stage.tokenizer,
                weights=dict(named_weights(stage.model)),
                tensors=tensors,
                state={**counters, "best": self.best},
            )
            prune(self.folder.checkpoints, self.run.keep_checkpoints, self.best[0] if self.best else None)
        stage.accelerator.wait_for_everyone()
        return self.folder.checkpoints / f"step-{step}"

    def _summary(self, checkpoint: Path) -> None:
        # From the file, not from memory: a resumed run measured its beginning in an earlier process.
        rows = self.folder.metrics()
        before = rows[0] if rows and rows[0]["step"] == 0 else {}
        table = self.stage.table(before, rows[-1])
        if table:
            print(table)
        print(f"checkpoint: {checkpoint}")


def set_threads(accelerator: Accelerator, threads: int) -> None:
    """Threads of torch on a CPU (0: every core), set after an engine may have set its own."""
    if accelerator.device.type == "cpu":
        # The processes of one run are one run.
        count, note = trainer_threads(threads) if accelerator.is_main_process else (threads or available_cores(), "")
        torch.set_num_threads(count)
        if note:
            say(note, style="yellow")
