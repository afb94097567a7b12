"""What a lab's runs say: a measure of each, the difference between variants with its interval, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from r1zero.config import LabConfig, LabEffect, LabMeasure, ModelConfig, StageConfig
from r1zero.errors import UserError, unknown_name

WEIGHTS_CHANGE = "weights/change"
Metrics = list[dict[str, Any]]
"""The lines of a metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class LabRun:
    """One finished run."""

    variant: str
    seed: int
    config: StageConfig
    checkpoint: Path
    metrics: Metrics


def measure(run: LabRun, what: LabMeasure) -> float:
    """The number that `what` names, of one run; nan where its condition leaves no step.

    Raises UserError where the run has no such metric.
    """
    if what.metric == WEIGHTS_CHANGE:
        return weights_change(run.config, run.checkpoint)
    for name in filter(None, (what.metric, what.where)):
        known = {key for row in run.metrics for key in row}
        if name not in known:
            raise unknown_name(f"metric of {run.variant}", name, known)
    values = [
        float(row[what.metric])
        for row in run.metrics
        if what.metric in row
        and (not what.where or (what.where in row and what.above < row[what.where] <= what.at_most))
    ]
    if not values:
        return math.nan
    match what.at:
        case "last":
            return values[-1]
        case "first":
            return values[0]
        case "change":
            return values[-1] - values[0]
        case "mean":
            return sum(values) / len(values)
        case "min":
            return min(values)
        case "max":
            return max(values)


def weights_change(config: StageConfig, checkpoint: Path) -> float:
    """L2 distance of a checkpoint's weights from the model its run began with.

    Raises UserError for a stage that does not begin with one model (a pipeline).
    """
    from r1zero import models

    model = getattr(config, "model", None)
    if not isinstance(model, ModelConfig):
        raise UserError(f"{WEIGHTS_CHANGE} is for stages that train one model, not for stage {config.stage}")
    before, after = dict(_tensors(models.resolve(model.path))), dict(_tensors(checkpoint))
    return math.sqrt(sum(float(np.square(after[name] - before[name]).sum()) for name in after if name in before))


def _tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    from safetensors.torch import load_file

    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            yield name, tensor.double().numpy()


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean over seeds and the 95% interval of it."""

    mean: float
    low: float
    high: float
    values: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Student's t over the seeds: mean +- t(0.975, n - 1) s / sqrt(n), s with ddof 1. With 3 seeds t is 4.30.

        Seeds are few and taken as draws from a normal distribution; one seed alone has no interval (nan).
        """
        n = len(values)
        mean = sum(values) / n
        if n == 1:
            return cls(mean=mean, low=math.nan, high=math.nan, values=list(values))
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
        half = float(student_t.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
        return cls(mean=mean, low=mean - half, high=mean + half, values=list(values))

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "none"
        return f"{self.mean:.4g}" if math.isnan(self.low) else f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


def judge(effect: LabEffect, difference: Interval) -> bool | None:
    """True where the interval says what the effect expects, False where it does not, None without an interval."""
    if math.isnan(difference.low):
        return None
    match effect.expect:
        case "higher":
            return difference.low > 0
        case "lower":
            return difference.high < 0
        case "same":
            return difference.low >= -effect.within and difference.high <= effect.within


# -- report ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An effect with what was found of it."""

    effect: LabEffect
    difference: Interval
    seen: bool | None
    """None: there is no interval, as with one seed alone."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a lab found."""

    config: LabConfig
    table: dict[str, dict[str, Interval]]
    """Variant -> measure -> over its seeds."""
    judged: list[Judged]

    @classmethod
    def of(cls, config: LabConfig, runs: Sequence[LabRun]) -> Report:
        """Raises UserError for a measure that a run which needs it does not have."""
        values = {
            (variant.name, what.name): [measure(run, what) for run in runs if run.variant == variant.name]
            for variant in config.shown
            for what in config.measures
        }
        judged = []
        for effect in config.effects:
            own = values[effect.variant, effect.measure]
            other = values[effect.against, effect.measure] if effect.against else [effect.value] * len(own)
            difference = Interval.of([a - b for a, b in zip(own, other, strict=True)])
            judged.append(Judged(effect=effect, difference=difference, seen=judge(effect, difference)))
        table: dict[str, dict[str, Interval]] = {}
        for (variant_name, measure_name), found in values.items():
            table.setdefault(variant_name, {})[measure_name] = Interval.of(found)
        return cls(config=config, table=table, judged=judged)

    @property
    def seen(self) -> bool | None:
        """True where every effect was seen, False where one was not, None where it cannot be said."""
        verdicts = [one.seen for one in self.judged]
        return False if False in verdicts else None if None in verdicts or not verdicts else True

    def text(self) -> str:
        """The claim, the table, each effect with its verdict, the verdict on the whole."""
        seeds = len(self.config.seeds)
        header = ["", *(what.name for what in self.config.measures)]
        rows = [[name, *(str(row[column]) for column in header[1:])] for name, row in self.table.items()]
        widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
        lines = [f"claim: {self.config.claim}", ""]
        lines += [
            "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in [header, *rows]
        ]
        what = f"mean and 95% t-interval over {seeds} seeds" if seeds > 1 else "one seed: no intervals"
        lines += [f"({what})", ""]
        for one in self.judged:
            verdict = {True: "seen", False: "NOT SEEN", None: "not judged (no interval)"}[one.seen]
            lines.append(f"{verdict}: {one.effect.says}: {_comparison(one)}")
        whole = {True: "SEEN", False: "NOT SEEN", None: "NOT JUDGED"}[self.seen]
        return "\n".join([*lines, f"claim {whole}"])

    def plain(self) -> dict[str, Any]:
        """For results.json: every run's number beside means and intervals; nan as null."""
        return {
            "claim": self.config.claim,
            "seen": self.seen,
            "seeds": self.config.seeds,
            "table": {v: {m: _numbers(i) for m, i in row.items()} for v, row in self.table.items()},
            "effects": [
                {**asdict(one.effect), "difference": _numbers(one.difference), "seen": one.seen} for one in self.judged
            ],
        }


def _comparison(one: Judged) -> str:
    effect = one.effect
    against = effect.against or f"{effect.value:g}"
    text = f"{effect.measure}, {effect.variant} less {against}: {one.difference}"
    return text + (f", to lie within +-{effect.within:g}" if effect.expect == "same" else "")


def _numbers(interval: Interval) -> dict[str, Any]:
    def known(value: float) -> float | None:
        return None if math.isnan(value) else value

    return {
        "mean": known(interval.mean),
        "low": known(interval.low),
        "high": known(interval.high),
        "values": [known(value) for value in interval.values],
    }
