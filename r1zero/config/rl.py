"""What the stages that sample to train share: GRPO and its family, PPO."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from r1zero.config.sections import (
    DataConfig,
    EngineConfig,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    RunConfig,
    SamplingConfig,
    require,
    require_least,
)


@dataclass(frozen=True, kw_only=True)
class PolicyGradientConfig:
    """What the policy-gradient algorithms share: the rollout, the surrogate, the KL term, the correction of sampling.
    The defaults are GRPO's, as in arXiv 2402.03300, with the field's later repairs named at each field."""

    group_size: int = 8
    """Completions of one prompt (G)."""
    prompts_per_step: int = 32
    """Prompts in one rollout."""
    minibatches: int = 1
    """Optimizer steps taken from one rollout; above 1 the later ones are off-policy and the clip matters."""
    epochs: int = 1
    """Passes over one rollout."""
    loss: Literal["clip", "gspo", "cispo", "reinforce"] = "clip"
    """clip: PPO's surrogate per token (GRPO, DAPO, Dr. GRPO); gspo: per sequence; cispo: clipped weight; reinforce."""
    aggregation: Literal["sequence", "token", "constant"] = "sequence"
    """sequence: mean over a completion's tokens, then over completions (the paper); token: mean over all tokens of the
    step (DAPO); constant: sum over tokens / (completions * max_tokens) (Dr. GRPO)."""
    clip_low: float | None = None
    clip_high: float | None = None
    """Ratio kept within [1 - clip_low, 1 + clip_high]. None: the loss's own paper's: clip 0.2 and 0.2, gspo 3e-4 and
    4e-4 (its ratio is a mean over tokens: 0.2 would never bind), cispo open below and 0.2. clip_low of 1 or more leaves
    it open below (R1-Zero's paper: 10)."""
    dual_clip: float = 0.0
    """Bound c > 1 on the surrogate where the advantage is negative (arXiv 1912.09729); 0: off."""
    beta: float = 0.0
    """KL coefficient; 0: no reference model is loaded."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """KL estimator, joschu.net/blog/kl-approx.html."""
    kl_in: Literal["loss", "reward"] = "loss"
    kl_corrected: bool = False
    """Weight the KL term by pi / pi_old, gradient included, which makes it that of KL(pi || ref); the papers of GRPO
    and R1 do not (arXiv 2512.02556 eq. 7)."""
    reference_every: int = 0
    """Replace the reference by the policy every so many steps (400 in DeepSeek-R1); 0: never."""
    entropy_bonus: float = 0.0
    skip_zero_variance: bool = True
    """Leave groups of equal rewards out of the batch: their advantages are 0. Their prompts still count in the
    denominators, so the gradient is the same."""
    dynamic_sampling: bool = False
    """DAPO: refill the step with fresh prompts until it has enough groups of mixed accuracy."""
    max_refills: int = 10
    """Most extra rollouts of one step under dynamic sampling."""
    drop_truncated: bool = False
    """DAPO's overlong filtering: a completion cut off at the limit takes no part in the step, whatever it says."""
    importance_correction: Literal["none", "token", "sequence", "token_mask", "sequence_mask"] = "token"
    """Truncated importance sampling between engine and trainer; the masks drop what lies over the cap."""
    importance_cap: float = 2.0
    importance_floor: float = 0.0
    """Lower bound, held or masked like the cap; IcePop masks outside 0.5 and 5."""

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """`(clip_low, clip_high)`, the loss's own where they are not set."""
        low, high = {"gspo": (3e-4, 4e-4), "cispo": (math.inf, 0.2)}.get(self.loss, (0.2, 0.2))
        return (
            low if self.clip_low is None else self.clip_low,
            high if self.clip_high is None else self.clip_high,
        )

    def __post_init__(self) -> None:
        require_least("", self, 1, "group_size", "prompts_per_step", "minibatches", "epochs")
        require(
            self.group_size > 1 or not self.dynamic_sampling, "dynamic_sampling looks at groups: group_size above 1"
        )
        require(
            self.prompts_per_step * self.group_size % self.minibatches == 0,
            f"minibatches={self.minibatches} does not divide prompts_per_step * group_size = "
            f"{self.prompts_per_step * self.group_size}",
        )
        require_least("", self, 0, "beta", "reference_every", "max_refills", "importance_floor")
        cap, floor = self.importance_cap, self.importance_floor
        require(cap > floor, f"importance_cap must be above importance_floor, got {cap} and {floor}")
        for name in ("clip_low", "clip_high"):
            if getattr(self, name) is not None:
                require_least("", self, 0, name)
        require(self.dual_clip == 0 or self.dual_clip > 1, f"dual_clip must be 0 or above 1, got {self.dual_clip}")


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """Thresholds of the alarms a run prints; none of them changes the run."""

    kl_max: float = 0.5
    """KL to the reference, nats a token."""
    entropy_min_share: float = 0.05
    """Alarm when entropy falls below this share of its mean over the first steps."""
    perplexity_factor: float = 3.0
    """Alarm when the reference finds the policy's text so many times as unlikely, a token, as in the first steps."""
    length_factor: float = 3.0
    """Alarm when the mean length is so many times that of the first steps, or so many times shorter."""
    flat_share: float = 0.95
    """Share of groups with equal rewards."""
    truncated_share: float = 0.5
    truncated_rise: float = 0.2
    """Alarm when the share of truncated completions is so much above that of the first steps."""
    error_share: float = 0.05
    """Share of one verifier's verdicts that are `error`."""
    spike_factor: float = 5.0
    """Alarm when KL is so many times its mean over the last steps, and a tenth of kl_max at least."""
    mismatch_factor: float = 5.0
    """Alarm when engine and trainer differ so many times as much as in the first steps, and by 0.01 nats at least."""
    fall_share: float = 0.2
    """Alarm when a reward term of weight 0 is this share below its best while the reward is higher than it was then, or
    when both logprobs of DPO are this share below those of the first steps."""


@dataclass(frozen=True, kw_only=True)
class LengthSwitch:
    """From a step on, another completion limit (R1-Zero: 65,536 tokens from step 8,200)."""

    step: int
    max_tokens: int

    def __post_init__(self) -> None:
        require_least("length_switches", self, 1, "step", "max_tokens")


@dataclass(frozen=True, kw_only=True)
class RLConfig:
    """The sections of a run that samples to train; each stage has its own `algorithm`."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    template: str = "r1zero"
    """Prompt template: a name in prompts/, or a path to a file."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    length_switches: list[LengthSwitch] = field(default_factory=list)
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    algorithm: PolicyGradientConfig = field(default_factory=PolicyGradientConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        require(self.sampling.temperature > 0, "sampling.temperature must be above 0: greedy samples teach nothing")
