"""Training a Bradley-Terry reward model on pairs and rankings, one epoch by default.

    for each batch of prompts, each with its 2 or more responses, best first:
        score every response once
        loss = -log sigma(better - worse), a mean over a prompt's pairs, then over prompts, one AdamW step

Held-out pairs say how often it is right, whether its confidence is (calibration), and how much of that "the longer
answer wins" would have got as well.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.algorithms.losses import Metrics
from r1zero.algorithms.preference_losses import bradley_terry_loss
from r1zero.config import RewardModelConfig
from r1zero.data.preferences import Loaded, Ranking, fingerprint, load_rankings, refuse_overlap
from r1zero.eval.statistics import clustered_mean
from r1zero.models.policy import Row, add_lora, group_by_tokens, micro_batches
from r1zero.models.reward_model import RewardModel, load_reward_model, scorable_pad, score_rows, whole_rows
from r1zero.runs.tracking import say
from r1zero.training.offline import accelerator_of, load_base
from r1zero.training.session import Session, before_after, complete, find_run, start_torch
from r1zero.training.updater import Updater, batch_of, num_steps

BINS = 10
"""Bins of confidence from 1/2 to 1 in the calibration error."""


def train_reward_model(config: RewardModelConfig, *, resume: bool = False) -> Path:
    """Run `config` to its last step; returns the last checkpoint. `resume` goes on from the latest one.

    Raises UserError for every mistake that is the user's to mend, before anything is written.
    """
    folder, checkpoint = find_run(config, resume=resume)
    base = load_base(config)
    data = load_rankings(config.data, base.template, base.tokenizer)
    held_out: Loaded[Ranking] = Loaded(items=[])
    if config.held_out.source:
        held_out = load_rankings(config.held_out, base.template, base.tokenizer)
    train_rows = [row for r in data.items for row in r.rows]
    held_rows = [row for r in held_out.items for row in r.rows]
    refuse_overlap(train_rows, held_rows)
    pad = scorable_pad(base.tokenizer, {row.completion_ids[-1] for row in [*train_rows, *held_rows]})
    steps = num_steps(len(data.items), config.batch_size, config.epochs, config.run.steps)
    if checkpoint is not None and complete(folder, checkpoint, steps):
        return checkpoint
    folder.open()
    try:
        for line in [*data.said(config.data.source), *held_out.said(config.held_out.source)]:
            say(line, style="yellow")
        accelerator = accelerator_of(config, folder)
        start_torch(accelerator, config.run)
        lora = config.model.lora_rank > 0
        source = base.path if lora else checkpoint or base.path
        model = load_reward_model(source, config.model, pad, config.run.seed)
        if lora:
            add_lora(model, config.model)
            model.score.requires_grad_(True)
        stage = RewardModelStage(
            config,
            accelerator=accelerator,
            module=RewardModel(model),
            tokenizer=base.tokenizer,
            rankings=data.items,
            held_out=held_out.items,
        )
        manifest = {
            "template": {"name": base.template.name, "fingerprint": base.template.fingerprint},
            "model": config.model.path,
            "data": {
                "prompts": len(data.items),
                "fingerprint": fingerprint(train_rows),
                "held_out": len(held_out.items),
                "held_out_fingerprint": fingerprint(held_rows),
            },
        }
        whole = dataclasses.replace(config, run=dataclasses.replace(config.run, steps=steps))
        return Session(stage, whole, folder, checkpoint, manifest=manifest, eval_every=config.eval_every).go()
    finally:
        folder.close()


class RewardModelStage:
    """The algorithm: a `session.Stage`."""

    def __init__(
        self,
        config: RewardModelConfig,
        *,
        accelerator: Accelerator,
        module: RewardModel,
        tokenizer: PreTrainedTokenizerBase,
        rankings: Sequence[Ranking],
        held_out: Sequence[Ranking] = (),
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.module = module
        self.tokenizer = tokenizer
        self.rankings = rankings
        self.held_out = held_out
        steps = num_steps(len(rankings), config.batch_size, config.epochs, config.run.steps)
        self.updater = Updater(accelerator, module, config.optimizer, steps)

    @property
    def model(self) -> PreTrainedModel:
        return self.module.model

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step on the next batch of prompts."""
        config = self.config
        indices = batch_of(
            step, len(self.rankings), config.batch_size, config.epochs, config.run.steps, config.run.seed
        )
        return self.updater.update(step, self.losses([self.rankings[i] for i in indices]))

    def losses(self, batch: Sequence[Ranking]) -> list[partial[tuple[Tensor, Metrics]]]:
        """The batch's loss, a part a micro-batch. A prompt's responses are never split over two."""
        groups = group_by_tokens([r.rows for r in batch], self.config.optimizer.micro_batch_tokens)
        return [partial(self._loss, [batch[i] for i in group], len(batch)) for group in groups]

    def _loss(self, rankings: Sequence[Ranking], num_prompts: int) -> tuple[Tensor, Metrics]:
        device = self.accelerator.device
        rows = whole_rows([row for r in rankings for row in r.rows])
        (batch,) = micro_batches(rows, sys.maxsize, device, packed=self.module.packed)
        scores = self.updater.module(batch)  # (R,)
        place = {row: i for i, row in enumerate(batch.indices)}
        better, worse, weights, margins = self._pairs(rankings)
        loss, metrics = bradley_terry_loss(
            scores,
            torch.tensor([place[row] for row in better], device=device),
            torch.tensor([place[row] for row in worse], device=device),
            torch.tensor(weights, device=device),
            num_prompts=num_prompts,
            margins=torch.tensor(margins, device=device),
            centre=self.config.centre,
        )
        return loss, {f"rm/{name}": value for name, value in metrics.items()}

    def _pairs(self, rankings: Sequence[Ranking]) -> tuple[list[int], list[int], list[float], list[float]]:
        """Every pair of every ranking: index of the better, of the worse, weight, margin."""
        better, worse, weights, margins = [], [], [], []
        start = 0
        for ranking in rankings:
            pairs = list(combinations(range(len(ranking.rows)), 2))
            better += [start + i for i, _ in pairs]
            worse += [start + j for _, j in pairs]
            weights += [1 / len(pairs)] * len(pairs)
            margins += [self.config.margin if ranking.margin is None else ranking.margin] * len(pairs)
            start += len(ranking.rows)
        return better, worse, weights, margins

    def scores(self, rows: Sequence[Row]) -> list[float]:
        """The score of each row."""
        budget = self.config.optimizer.micro_batch_tokens
        return score_rows(self.updater.module, rows, budget, self.accelerator, packed=self.module.packed)

    def evaluate(self, step: int) -> dict[str, float]:
        """`held_out/…`: see `report`. A checkpoint's config keeps mean and deviation of the scores, for PPO."""
        if not self.held_out:
            return {}
        values = iter(self.scores([row for r in self.held_out for row in r.rows]))
        scores = [[next(values) for _ in r.rows] for r in self.held_out]
        figures = {f"held_out/{name}": value for name, value in report(scores, self.held_out).items()}
        self.model.config.reward_mean = figures["held_out/score_mean"]
        self.model.config.reward_std = figures["held_out/score_std"]
        say(f"step {step}: " + ", ".join(f"{k} {v:.4g}" for k, v in figures.items()), style="bold")
        return figures

    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        return [
            f"loss {metrics['loss']:.4f}",
            *(f"{name} {metrics[f'rm/{name}']:.3f}" for name in ("accuracy", "margin", "score")),
            f"grad {metrics['optimizer/grad_norm']:.2f}",
        ]

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        alarms = {}
        if metrics["optimizer/skipped"]:
            alarms["gradient"] = "the gradient was not finite: the step was skipped"
        if metrics.get("held_out/accuracy", 1.0) <= metrics.get("held_out/longer_wins", 0.0):
            alarms["length"] = (
                f"held-out accuracy {metrics['held_out/accuracy']:.1%} is not above that of the longer answer, "
                f"{metrics['held_out/longer_wins']:.1%}"
            )
        return alarms

    def merit(self, metrics: Mapping[str, float]) -> float | None:
        return metrics.get("held_out/accuracy")

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        def accuracy(metrics: Mapping[str, float]) -> str:
            low, high = metrics["held_out/accuracy_low"], metrics["held_out/accuracy_high"]
            return f"{metrics['held_out/accuracy']:.1%} ({low:.1%} to {high:.1%})"

        if "held_out/accuracy" not in after:
            return ""
        names = {
            "nll": "held-out loss",
            "calibration_error": "calibration error",
            "longer_wins": 'accuracy of "longer wins"',
            "accuracy_chosen_longer": "accuracy where the chosen is longer",
            "accuracy_chosen_shorter": "accuracy where the chosen is shorter",
            "length_correlation": "correlation of score and length",
            "score_mean": "mean score",
            "score_std": "deviation of scores",
        }
        rows = [("held-out accuracy", accuracy(before), accuracy(after))]
        for name, shown in names.items():
            if f"held_out/{name}" in before and f"held_out/{name}" in after:
                rows.append((shown, f"{before[f'held_out/{name}']:.3f}", f"{after[f'held_out/{name}']:.3f}"))
        return before_after("reward model", rows)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.updater.state(), {}

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        self.updater.load_state(tensors)


