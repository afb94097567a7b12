"""Alarms: what in a step's metrics says that a run is going wrong before its reward does.

Reward and loss are poor signals of health; KL, entropy, lengths and the share of groups that teach nothing are better.
A drift is measured against the run's own first steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from r1zero.config import HealthConfig

BASELINE = ("policy/entropy", "policy/ref_perplexity", "completion/tokens_mean")
"""What is compared with the run's first steps."""
BASELINE_STEPS = 5
"""A run's first steps, whose mean is what a later step is compared with."""


class Health:
    """Looks at each step in turn; `past` are the metrics of the steps before a resume."""

    def __init__(self, config: HealthConfig, past: Iterable[Mapping[str, Any]] = ()) -> None:
        self.config = config
        self._first: dict[str, list[float]] = {}
        for metrics in past:
            self._remember(metrics)

    def check(self, metrics: Mapping[str, Any]) -> dict[str, str]:
        """Alarm name -> one line on what was seen and what it may mean. Empty: all is well."""
        config, alarms = self.config, {}

        def value(name: str) -> float:
            return float(metrics.get(name, math.nan))

        kl, entropy, length = value("policy/kl"), value("policy/entropy"), value("completion/tokens_mean")
        if kl > config.kl_max:
            alarms["kl"] = f"KL to the reference is {kl:.3g} nats a token: lower the learning rate or raise beta"
        first_entropy, first_length = self._baseline("policy/entropy"), self._baseline("completion/tokens_mean")
        if entropy < config.entropy_min_share * first_entropy:
            alarms["entropy"] = (
                f"entropy fell from {first_entropy:.3g} to {entropy:.3g} nats: the policy has stopped exploring; a "
                "higher clip_high or an entropy bonus slows this"
            )
        if length > config.length_factor * first_length or length * config.length_factor < first_length:
            alarms["length"] = (
                f"mean length went from {first_length:.0f} to {length:.0f} tokens: read some completions; a reward may "
                "be paying for length"
            )
        perplexity, first = value("policy/ref_perplexity"), self._baseline("policy/ref_perplexity")
        if perplexity > config.perplexity_factor * first:
            alarms["perplexity"] = (
                f"the reference's perplexity of the completions went from {first:.3g} to {perplexity:.3g}: read some; "
                "the policy may be leaving the language for what the reward model overrates"
            )
        if value("group/zero_variance") > config.flat_share:
            alarms["flat"] = (
                f"{value('group/zero_variance'):.0%} of the groups have equal rewards and teach nothing: the problems "
                "are too hard or too easy, or a verifier calls everything the same"
            )
        if value("completion/truncated") > config.truncated_share:
            alarms["truncated"] = (
                f"{value('completion/truncated'):.0%} of the completions hit the token limit: raise sampling.max_tokens"
            )
        errors = {k: float(v) for k, v in metrics.items() if k.startswith("reward/") and k.endswith("/error")}
        if errors and max(errors.values()) > config.error_share:
            name = max(errors, key=errors.__getitem__).split("/")[1]
            alarms["verifier"] = (
                f"verifier term {name!r} failed on {max(errors.values()):.0%}: see the rollouts' reasons"
            )
        if value("optimizer/skipped") > 0:
            alarms["gradient"] = "the gradient was not finite: the step was skipped"
        self._remember(metrics)
        return alarms

    def _remember(self, metrics: Mapping[str, Any]) -> None:
        for name in BASELINE:
            seen = self._first.setdefault(name, [])
            if len(seen) < BASELINE_STEPS and name in metrics:
                seen.append(float(metrics[name]))

    def _baseline(self, name: str) -> float:
        """Mean over the first steps; nan, with which no comparison is true, until there are enough."""
        seen = self._first.get(name, [])
        return sum(seen) / len(seen) if len(seen) == BASELINE_STEPS else math.nan
