"""Alarms: what in a step's metrics says that a run is going wrong before its reward does.

Reward and loss are poor signals of health; KL, entropy, lengths and the share of groups that teach nothing are better.
A drift is measured against the run's own first steps.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from r1zero.config import HealthConfig

BASELINE = (
    "policy/entropy",
    "policy/ref_perplexity",
    "completion/tokens_mean",
    "completion/truncated",
    "mismatch/mean_abs",
    "dpo/chosen_logprob",
    "dpo/rejected_logprob",
)
"""What is compared with the run's first steps."""
BASELINE_STEPS = 5
"""A run's first steps, whose mean is what a later step is compared with."""
MISMATCH_FLOOR = 0.01
"""Nats a token: less is rounding, however much it grew."""
TIMEOUT_SHARE = 0.5
"""Of one verifier's verdicts: a program of the model's may hang, half of them seldom do."""
RECENT_STEPS = 3
"""Steps over which a reward's rise, an unpaid term's fall and KL before a spike are averaged."""


class Health:
    """Looks at each step in turn; `past` are the metrics of the steps before a resume."""

    def __init__(
        self, config: HealthConfig, past: Iterable[Mapping[str, Any]] = (), unpaid: Sequence[str] = ()
    ) -> None:
        """unpaid: reward terms of weight 0, which say what the reward is worth."""
        self.config = config
        self.unpaid = unpaid
        self._first: dict[str, list[float]] = {}
        self._recent: dict[str, deque[float]] = {}
        self._best: dict[str, tuple[float, float]] = {}
        """Of each unpaid term its best recent mean, and the recent mean of the reward then."""
        for metrics in past:
            self._remember(metrics)
            self._unpaid_alarms()

    def check(self, metrics: Mapping[str, Any]) -> dict[str, str]:
        """Alarm name -> one line on what was seen and what it may mean. Empty: all is well."""

        def value(name: str) -> float:
            return float(metrics.get(name, math.nan))

        alarms = self._drifts(value) | self._shares(metrics, value)
        self._remember(metrics)
        return alarms | self._unpaid_alarms()

    def _drifts(self, value: Callable[[str], float]) -> dict[str, str]:
        """What is compared with the first steps, or the last."""
        config, alarms = self.config, {}
        kl, entropy, length = value("policy/kl"), value("policy/entropy"), value("completion/tokens_mean")
        before = self._recently("policy/kl")
        if kl > config.kl_max:
            alarms["kl"] = f"KL to the reference is {kl:.3g} nats a token: lower the learning rate or raise beta"
        elif kl > config.spike_factor * before and kl > config.kl_max / 10:
            alarms["kl_spike"] = (
                f"KL to the reference leapt from {before:.3g} to {kl:.3g} nats a token: look at the gradient norm "
                "and the best-paid completions; a lower optimizer.lr or max_grad_norm helps"
            )
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
        apart, first = value("mismatch/mean_abs"), self._baseline("mismatch/mean_abs")
        if apart > config.mismatch_factor * first and apart > MISMATCH_FLOOR:
            alarms["mismatch"] = (
                f"engine and trainer differ by {apart:.3g} nats a token, {first:.3g} in the first steps: look at "
                "mismatch/max_abs; engine.dtype float32, or a lower optimizer.lr where the weights blow up, helps"
            )
        if all(self._fell(f"dpo/{side}_logprob", value) for side in ("chosen", "rejected")):
            alarms["dpo_logprobs"] = (
                "the logprobs of the chosen and of the rejected responses both fell: the margin grows by unlearning "
                "both; raise beta or nll_weight, or lower optimizer.lr"
            )
        return alarms

    def _fell(self, name: str, value: Callable[[str], float]) -> bool:
        """True when a logprob, which is negative, is `fall_share` further down than in the first steps."""
        return value(name) < (1 + self.config.fall_share) * self._baseline(name)

    def _shares(self, metrics: Mapping[str, Any], value: Callable[[str], float]) -> dict[str, str]:
        """What is too large a share of this step."""
        config, alarms = self.config, {}
        if value("group/zero_variance") > config.flat_share:
            alarms["flat"] = (
                f"{value('group/zero_variance'):.0%} of the groups have equal rewards and teach nothing: the problems "
                "are too hard or too easy, or a verifier calls everything the same; look at the outcomes; other data, "
                "or algorithm.dynamic_sampling, helps"
            )
        cut, first = value("completion/truncated"), self._baseline("completion/truncated")
        if cut > config.truncated_share or cut > first + config.truncated_rise:
            alarms["truncated"] = (
                f"{cut:.0%} of the completions hit the token limit: see whether they repeat themselves; if not, raise "
                "sampling.max_tokens"
            )
        errors = {k: float(v) for k, v in metrics.items() if k.startswith("reward/") and k.endswith("/error")}
        if errors and max(errors.values()) > config.error_share:
            name = max(errors, key=errors.__getitem__).split("/")[1]
            alarms["verifier"] = (
                f"verifier term {name!r} failed on {max(errors.values()):.0%}: see the rollouts' reasons; a longer "
                "reward.deadline_seconds or more reward.memory_gib helps where it was killed"
            )
        hung = {k: float(v) for k, v in metrics.items() if k.startswith("reward/") and k.endswith("/timeout")}
        if hung and max(hung.values()) > TIMEOUT_SHARE:
            name = max(hung, key=hung.__getitem__).split("/")[1]
            alarms["timeouts"] = (
                f"verifier term {name!r} was killed at its deadline on {max(hung.values()):.0%} of the completions: it "
                "hangs, or needs a longer reward.deadline_seconds"
            )
        if value("optimizer/skipped") > 0:
            alarms["gradient"] = "the gradient was not finite: the step was skipped; lower optimizer.lr if it goes on"
        return alarms

    def _unpaid_alarms(self) -> dict[str, str]:
        """A term that is not paid for falls while the reward rises: the reward is being gamed."""
        reward, alarms = self._recently("reward/mean"), {}
        for term in self.unpaid:
            now = self._recently(f"reward/{term}/score")
            best, reward_then = self._best.get(term, (math.nan, math.nan))
            if best > 0 and now < (1 - self.config.fall_share) * best and reward > reward_then:
                alarms[f"unpaid_{term}"] = (
                    f"{term!r}, which is not paid for, fell from {best:.3g} to {now:.3g} while the reward rose from "
                    f"{reward_then:.3g} to {reward:.3g}: read what is paid best (r1zero report); a higher "
                    "algorithm.beta, or an earlier checkpoint, helps"
                )
            if not now <= best:  # also the first time, when best is nan
                self._best[term] = now, reward
        return alarms

    def _remember(self, metrics: Mapping[str, Any]) -> None:
        for name in BASELINE:
            seen = self._first.setdefault(name, [])
            if len(seen) < BASELINE_STEPS and name in metrics:
                seen.append(float(metrics[name]))
        for name in ("policy/kl", "reward/mean", *(f"reward/{term}/score" for term in self.unpaid)):
            if name in metrics:
                self._recent.setdefault(name, deque(maxlen=RECENT_STEPS)).append(float(metrics[name]))

    def _recently(self, name: str) -> float:
        """Mean over the last steps; nan until there are enough."""
        seen = self._recent.get(name, ())
        return sum(seen) / len(seen) if len(seen) == RECENT_STEPS else math.nan

    def _baseline(self, name: str) -> float:
        """Mean over the first steps; nan, with which no comparison is true, until there are enough."""
        seen = self._first.get(name, [])
        return sum(seen) / len(seen) if len(seen) == BASELINE_STEPS else math.nan