def report(scores: Sequence[Sequence[float]], rankings: Sequence[Ranking]) -> dict[str, float]:
    """Figures of scores (K each, best response first) on rankings.

    `accuracy` (mean over a prompt's pairs, those of all its rankings, then over prompts; a tie is half) with its 95%
    interval over prompts; `nll`; `calibration_error`: |accuracy - mean confidence sigma(|difference|)| over bins of
    confidence, weighted by their pairs; `longer_wins`: accuracy of preferring the longer response;
    `accuracy_chosen_longer`, `…_shorter`: the model's on the pairs where that is so; `length_correlation` of score and
    tokens; `score_mean`, `score_std`. What has no pair is left out.
    """
    lengths = [[len(row.completion_ids) for row in r.rows] for r in rankings]
    by_prompt = _differences(scores, rankings)
    longer_by_prompt = _differences(lengths, rankings)
    difference = np.array([d for group in by_prompt for d in group])
    longer = np.array([d for group in longer_by_prompt for d in group])
    right = _right(difference)
    means = [float(_right(np.array(group)).mean()) for group in by_prompt]
    mean = clustered_mean(means, len(difference) / len(means))
    flat_scores = np.array([s for group in scores for s in group])
    flat_lengths = np.array([n for group in lengths for n in group])
    figures = {
        "accuracy": mean.mean,
        "accuracy_low": mean.ci95[0],
        "accuracy_high": mean.ci95[1],
        "nll": float(np.logaddexp(0, -difference).mean()),
        "calibration_error": calibration_error(difference),
        "longer_wins": float(np.mean([_right(np.array(group)).mean() for group in longer_by_prompt])),
        "score_mean": float(flat_scores.mean()),
        "score_std": float(flat_scores.std()),
    }
    for name, chosen in (("accuracy_chosen_longer", longer > 0), ("accuracy_chosen_shorter", longer < 0)):
        if chosen.any():
            figures[name] = float(right[chosen].mean())
    if flat_scores.std() > 0 and flat_lengths.std() > 0:
        figures["length_correlation"] = float(np.corrcoef(flat_scores, flat_lengths)[0, 1])
    return figures


def _differences(values: Sequence[Sequence[float]], rankings: Sequence[Ranking]) -> list[list[float]]:
    """For each prompt the value of the better minus that of the worse response, of all pairs of all its rankings."""
    found: dict[tuple[int, ...], list[float]] = {}
    for v, ranking in zip(values, rankings, strict=True):
        pairs = combinations(range(len(v)), 2)
        found.setdefault(ranking.rows[0].prompt_ids, []).extend(v[i] - v[j] for i, j in pairs)
    return list(found.values())


def calibration_error(difference: np.ndarray[Any, np.dtype[Any]]) -> float:
    """Expected calibration error of sigma(|d|) as the probability that the sign of d is right."""
    confidence = 1 / (1 + np.exp(-np.abs(difference)))
    right = _right(difference)
    places = np.minimum(((confidence - 0.5) * 2 * BINS).astype(int), BINS - 1)
    error = 0.0
    for place in range(BINS):
        inside = places == place
        if inside.any():
            error += float(inside.mean() * abs(right[inside].mean() - confidence[inside].mean()))
    return error


def _right(difference: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    right: np.ndarray[Any, np.dtype[Any]] = (difference > 0) + 0.5 * (difference == 0)
    return right
