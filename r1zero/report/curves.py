"""Which figures of metrics.jsonl share a panel, and their values as they stand there."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1zero.report.folders import Run

MOST_VALUES = 60_000
"""Numbers of metrics in a page, all runs together (about 20 bytes each): more, and steps are left out evenly."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart: figures that can be read on one axis."""

    title: str
    keys: str
    """A regular expression: the metrics in it."""
    says: str
    """What to look for."""
    low: str = ""
    high: str = ""
    """Metrics that are the interval of the first one."""


PANELS = (
    Panel(title="Reward", keys=r"reward/mean", says="What is paid. It rises also when the policy games it: see below."),
    Panel(
        title="Held-out pass@1",
        keys=r"eval/pass@1",
        says="On problems it was not trained on, with the 95% interval: this is what counts.",
        low="eval/ci95_low",
        high="eval/ci95_high",
    ),
    Panel(title="Training accuracy", keys=r"reward/accuracy", says="Share that the first verifier calls correct."),
    Panel(title="Score of each reward term", keys=r"reward/[^/]+/score", says="A term that falls pays for another."),
    Panel(
        title="Other held-out scores", keys=r"eval/(score|reward|win_rate|[^/]+/score)", says="As the verifiers say."
    ),
    Panel(title="Length, tokens", keys=r"completion/tokens_(mean|p10|p50|p90)|eval/tokens", says="Of a completion."),
    Panel(title="Cut at the token limit", keys=r"(completion|eval)/truncated", says="Much of it hides skill."),
    Panel(title="KL to the reference", keys=r"policy/kl", says="Nats a token; how far the policy has moved."),
    Panel(title="Entropy", keys=r"policy/entropy", says="Nats a token; at 0 the policy explores nothing."),
    Panel(
        title="Groups that teach nothing",
        keys=r"group/zero_variance",
        says="All rewards equal: problems too hard or too easy.",
    ),
    Panel(
        title="Engine against trainer", keys=r"mismatch/mean_abs", says="Mean difference of logprobs; should not grow."
    ),
    Panel(title="Clipped tokens", keys=r"policy/clip_frac_(high|low)", says="Share whose ratio left the clip."),
    Panel(title="Loss", keys=r"loss|policy/loss|held_out/loss", says="Says little in RL; should fall in SFT and DPO."),
    Panel(title="Negative log-likelihood", keys=r"(sft|rm|held_out)/nll", says="Nats a token."),
    Panel(title="Preference accuracy", keys=r"(dpo|rm|held_out)/accuracy", says="Chosen scored over rejected."),
    Panel(title="Preference logprobs", keys=r"dpo/(chosen|rejected)_logprob", says="Both falling is a warning."),
    Panel(title="Preference margin", keys=r"(dpo|rm|held_out)/margin", says="Chosen less rejected."),
    Panel(title="Value model", keys=r"value/explained_variance", says="1: it foresees the return; 0 or less: nothing."),
    Panel(title="Gradient norm", keys=r"optimizer/grad_norm", says="Spikes before trouble."),
    Panel(title="Learning rate", keys=r"optimizer/lr", says="As scheduled."),
    Panel(title="Tokens a second", keys=r"time/tokens_per_second", says="Of the whole step."),
)


@dataclass(frozen=True, kw_only=True)
class Curves:
    """A run's metrics by column."""

    steps: list[int]
    columns: dict[str, list[float | None]]
    """None where the step has no such figure."""
    all_steps: int
    """Rows of metrics.jsonl; more than `steps` where some were left out."""


def curves(run: Run, most_values: int = MOST_VALUES) -> Curves:
    """The finite numbers of metrics.jsonl, unrounded; beyond `most_values`, every n-th row, the last row, and the rows
    with held-out scores."""
    rows = run.rows
    values = sum(len(row) for row in rows)
    stride = max(1, math.ceil(values / most_values))
    kept = [
        row
        for i, row in enumerate(rows)
        if i % stride == 0 or i == len(rows) - 1 or any(key.startswith(("eval/", "held_out/")) for key in row)
    ]
    keys = list(dict.fromkeys(key for row in kept for key in row if key != "step" and number(row[key]) is not None))
    return Curves(
        steps=[row["step"] for row in kept],
        columns={key: [number(row.get(key)) for row in kept] for key in keys},
        all_steps=len(rows),
    )


def panels(all_curves: Sequence[Curves]) -> list[dict[str, Any]]:
    """The panels that these runs have figures for, each with its metrics' full names."""
    names = list(dict.fromkeys(key for one in all_curves for key in one.columns))
    found = []
    for panel in PANELS:
        keys = [name for name in names if re.fullmatch(panel.keys, name)]
        if keys:
            found.append({"title": panel.title, "says": panel.says, "keys": keys, "low": panel.low, "high": panel.high})
    return found


def phases(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of each phase over all steps, and `rest`: what of the steps no phase accounts for."""
    names = sorted({key for row in rows for key in row if is_phase(key)})
    total = {key.removeprefix("time/"): sum(number(row.get(key)) or 0.0 for row in rows) for key in names}
    whole = sum(number(row.get("time/step")) or 0.0 for row in rows)
    return total | {"rest": max(0.0, whole - sum(total.values()))} if whole else total


def is_phase(key: str) -> bool:
    return key.startswith("time/") and key not in ("time/step", "time/tokens_per_second")


def number(value: Any) -> float | None:
    """A finite number or None: JSON has no nan."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
