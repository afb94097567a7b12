"""Preference optimisation without a reward model or sampling: DPO, IPO, cDPO, KTO, SimPO, ORPO.

    reference log-probabilities of every response, once, before the policy is loaded      `reference.py`
    for each batch of pairs (kto: of liked and disliked responses):
        log pi of each response                                                            `response_logprobs`
        loss of the pairs, a mean over the whole batch, one AdamW step                     `preference_losses.py`

What to watch is not the loss: the implicit rewards, whether both sides lose likelihood, held-out pairs, and among them
those whose chosen response is the shorter. The win rate asks the judge of `config.reward`, which the loss never saw.
"""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Mapping, Sequence
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
from r1zero.data.preferences import Loaded, Ranking, Thumb, fingerprint, load_rankings, load_thumbs, refuse_overlap
from r1zero.models.policy import MicroBatch, Policy, Row, group_by_tokens
from r1zero.runs.folder import RunFolder, write_atomically
from r1zero.runs.tracking import say
from r1zero.training.answers import Answerer, sample_rows, win_rate
from r1zero.training.offline import accelerator_of, answering, check_questions, load_base, load_policy, load_questions
from r1zero.training.reference_logprobs import reference_logprobs, row_logprobs
from r1zero.training.session import Session, before_after, complete, find_run, start_torch
from r1zero.training.updater import Updater, batch_of, num_steps

FALLING_STEPS = 10
"""Steps over which the alarm for falling likelihood looks."""
FALL = 0.5
"""Nats that a response must have lost in the mean for that alarm: less is the noise of ten batches."""
KEPT = ("start", "best_held_out", "best_win_rate", "reference_tokens")
"""What the alarms remember over a resume."""
LENGTH_FACTOR = 1.5
"""Answers so many times as long as the reference's are an alarm."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """What stands in one place of a batch: a pair (chosen, rejected), or for kto a response and a mismatched one."""

    rows: tuple[Row, Row]
    """kto: the response, and another prompt's response put to this prompt, which measures the KL."""
    reference: tuple[float, float] = (0.0, 0.0)
    """log ref of both, summed over tokens."""
    desirable: bool = True
    """kto's thumb."""


def units_of_pairs(rankings: Sequence[Ranking]) -> list[Unit]:
    """Best against worst of each ranking."""
    return [Unit(rows=(r.chosen, r.rejected)) for r in rankings]


def units_of_thumbs(thumbs: Sequence[Thumb]) -> list[Unit]:
    """Each response with a mismatch: the next response in the data that answers another prompt.

    Fixed by the data's order, so that the reference's log-probabilities of mismatches are computed once as well.
    """
    units = []
    for i, thumb in enumerate(thumbs):
        others = (thumbs[(i + k) % len(thumbs)] for k in range(1, len(thumbs)))
        other = next((o for o in others if o.row.prompt_ids != thumb.row.prompt_ids), thumb)
        mismatch = Row(prompt_ids=thumb.row.prompt_ids, completion_ids=other.row.completion_ids)
        units.append(Unit(rows=(thumb.row, mismatch), desirable=thumb.desirable))
    return units


