"""Preference optimisation without a reward model or sampling: DPO, IPO, cDPO, KTO, SimPO, ORPO.

    reference log-probabilities of every response, once, before the policy is loaded      `reference_logprobs.py`
    for each batch of pairs (kto: of liked and disliked responses):
        log pi of each response                                                            `response_logprobs`
        loss of the pairs, a mean over the whole batch, one AdamW step                     `preference_losses.py`

What to watch is not the loss: the implicit rewards, whether both sides lose likelihood, held-out pairs, and among them
those whose chosen response is the shorter. The win rate asks the judge of `config.reward`, which the loss never saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.algorithms import preference_losses
from r1zero.algorithms.losses import Metrics, StepTotals, add_metrics
from r1zero.config import DPOConfig
from r1zero.data import datasets
from r1zero.data.preferences import Loaded, fingerprint, load_rankings, load_thumbs, refuse_overlap
from r1zero.data.records import Problem
from r1zero.models.policy import MicroBatch, Policy, group_by_tokens
from r1zero.runs.folder import RunFolder, write_atomically
from r1zero.runs.tracking import say
from r1zero.training.answers import Answerer, answering, sample_rows, win_rate
from r1zero.training.dpo_alarms import Watch
from r1zero.training.inputs import (
    Base,
    accelerator_of,
    base_manifest,
    check_questions,
    load_base,
    load_policy,
    load_questions,
)
from r1zero.training.loop import set_threads, train
from r1zero.training.preference_units import Unit, longer_wins, units_of_pairs, units_of_thumbs, with_reference
from r1zero.training.reference_logprobs import row_logprobs
from r1zero.training.stage import EpochStage, Prepared, Stage, before_after
from r1zero.training.updater import num_steps


def train_dpo(config: DPOConfig, *, resume: bool = False) -> Path:
    """A run of DPO or a relative: see `loop.train`."""
    return train(config, _prepare, resume=resume)


def _prepare(config: DPOConfig) -> Prepared:
    base = load_base(config.model.path, config.template)
    kto = config.loss == "kto"
    load, make = (load_thumbs, units_of_thumbs) if kto else (load_rankings, units_of_pairs)
    data: Loaded[Any] = load(config.data, base.template, base.tokenizer)
    held_out: Loaded[Any] = Loaded(items=[])
    if config.held_out.source:
        held_out = load(config.held_out, base.template, base.tokenizer)
    units, held = make(data.items), make(held_out.items)
    refuse_overlap((u.rows[0] for u in units), (u.rows[0] for u in held))
    questions = load_questions(config, base)
    check_questions(questions, base, [u.rows[0] for u in units])
    facts = {
        "units": len(units),
        "fingerprint": fingerprint(row for u in units for row in u.rows),
        "longer_wins": longer_wins(units) if not kto else None,
        "held_out": len(held),
        "held_out_fingerprint": fingerprint(row for u in held for row in u.rows),
        "questions_fingerprint": datasets.fingerprint(questions),
    }
    return Prepared(
        steps=num_steps(len(units), config.batch_size, config.epochs, config.run.steps),
        manifest={**base_manifest(config, base), "data": facts},
        start=partial(_started, config, base, units, held, questions),
        eval_every=config.eval.every,
        notes=[*data.said(config.data.source), *held_out.said(config.held_out.source)],
    )


@contextmanager
def _started(
    config: DPOConfig,
    base: Base,
    units: list[Unit],
    held: list[Unit],
    questions: list[Problem],
    folder: RunFolder,
    checkpoint: Path | None,
) -> Iterator[Stage]:
    accelerator = accelerator_of(config.run, config.model, folder)
    set_threads(accelerator, config.run.threads)
    if config.uses_reference:
        with accelerator.main_process_first():  # the first one computes, the others read what it kept
            units, held = with_reference(config, base.path, accelerator, units, held)
    model = load_policy(config, base, checkpoint)
    with answering(config, base, questions, model, checkpoint or base.path) as answerer:
        set_threads(accelerator, config.run.threads)
        torch.manual_seed(config.run.seed)
        yield DPO(
            config,
            accelerator=accelerator,
            policy=Policy(model, trained=True),
            tokenizer=base.tokenizer,
            units=units,
            held_out=held,
            answerer=answerer,
            folder=folder,
        )


class DPO(EpochStage[DPOConfig, Unit]):
    """The algorithm and its relatives."""

    def __init__(
        self,
        config: DPOConfig,
        *,
        accelerator: Accelerator,
        policy: Policy,
        tokenizer: PreTrainedTokenizerBase,
        units: Sequence[Unit],
        held_out: Sequence[Unit] = (),
        answerer: Answerer | None = None,
        folder: RunFolder | None = None,
    ) -> None:
        super().__init__(
            config, accelerator=accelerator, module=policy, tokenizer=tokenizer, units=units, held_out=held_out
        )
        self.policy = policy
        self.answerer = answerer
        self.folder = folder
        self.watch = Watch(config)
        self.reference_tokens: float | None = None
        """Mean length of the reference's answers to the held-out problems."""

    @property
    def model(self) -> PreTrainedModel:
        return self.policy.model

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step on the next batch."""
        batch = self.batch(step)
        own, silent = self.own(batch)
        metrics = self.updater.update(step, partial(self.losses, own, batch), silent=silent)
        tokens = sum(row.length for u in batch for row in u.rows)
        return metrics | {"time/tokens_per_second": tokens / metrics["time/step"]}

    def losses(
        self, batch: Sequence[Unit], whole: Sequence[Unit] | None = None
    ) -> list[partial[tuple[Tensor, Metrics]]]:
        """The loss of `batch`, a part a micro-batch, which is a process's share of `whole`. A unit is never split."""
        whole = batch if whole is None else whole
        totals = StepTotals(num_tokens=sum(len(u.rows[0].completion_ids) for u in whole), num_sequences=len(whole))
        baseline = self._kto_baseline(whole) if self.config.loss == "kto" else 0.0
        trained = 1 if self.config.loss == "kto" else 2  # a mismatched response is looked at, not trained on
        parts = []
        for group in group_by_tokens([u.rows[:trained] for u in batch], self.updater.budget.tokens):
            chosen = [batch[i] for i in group]
            rows = [u.rows[k] for k in range(trained) for u in chosen]
            everything = sum(row.length for row in rows) * len(rows)
            (micro,) = self.policy.micro_batches(rows, everything, self.accelerator.device)
            parts.append(partial(self._loss, micro, chosen, totals, baseline))
        return parts

    def _loss(
        self, micro: MicroBatch, units: Sequence[Unit], totals: StepTotals, baseline: float
    ) -> tuple[Tensor, Metrics]:
        config, device = self.config, micro.mask.device
        logprobs, _ = self.updater.module(micro)  # (B, T), rows in the micro-batch's own order
        order = torch.tensor(micro.indices, device=device).argsort()
        logprobs, mask = logprobs[order], micro.mask[order]
        normalised = config.length_normalised or not config.uses_reference
        logps = preference_losses.response_logprobs(logprobs, mask, length_normalised=normalised)
        lengths = mask.sum(-1) if normalised else torch.ones_like(logps)
        n, num = len(units), totals.num_sequences
        reference = torch.tensor([u.reference for u in units], device=device)  # (n, 2)
        if config.loss == "kto":
            loss, metrics = preference_losses.kto_loss(
                logps,
                reference[:, 0] / lengths,
                torch.tensor([u.desirable for u in units], device=device),
                baseline,
                beta=config.strength,
                desirable_weight=config.desirable_weight,
                undesirable_weight=config.undesirable_weight,
                num_examples=num,
            )
            return loss, {f"dpo/{name}": value for name, value in metrics.items()}
        ref_chosen, ref_rejected = reference[:, 0] / lengths[:n], reference[:, 1] / lengths[n:]
        loss, metrics = self._pair_loss(logps[:n], logps[n:], ref_chosen, ref_rejected, num)
        margins = preference_losses.preferred(logps[:n], logps[n:], ref_chosen, ref_rejected)
        longer = mask[:n].sum(-1) - mask[n:].sum(-1)
        metrics |= preference_losses.length_figures(margins, longer, num_pairs=num)
        weight = 1.0 if config.loss == "orpo" else config.nll_weight
        if weight:
            nll, nll_metrics = preference_losses.nll_loss(logprobs[:n], mask[:n], totals, aggregation="sequence")
            loss, metrics = loss + weight * nll, metrics | nll_metrics
        return loss, {f"dpo/{name}": value for name, value in metrics.items()}

    def _pair_loss(
        self, chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, num_pairs: int
    ) -> tuple[Tensor, Metrics]:
        """The loss that `config.loss` names, on (n,) log-probabilities."""
        config, beta = self.config, self.config.strength
        if config.loss == "simpo":
            return preference_losses.simpo_loss(
                chosen,
                rejected,
                beta=beta,
                gamma=config.gamma,
                num_pairs=num_pairs,
                label_smoothing=config.label_smoothing,
            )
        if config.loss == "orpo":
            return preference_losses.orpo_loss(chosen, rejected, weight=beta, num_pairs=num_pairs)
        both = (chosen, rejected, ref_chosen, ref_rejected)
        if config.loss == "ipo":
            return preference_losses.ipo_loss(*both, beta=beta, num_pairs=num_pairs)
        return preference_losses.dpo_loss(*both, beta=beta, num_pairs=num_pairs, label_smoothing=config.label_smoothing)

    def _kto_baseline(self, batch: Sequence[Unit]) -> float:
        """z_0 of the whole batch under the policy as it is now."""
        rows = [u.rows[1] for u in batch]
        found = row_logprobs(self.policy, rows, self.config.optimizer.micro_batch_tokens, self.accelerator)
        lengths = torch.tensor([len(r.completion_ids) if self.config.length_normalised else 1 for r in rows])
        reference = torch.tensor([u.reference[1] for u in batch])
        return preference_losses.kto_baseline(found / lengths, reference / lengths)

    @torch.no_grad()
    def evaluate(self, step: int) -> dict[str, float]:
        """`held_out/…`: loss and metrics on held-out pairs; `eval/…`: answers, and their win rate."""
        figures: dict[str, float] = {}
        if self.held_out:
            with self.accelerator.autocast():
                found = [loss() for loss in self.losses(self.held_out)]
            figures["held_out/loss"] = sum(float(loss) for loss, _ in found)
            metrics = add_metrics([metrics for _, metrics in found])
            figures |= {name.replace("dpo/", "held_out/"): float(value) for name, value in metrics.items()}
            for side in ("longer", "shorter"):
                if figures.get(f"held_out/{side}"):
                    right = figures[f"held_out/{side}_right"]
                    figures[f"held_out/accuracy_chosen_{side}"] = right / figures[f"held_out/{side}"]
        if self.answerer is not None:
            figures |= self._answers(step, self.answerer)
        if figures:
            say(f"step {step}: " + ", ".join(f"{k} {v:.4g}" for k, v in figures.items()), style="bold")
        return figures

    def _answers(self, step: int, answerer: Answerer) -> dict[str, float]:
        answers = answerer.answer(self.model)
        figures = answerer.figures(answers)
        if step == 0:
            self.reference_tokens = figures["eval/tokens"]
        if self.folder is None:
            return figures
        # Kept on disk: after a resume the reference is not there to be asked again.
        kept = self.folder.path / "reference_answers.json"
        if self.accelerator.is_main_process:
            if step == 0:
                write_atomically(kept, json.dumps(answers.values()))
            if self.config.run.save_rollouts:
                self.folder.save_eval(step, sample_rows(answerer.problems, answers))
        self.accelerator.wait_for_everyone()
        theirs = json.loads(kept.read_text(encoding="utf-8"))
        return figures | win_rate(answers.values(), theirs)

    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        shown = [f"loss {metrics['loss']:.4f}"]
        for name in ("margin", "accuracy", "chosen_logprob", "rejected_logprob"):
            if f"dpo/{name}" in metrics:
                shown.append(f"{name} {metrics[f'dpo/{name}']:.3f}")
        return [*shown, f"grad {metrics['optimizer/grad_norm']:.2f}"]

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        return super().alarms(step, metrics) | self.watch.check(metrics, len(self.held_out), self.reference_tokens)

    def merit(self, metrics: Mapping[str, float]) -> float | None:
        return -metrics["held_out/loss"] if "held_out/loss" in metrics else metrics.get("eval/win_rate")

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        rows = []
        names = {
            "held_out/loss": "held-out loss",
            "held_out/accuracy": "held-out accuracy",
            "held_out/longer": "share whose chosen is longer",
            "held_out/accuracy_chosen_longer": "accuracy where the chosen is longer",
            "held_out/accuracy_chosen_shorter": "accuracy where the chosen is shorter",
            "held_out/chosen_logprob": "held-out log pi, chosen",
            "held_out/rejected_logprob": "held-out log pi, rejected",
            "eval/reward": "answers: mean reward",
            "eval/pass@1": "answers: pass@1",
            "eval/tokens": "answers: tokens",
        }
        for name, shown in names.items():
            if name in before and name in after:
                rows.append((shown, f"{before[name]:.4g}", f"{after[name]:.4g}"))
        if "eval/win_rate" in after:
            low, high = after["eval/win_rate_low"], after["eval/win_rate_high"]
            rows.append(
                ("win rate against the reference", "", f"{after['eval/win_rate']:.1%} ({low:.1%} to {high:.1%})")
            )
            rows.append(("  of which ties, half a win each", "", f"{after['eval/ties']:.1%}"))
        return before_after(self.config.loss, rows) if rows else ""

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.updater.state(), {**self.watch.state(), "reference_tokens": self.reference_tokens}

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        self.updater.load_state(tensors)
        self.watch.load_state(counters)
        self.reference_tokens = counters["reference_tokens"]
