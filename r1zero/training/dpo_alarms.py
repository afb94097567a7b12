"""What to watch in DPO besides its loss: likelihood, over-optimisation and length."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from r1zero.config import DPOConfig

FALLING_STEPS = 10
"""Steps over which the alarm for falling likelihood looks."""
FALL = 0.5
"""Nats that a response must have lost in the mean for that alarm: less is the noise of ten batches."""
KEPT = ("start", "best_held_out", "best_win_rate")
"""What the alarms remember over a resume."""
LENGTH_FACTOR = 1.5
"""Answers so many times as long as the reference's are an alarm."""


class Watch:
    """Looks at each step in turn."""

    def __init__(self, config: DPOConfig) -> None:
        self.config = config
        self.start: tuple[float, float] | None = None
        """First step's chosen and rejected log-probabilities: what falls is measured from, without a reference."""
        self.recent: deque[tuple[float, float]] = deque(maxlen=FALLING_STEPS)
        """How far both are above (below: negative) the reference or the start, in the last steps."""
        self.best_held_out: float | None = None
        self.best_win_rate: float | None = None

    def check(self, metrics: Mapping[str, float], num_held_out: int, reference_tokens: float | None) -> dict[str, str]:
        """Both sides falling (Rafailov et al. 2024: likelihood goes elsewhere); over-optimisation: a held-out loss or a
        win rate past its best; and length: longer taken for better, or answers grown long."""
        alarms = self._length_alarms(metrics, num_held_out, reference_tokens)
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

    def _length_alarms(
        self, metrics: Mapping[str, float], num_held_out: int, reference_tokens: float | None
    ) -> dict[str, str]:
        alarms = {}
        right = metrics.get("held_out/accuracy_chosen_shorter")
        # Two standard errors below chance.
        if right is not None and right < 0.5 - (metrics["held_out/shorter"] * num_held_out) ** -0.5:
            alarms["length"] = (
                f"longer is taken for better: of the held-out pairs whose chosen response is the shorter, {right:.1%} "
                "are right; balance the data's lengths, or use simpo or length_normalised"
            )
        tokens = metrics.get("eval/tokens")
        if tokens is not None and reference_tokens and tokens > LENGTH_FACTOR * reference_tokens:
            alarms["answers"] = (
                f"answers have {tokens:.0f} tokens, the reference's {reference_tokens:.0f}: look whether the win "
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

    def state(self) -> dict[str, Any]:
        """What makes the next check what it would have been."""
        return {**{name: getattr(self, name) for name in KEPT}, "recent": list(self.recent)}

    def load_state(self, counters: Mapping[str, Any]) -> None:
        """Take over what `state` gave."""
        self.start = tuple(counters["start"]) if counters["start"] else None
        self.recent.extend((won, lost) for won, lost in counters["recent"])
        for name in KEPT[1:]:
            setattr(self, name, counters[name])
