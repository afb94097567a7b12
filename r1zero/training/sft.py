"""Supervised fine-tuning: the negative log-likelihood of what the assistant wrote, a mean over all tokens of a step.

    for each batch of demonstrations:
        loss = -sum over learnt tokens of log pi(token) / number of learnt tokens in the whole batch
        one AdamW step

Only the assistant's tokens are learnt, in every turn of a chat (`chat.py`). Sequences go through the model packed where
its attention allows it, and see nothing of one another (`packing.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.algorithms.losses import Metrics, StepTotals, add_metrics
from r1zero.algorithms.preference_losses import nll_loss
from r1zero.config import SFTConfig
from r1zero.data import datasets
from r1zero.data.messages import Example
from r1zero.data.preferences import Loaded, fingerprint, load_demonstrations, refuse_overlap
from r1zero.models.policy import MicroBatch, Policy
from r1zero.runs.folder import RunFolder
from r1zero.runs.tracking import say
from r1zero.training.answers import Answerer, sample_rows
from r1zero.training.offline import (
    accelerator_of,
    answering,
    check_questions,
    load_base,
    load_policy,
    load_questions,
)
from r1zero.training.session import Session, before_after, complete, find_run, start_torch
from r1zero.training.updater import Updater, batch_of, num_steps


def train_sft(config: SFTConfig, *, resume: bool = False) -> Path:
    """Run `config` to its last step; returns the last checkpoint. `resume` goes on from the latest one.

    Raises UserError for every mistake that is the user's to mend, before anything is written.
    """
    folder, checkpoint = find_run(config, resume=resume)
    base = load_base(config)
    data = load_demonstrations(config.data, base.template, base.tokenizer)
    none: Loaded[Example] = Loaded(items=[])
    held_out = load_demonstrations(config.held_out, base.template, base.tokenizer) if config.held_out.source else none
    refuse_overlap((e.row for e in data.items), (e.row for e in held_out.items))
    questions = load_questions(config, base)
    check_questions(questions, base, [e.row for e in data.items])
    steps = num_steps(len(data.items), config.batch_size, config.epochs, config.run.steps)
    if checkpoint is not None and complete(folder, checkpoint, steps):
        return checkpoint
    folder.open()
    try:
        for line in [*data.said(config.data.source), *held_out.said(config.held_out.source)]:
            say(line, style="yellow")
        accelerator = accelerator_of(config, folder)
        model = load_policy(config, base, checkpoint)
        with answering(config, base, questions, model, checkpoint or base.path) as answerer:
            start_torch(accelerator, config.run)
            stage = SFT(
                config,
                accelerator=accelerator,
                policy=Policy(model, trained=True),
                tokenizer=base.tokenizer,
                examples=data.items,
                held_out=held_out.items,
                answerer=answerer,
                folder=folder,
            )
            manifest = {
                "template": {"name": base.template.name, "fingerprint": base.template.fingerprint},
                "model": config.model.path,
                "data": {
                    "rows": len(data.items),
                    "fingerprint": fingerprint(e.row for e in data.items),
                    "held_out": len(held_out.items),
                    "held_out_fingerprint": fingerprint(e.row for e in held_out.items),
                    "questions_fingerprint": datasets.fingerprint(questions),
                },
            }
            whole = dataclasses.replace(config, run=dataclasses.replace(config.run, steps=steps))
            return Session(stage, whole, folder, checkpoint, manifest=manifest, eval_every=config.eval.every).go()
    finally:
        folder.close()


class SFT:
    """The algorithm: a `session.Stage`."""

    def __init__(
        self,
        config: SFTConfig,
        *,
        accelerator: Accelerator,
        policy: Policy,
        tokenizer: PreTrainedTokenizerBase,
        examples: Sequence[Example],
        held_out: Sequence[Example] = (),
        answerer: Answerer | None = None,
        folder: RunFolder | None = None,
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.policy = policy
        self.tokenizer = tokenizer
        self.examples = examples
        self.held_out = held_out
        self.answerer = answerer
        self.folder = folder
        steps = num_steps(len(examples), config.batch_size, config.epochs, config.run.steps)
        self.updater = Updater(accelerator, policy, config.optimizer, steps)

    @property
    def model(self) -> PreTrainedModel:
        return self.policy.model

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step on the next batch."""
        config = self.config
        indices = batch_of(
            step, len(self.examples), config.batch_size, config.epochs, config.run.steps, config.run.seed
        )
        batch = [self.examples[i] for i in indices]
        totals = totals_of(batch)
        metrics = self.updater.update(step, self.losses(batch, totals))
        metrics["sft/tokens"] = float(totals.num_tokens)
        metrics["time/tokens_per_second"] = sum(e.row.length for e in batch) / metrics["time/step"]
        return metrics

    def losses(self, batch: Sequence[Example], totals: StepTotals) -> list[partial[tuple[Tensor, Metrics]]]:
        """The batch's loss, a part a micro-batch."""
        rows = [e.row for e in batch]
        micros = self.policy.micro_batches(rows, self.config.optimizer.micro_batch_tokens, self.accelerator.device)
        return [partial(self._loss, micro, [batch[i] for i in micro.indices], totals) for micro in micros]

    def _loss(self, micro: MicroBatch, examples: Sequence[Example], totals: StepTotals) -> tuple[Tensor, Metrics]:
        logprobs, _ = self.updater.module(micro)  # (B, T)
        learnt = torch.zeros(micro.mask.shape, dtype=torch.bool)
        for i, example in enumerate(examples):
            learnt[i, : len(example.learnt)] = torch.tensor(example.learnt)
        loss, metrics = nll_loss(logprobs, learnt.to(micro.mask.device), totals)
        return loss, {f"sft/{name}": value for name, value in metrics.items()}

    @torch.no_grad()
    def evaluate(self, step: int) -> dict[str, float]:
        """`held_out/nll` in nats a learnt token, and what the answers to the held-out problems earn."""
        figures: dict[str, float] = {}
        if self.held_out:
            totals = totals_of(self.held_out)
            with self.accelerator.autocast():
                parts = [loss()[1] for loss in self.losses(self.held_out, totals)]
            figures["held_out/nll"] = float(add_metrics(parts)["sft/nll"])
        if self.answerer is not None:
            answers = self.answerer.answer(self.model)
            figures |= self.answerer.figures(answers)
            if self.folder is not None and self.config.run.save_rollouts and self.accelerator.is_main_process:
                self.folder.save_eval(step, sample_rows(self.answerer.problems, answers))
        if figures:
            say(f"step {step}: " + ", ".join(f"{k} {v:.4g}" for k, v in figures.items()), style="bold")
        return figures

    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        return [
            f"nll {metrics['sft/nll']:.4f}",
            f"grad {metrics['optimizer/grad_norm']:.2f}",
            f"{metrics['time/tokens_per_second']:.0f} tokens/s",
        ]

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        if metrics["optimizer/skipped"]:
            return {"gradient": "the gradient was not finite: the step was skipped"}
        return {}

    def merit(self, metrics: Mapping[str, float]) -> float | None:
        return -metrics["held_out/nll"] if "held_out/nll" in metrics else metrics.get("eval/pass@1")

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        rows = []
        if "held_out/nll" in after:
            rows.append(
                ("held-out loss, nats a token", f"{before['held_out/nll']:.4f}", f"{after['held_out/nll']:.4f}")
            )
        for term in self.config.reward.terms:
            name = f"eval/{term.key}/correct"
            if name in after:
                rows.append((f"answers: {term.key} correct", f"{before[name]:.1%}", f"{after[name]:.1%}"))
        for name, shown in (("eval/reward", "answers: mean reward"), ("eval/tokens", "answers: tokens")):
            if name in after:
                rows.append((shown, f"{before[name]:.3g}", f"{after[name]:.3g}"))
        return before_after("sft", rows)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.updater.state(), {}

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        self.updater.load_state(tensors)


def totals_of(batch: Sequence[Example]) -> StepTotals:
    """The batch's denominators: learnt tokens and sequences."""
    return StepTotals(num_tokens=sum(sum(e.learnt) for e in batch), num_sequences=len(batch))
