"""GRPO and its family."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from r1zero.config.rl import PolicyGradientConfig, RLConfig
from r1zero.config.sections import require


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(PolicyGradientConfig):
    """The objective of GRPO and its family; recipes set them apart."""

    advantage: Literal["group", "rloo", "group_baseline", "batch_baseline", "reinforce_pp", "process"] = "group"
    """group: (r - mean) / std of the group; rloo: leave-one-out mean; *_baseline: mean of the group or batch alone;
    process: of each token, the sum of the normalised rewards of its own and the later steps (`process.py`)."""
    std: Literal["group", "batch", "none"] = "group"
    """What the advantage is divided by; none is Dr. GRPO."""
    std_eps: float = 1e-6
    """Added to the std (ddof 0)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.group_size >= 2, f"group_size must be 2 or more, got {self.group_size}")
        require(
            self.advantage != "process" or (self.std == "group" and self.kl_in == "loss"),
            "advantage process divides by the group's std and takes no kl_in=reward",
        )


@dataclass(frozen=True, kw_only=True)
class GRPOConfig(RLConfig):
    """A GRPO run and its family: `r1zero train RECIPE`."""

    stage: Literal["grpo"] = "grpo"
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
