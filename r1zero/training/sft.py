"""Supervised fine-tuning: the negative log-likelihood of what the assistant wrote, a mean over all tokens of a step.

    for each batch of demonstrations:
        loss = -sum over learnt tokens of log pi(token) / number of learnt tokens in the whole batch
        one AdamW step

Only the assistant's tokens are learnt, in every turn of a chat (`chat.py`). Sequences go through the model packed where
its attention allows it, and see nothing of one another (`packing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

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
from r1zero.training.answers import Answerer, answering, sample_rows
from r1zero.training.inputs import (
    accelerator_of,
    base_manifest,
    check_questions,
    load_base,
    load_policy,
    load_questions,
)
from r1zero.training.loop import set_threads, train
from r1zero.training.stage import EpochStage, Prepared, Stage, before_after
from r1zero.training.updater import num_steps


def train_sft(config: SFTConfig, *, resume: bool = False) -> Path:
    """A run of SFT: see `loop.train`."""
    return train(config, _prepare, resume=resume)


def _prepare(config: SFTConfig) -> Prepared:
    base = load_base(config.model.path, config.template)
    data = load_demonstrations(config.data, base.template, base.tokenizer)
    none: Loaded[Example] = Loaded(items=[])
    held_out = load_demonstrations(config.held_out, base.template, base.tokenizer) if config.held_out.source else none
    refuse_overlap((e.row for e in data.items), (e.row for e in held_out.items))
    questions = load_questions(config, base)
    check_questions(questions, base, [e.row for e in data.items])

    @contextmanager
    def start(folder: RunFolder, checkpoint: Path | None) -> Iterator[Stage]:
        accelerator = accelerator_of(config.run, config.model, folder)
        model = load_policy(config, base, checkpoint)
        with answering(config, base, questions, model, checkpoint or base.path) as answerer:
            set_threads(accelerator, config.run.threads)
            torch.manual_seed(config.run.seed)
            yield SFT(
                config,
                accelerator=accelerator,
                policy=Policy(model, trained=True),
                tokenizer=base.tokenizer,
                examples=data.items,
                held_out=held_out.items,
                answerer=answerer,
                folder=folder,
            )

    facts = {
        "rows": len(data.items),
        "fingerprint": fingerprint(e.row for e in data.items),
        "held_out": len(held_out.items),
        "held_out_fingerprint": fingerprint(e.row for e in held_out.items),
        "questions_fingerprint": datasets.fingerprint(questions),
    }
    return Prepared(
        steps=num_steps(len(data.items), config.batch_size, config.epochs, config.run.steps),
        manifest={**base_manifest(config, base), "data": facts},
        start=start,
        eval_every=config.eval.every,
        notes=[*data.said(config.data.source), *held_out.said(config.held_out.source)],
    )


class SFT(EpochStage[SFTConfig, Example]):
    """The algorithm."""

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
        super().__init__(
            config, accelerator=accelerator, module=policy, tokenizer=tokenizer, units=examples, held_out=held_out
        )
        self.policy = policy
        self.answerer = answerer
        self.folder = folder

    @property
    def model(self) -> PreTrainedModel:
        return self.policy.model

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step on the next batch."""
        batch = self.batch(step)
        totals = totals_of(batch)
        own, silent = self.own(batch)
        metrics = self.updater.update(step, partial(self.losses, own, totals), silent=silent)
        metrics["sft/tokens"] = float(totals.num_tokens)
        metrics["time/tokens_per_second"] = sum(e.row.length for e in batch) / metrics["time/step"]
        return metrics

    def losses(self, batch: Sequence[Example], totals: StepTotals) -> list[partial[tuple[Tensor, Metrics]]]:
        """The loss of `batch`, a part a micro-batch; `totals` are those of all processes."""
        rows = [e.row for e in batch]
        micros = self.policy.micro_batches(rows, self.updater.budget.tokens, self.accelerator.device)
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

    def merit(self, metrics: Mapping[str, float]) -> float | None:
        return -metrics["held_out/nll"] if "held_out/nll" in metrics else metrics.get("eval/pass@1")

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        rows = []
        if "held_out/nll" in before:
            rows.append(
                ("held-out loss, nats a token", f"{before['held_out/nll']:.4f}", f"{after['held_out/nll']:.4f}")
            )
        for term in self.config.reward.terms:
            name = f"eval/{term.key}/correct"
            if name in before:
                rows.append((f"answers: {term.key} correct", f"{before[name]:.1%}", f"{after[name]:.1%}"))
        for name, shown in (("eval/reward", "answers: mean reward"), ("eval/tokens", "answers: tokens")):
            if name in before:
                rows.append((shown, f"{before[name]:.3g}", f"{after[name]:.3g}"))
        return before_after("sft", rows) if rows else ""


def totals_of(batch: Sequence[Example]) -> StepTotals:
    """The batch's denominators: learnt tokens and sequences."""
    return StepTotals(num_tokens=sum(sum(e.learnt) for e in batch), num_sequences=len(batch))