def train_dpo(config: DPOConfig, *, resume: bool = False) -> Path:
    """Run `config` to its last step; returns the last checkpoint. `resume` goes on from the latest one.

    Raises UserError for every mistake that is the user's to mend, before anything is written.
    """
    folder, checkpoint = find_run(config, resume=resume)
    base = load_base(config)
    kto = config.loss == "kto"
    data: Loaded[Any] = (load_thumbs if kto else load_rankings)(config.data, base.template, base.tokenizer)
    held_out: Loaded[Any] = Loaded(items=[])
    if config.held_out.source:
        held_out = (load_thumbs if kto else load_rankings)(config.held_out, base.template, base.tokenizer)
    make = units_of_thumbs if kto else units_of_pairs
    units, held = make(data.items), make(held_out.items)
    refuse_overlap((u.rows[0] for u in units), (u.rows[0] for u in held))
    questions = load_questions(config, base)
    check_questions(questions, base, [u.rows[0] for u in units])
    steps = num_steps(len(units), config.batch_size, config.epochs, config.run.steps)
    if checkpoint is not None and complete(folder, checkpoint, steps):
        return checkpoint
    folder.open()
    try:
        for line in [*data.said(config.data.source), *held_out.said(config.held_out.source)]:
            say(line, style="yellow")
        accelerator = accelerator_of(config, folder)
        start_torch(accelerator, config.run)
        if config.uses_reference:
            units, held = with_reference(config, base.path, accelerator, units, held)
        model = load_policy(config, base, checkpoint)
        with answering(config, base, questions, model, checkpoint or base.path) as answerer:
            start_torch(accelerator, config.run)
            stage = DPO(
                config,
                accelerator=accelerator,
                policy=Policy(model, trained=True),
                tokenizer=base.tokenizer,
                units=units,
                held_out=held,
                answerer=answerer,
                folder=folder,
            )
            manifest = {
                "template": {"name": base.template.name, "fingerprint": base.template.fingerprint},
                "model": config.model.path,
                "data": {
                    "units": len(units),
                    "fingerprint": fingerprint(row for u in units for row in u.rows),
                    "longer_wins": longer_wins(units) if not kto else None,
                    "held_out": len(held),
                    "held_out_fingerprint": fingerprint(row for u in held for row in u.rows),
                    "questions_fingerprint": datasets.fingerprint(questions),
                },
            }
            whole = dataclasses.replace(config, run=dataclasses.replace(config.run, steps=steps))
            return Session(stage, whole, folder, checkpoint, manifest=manifest, eval_every=config.eval.every).go()
    finally:
        folder.close()


def with_reference(
    config: DPOConfig, model_path: Path, accelerator: Accelerator, *sets: list[Unit]
) -> tuple[list[Unit], ...]:
    """The units with the reference's log-probabilities, from the cache or computed now."""
    rows = [row for units in sets for u in units for row in u.rows]
    values = reference_logprobs(
        model_path, config.model, rows, config.optimizer.micro_batch_tokens, accelerator
    ).tolist()
    pairs = iter(zip(values[::2], values[1::2], strict=True))
    return tuple([dataclasses.replace(u, reference=next(pairs)) for u in units] for units in sets)


def longer_wins(units: Sequence[Unit]) -> float:
    """Share of pairs whose chosen response has more tokens (equal: half): the bias that DPO takes over."""
    lengths = [(len(u.rows[0].completion_ids), len(u.rows[1].completion_ids)) for u in units]
    return sum((a > b) + 0.5 * (a == b) for a, b in lengths) / max(len(lengths), 1)


