"""PPO with a value model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from r1zero.config.rl import PolicyGradientConfig, RLConfig
from r1zero.config.sections import require, require_least


@dataclass(frozen=True, kw_only=True)
class PPOAlgorithmConfig(PolicyGradientConfig):
    """PPO for language models (InstructGPT, arXiv 2203.02155; details after arXiv 2403.17031)."""

    group_size: int = 1
    """Completions of one prompt: the value model is the baseline, so that one is enough."""
    prompts_per_step: int = 128
    minibatches: int = 4
    epochs: int = 4
    """Passes over one rollout (4 in arXiv 1909.08593 and 2009.01325); 1 is steadier and slower."""
    aggregation: Literal["sequence", "token", "constant"] = "token"
    """PPO's expectation is over tokens."""
    beta: float = 0.05
    """KL coefficient; with `kl_target` the first one. 0: no KL term at all (Open-Reasoner-Zero)."""
    kl: Literal["k1", "k2", "k3"] = "k1"
    """KL estimator; k1, log(pi / ref), is the one whose sum is the reward's own KL term."""
    kl_in: Literal["loss", "reward"] = "reward"
    kl_target: float = 0.0
    """Adaptive KL (arXiv 1909.08593 section 2.2): beta is steered to this KL, nats a completion (6 there). 0: beta is
    constant."""
    kl_horizon: int = 10_000
    """Adaptive KL: completions over which beta can move by a fifth (lm-human-preferences' code; the paper's K_beta is
    the completions of one step over this)."""
    measure_kl: bool = True
    """With beta 0: keep the reference all the same, to see how far the policy has gone."""
    gamma: float = 1.0
    lam: float = 0.95
    """GAE's lambda; 1 with gamma 1: return minus value (Open-Reasoner-Zero)."""
    whiten: bool = True
    """Advantages to mean 0 and deviation 1 over all tokens of the step."""

    @property
    def needs_reference(self) -> bool:
        return self.beta > 0 or self.measure_kl

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.gamma <= 1 and 0 <= self.lam <= 1, "gamma and lam must be in 0 .. 1")
        require_least("", self, 0, "kl_target")
        require_least("", self, 1, "kl_horizon")
        require(self.kl_target == 0 or self.beta > 0, "kl_target steers beta, which must not be 0")
        require(self.kl_target == 0 or self.kl_in == "reward", "kl_target steers the KL in the reward: set kl_in")
        require(
            self.reference_every == 0 or self.kl_target == 0,
            "kl_target is a distance from one reference: leave reference_every at 0",
        )


@dataclass(frozen=True, kw_only=True)
class ValueConfig:
    """The value model: a backbone with a scalar head that reads the state before each token."""

    init: Literal["reward_model", "policy"] = "reward_model"
    """What it starts from: the first of reward.models, head and all (InstructGPT); or the policy's own backbone with a
    head of zeros."""
    lr: float = 1e-5
    """Learning rate; all else is as `optimizer` says."""
    clip: float = 0.2
    """Value clipping: how far a value may move from where it was at the rollout before its loss stops rewarding it;
    0: none."""
    warmup_steps: int = 0
    """First so many steps train the value model alone."""

    def __post_init__(self) -> None:
        require(self.lr > 0, f"value.lr must be above 0, got {self.lr}")
        require_least("value", self, 0, "clip", "warmup_steps")


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RLConfig):
    """Policy, reference, reward and value model: `stage: ppo`."""

    stage: Literal["ppo"] = "ppo"
    algorithm: PPOAlgorithmConfig = field(default_factory=PPOAlgorithmConfig)
    value: ValueConfig = field(default_factory=ValueConfig)
    shared_backbone: bool = False
    """With LoRA: one backbone for all four models, adapters switched: policy, value, reward model, and none for the
    reference. The reward model must have been trained with LoRA from the same base."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.value.init == "policy" or bool(self.reward.models),
            "value.init: reward_model needs one in reward.models; without, set it to policy",
        )
        if self.shared_backbone:
            require(self.model.lora_rank > 0, "shared_backbone is for LoRA: set model.lora_rank")
            require(
                not self.model.gradient_checkpointing,
                "shared_backbone: gradient_checkpointing would recompute with another adapter; leave one of them out",
            )
            require(self.algorithm.reference_every == 0, "shared_backbone: the reference is the base, which stays")
            require(len(self.reward.models) <= 1, "shared_backbone takes one reward model")
