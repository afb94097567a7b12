"""Training a Bradley-Terry reward model on pairs and rankings, one epoch by default.

    for each batch of prompts, each with its 2 or more responses, best first:
        score every response once
        loss = -log sigma(better - worse), a mean over a prompt's pairs, then over prompts, one AdamW step

Held-out pairs say how often it is right, whether its confidence is (calibration), and how much of that "the longer
answer wins" would have got as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.algorithms.losses import Metrics
from r1zero.algorithms.preference_losses import bradley_terry_loss
from r1zero.config import RewardModelConfig
from r1zero.data.preferences import Loaded, Ranking, fingerprint, load_rankings, refuse_overlap
from r1zero.models.policy import Row, add_lora, group_by_tokens, micro_batches
from r1zero.models.reward_model import RewardModel, load_reward_model, scorable_pad, score_rows, whole_rows
from r1zero.runs.folder import RunFolder
from r1zero.runs.tracking import say
from r1zero.training.inputs import accelerator_of, base_manifest, load_base
from r1zero.training.loop import set_threads, train
from r1zero.training.reward_model_report import report
from r1zero.training.stage import EpochStage, Prepared, Stage, before_after
from r1zero.training.updater import num_steps


def train_reward_model(config: RewardModelConfig, *, resume: bool = False) -> Path:
    """A run of the reward model: see `loop.train`."""
    return train(config, _prepare, resume=resume)


def _prepare(config: RewardModelConfig) -> Prepared:
    base = load_base(config.model.path, config.template)
    data = load_rankings(config.data, base.template, base.tokenizer)
    held_out: Loaded[Ranking] = Loaded(items=[])
    if config.held_out.source:
        held_out = load_rankings(config.held_out, base.template, base.tokenizer)
    train_rows = [row for r in data.items for row in r.rows]
    held_rows = [row for r in held_out.items for row in r.rows]
    refuse_overlap(train_rows, held_rows)
    pad = scorable_pad(base.tokenizer, {row.completion_ids[-1] for row in [*train_rows, *held_rows]})

    @contextmanager
    def start(folder: RunFolder, checkpoint: Path | None) -> Iterator[Stage]:
        accelerator = accelerator_of(config.run, config.model, folder)
        set_threads(accelerator, config.run.threads)
        torch.manual_seed(config.run.seed)
        lora = config.model.lora_rank > 0
        source = base.path if lora else checkpoint or base.path
        model = load_reward_model(source, config.model, pad, config.run.seed)
        if lora:
            add_lora(model, config.model)
            model.score.requires_grad_(True)
        yield RewardModelStage(
            config,
            accelerator=accelerator,
            module=RewardModel(model),
            tokenizer=base.tokenizer,
            rankings=data.items,
            held_out=held_out.items,
        )

    facts = {
        "prompts": len(data.items),
        "fingerprint": fingerprint(train_rows),
        "held_out": len(held_out.items),
        "held_out_fingerprint": fingerprint(held_rows),
    }
    return Prepared(
        steps=num_steps(len(data.items), config.batch_size, config.epochs, config.run.steps),
        manifest={**base_manifest(config, base), "data": facts},
        start=start,
        eval_every=config.eval_every,
        notes=[*data.said(config.data.source), *held_out.said(config.held_out.source)],
    )


class RewardModelStage(EpochStage[RewardModelConfig, Ranking]):
    """The algorithm."""

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
        super().__init__(
            config, accelerator=accelerator, module=module, tokenizer=tokenizer, units=rankings, held_out=held_out
        )
        self.module = module

    @property
    def model(self) -> PreTrainedModel:
        return self.module.model

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step on the next batch of prompts."""
        batch = self.batch(step)
        own, silent = self.own(batch)
        return self.updater.update(step, partial(self.losses, own, len(batch)), silent=silent)

    def losses(self, batch: Sequence[Ranking], num_prompts: int | None = None) -> list[partial[tuple[Tensor, Metrics]]]:
        """The loss of `batch`, a part a micro-batch; a prompt's responses are never split over two.

        num_prompts: of the whole batch over all processes; None: these are all.
        """
        groups = group_by_tokens([r.rows for r in batch], self.updater.budget.tokens)
        return [partial(self._loss, [batch[i] for i in group], num_prompts or len(batch)) for group in groups]

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
        return score_rows(self.updater.unwrapped, rows, budget, self.accelerator, packed=self.module.packed)

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
        alarms = super().alarms(step, metrics)
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

        if "held_out/accuracy" not in before:
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