class DPO:
    """The algorithm and its relatives: a `session.Stage`."""

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
        self.config = config
        self.accelerator = accelerator
        self.policy = policy
        self.tokenizer = tokenizer
        self.units = units
        self.held_out = held_out
        self.answerer = answerer
        self.folder = folder
        steps = num_steps(len(units), config.batch_size, config.epochs, config.run.steps)
        self.updater = Updater(accelerator, policy, config.optimizer, steps)
        self.start: tuple[float, float] | None = None
        """First step's chosen and rejected log-probabilities: what falls is measured from, without a reference."""
        self.recent: deque[tuple[float, float]] = deque(maxlen=FALLING_STEPS)
        """How far both are above (below: negative) the reference or the start, in the last steps."""
        self.best_held_out: float | None = None
        self.best_win_rate: float | None = None
        self.reference_tokens: float | None = None
        """Mean length of the reference's answers to the held-out problems."""

    @property
    def model(self) -> PreTrainedModel:
        return self.policy.model

    def step(self, step: int) -> dict[str, float]:
        """One optimizer step on the next batch."""
        config = self.config
        indices = batch_of(step, len(self.units), config.batch_size, config.epochs, config.run.steps, config.run.seed)
        batch = [self.units[i] for i in indices]
        metrics = self.updater.update(step, self.losses(batch))
        tokens = sum(row.length for u in batch for row in u.rows)
        return metrics | {"time/tokens_per_second": tokens / metrics["time/step"]}

    def losses(self, batch: Sequence[Unit]) -> list[partial[tuple[Tensor, Metrics]]]:
        """The batch's loss, a part a micro-batch. A unit is never split over two."""
        totals = StepTotals(num_tokens=sum(len(u.rows[0].completion_ids) for u in batch), num_sequences=len(batch))
        baseline = self._kto_baseline(batch) if self.config.loss == "kto" else 0.0
        trained = 1 if self.config.loss == "kto" else 2  # a mismatched response is looked at, not trained on
        parts = []
        for group in group_by_tokens([u.rows[:trained] for u in batch], self.config.optimizer.micro_batch_tokens):
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
        if step == 0:
            write_atomically(kept, json.dumps(answers.values()))
        if self.config.run.save_rollouts:
            self.folder.save_eval(step, sample_rows(answerer.problems, answers))
        theirs = json.loads(kept.read_text(encoding="utf-8"))
        return figures | win_rate(answers.values(), theirs)

    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        shown = [f"loss {metrics['loss']:.4f}"]
        for name in ("margin", "accuracy", "chosen_logprob", "rejected_logprob"):
            if f"dpo/{name}" in metrics:
                shown.append(f"{name} {metrics[f'dpo/{name}']:.3f}")
        return [*shown, f"grad {metrics['optimizer/grad_norm']:.2f}"]

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        """Both sides falling (Rafailov et al. 2024: likelihood goes elsewhere); over-optimisation: a held-out loss or a
        win rate past its best; and length: longer taken for better, or answers grown long."""
        alarms = self._length_alarms(metrics)
        if metrics["optimizer/skipped"]:
            alarms["gradient"] = "the gradient was not finite: the step was skipped"
        if self.config.loss != "kto":
            self.recent.append(self._rise(metrics))
        if len(self.recent) == FALLING_STEPS:
            won, lost = (sum(side) / FALLING_STEPS for side in zip(*self.recent, strict=True))
            if won < -FALL and lost < -FALL:
                alarms["likelihood"] = (
                    f"chosen and rejected responses both lose likelihood ({won:.2f} and {lost:.2f} nats over "
                    f"{FALLING_STEPS} steps): the policy moves to answers in neither; lower the learning rate, "
                    "raise beta, or set nll_weight"
                )
        loss = metrics.get("held_out/loss")
        if loss is not None:
            if self.best_held_out is not None and loss > 1.02 * self.best_held_out:
                alarms["over-optimisation"] = (
                    f"held-out loss {loss:.4f} is above its best, {self.best_held_out:.4f}: use the best checkpoint"
                )
            self.best_held_out = loss if self.best_held_out is None else min(loss, self.best_held_out)
        rate = metrics.get("eval/win_rate")
        if rate is not None:
            if self.best_win_rate is not None and metrics["eval/win_rate_high"] < self.best_win_rate:
                alarms["over-optimisation"] = (
                    f"the win rate, {rate:.1%}, is below its best, {self.best_win_rate:.1%}: use the best checkpoint"
                )
            self.best_win_rate = rate if self.best_win_rate is None else max(rate, self.best_win_rate)
        return alarms

    def _length_alarms(self, metrics: Mapping[str, float]) -> dict[str, str]:
        alarms = {}
        right = metrics.get("held_out/accuracy_chosen_shorter")
        # Two standard errors below chance.
        if right is not None and right < 0.5 - (metrics["held_out/shorter"] * len(self.held_out)) ** -0.5:
            alarms["length"] = (
                f"longer is taken for better: of the held-out pairs whose chosen response is the shorter, {right:.1%} "
                "are right; balance the data's lengths, or use simpo or length_normalised"
            )
        tokens = metrics.get("eval/tokens")
        if tokens is not None and self.reference_tokens and tokens > LENGTH_FACTOR * self.reference_tokens:
            alarms["answers"] = (
                f"answers have {tokens:.0f} tokens, the reference's {self.reference_tokens:.0f}: look whether the win "
                "rate is more than length"
            )
        return alarms

    def _rise(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        """How far chosen and rejected log-probabilities are above the reference's, or above the first step's."""
        if self.config.uses_reference:
            beta = self.config.strength
            return metrics["dpo/chosen_reward"] / beta, metrics["dpo/rejected_reward"] / beta
        now = (metrics["dpo/chosen_logprob"], metrics["dpo/rejected_logprob"])
        self.start = self.start or now
        return now[0] - self.start[0], now[1] - self.start[1]

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
        return before_after(self.config.loss, rows)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        counters = {name: getattr(self, name) for name in KEPT}
        return self.updater.state(), {**counters, "recent": list(self.recent)}

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        self.updater.load_state(tensors)
        self.start = tuple(counters["start"]) if counters["start"] else None
        self.recent.extend((won, lost) for won, lost in counters["recent"])
        for name in KEPT[1:]:
            setattr(self, name, counters[name])
