"""The stages over a fixed set of rows: SFT, preference optimisation, the reward model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from r1zero.config.sections import (
    EngineConfig,
    EpochRunConfig,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    RewardConfig,
    SamplingConfig,
    check_epochs,
    require,
    require_least,
)


@dataclass(frozen=True, kw_only=True)
class TextDataConfig:
    """Where the texts of a supervised stage come from."""

    source: str = ""
    """A .json/.jsonl(.gz)/.parquet file, a hub dataset id, `tiny:arithmetic`, or `package.module:function` that makes
    rows from split, size, seed and `options`."""
    config: str = ""
    """The hub dataset's configuration (subset) name."""
    split: str = "train"
    """Split of a hub dataset, or of a generated source."""
    filter: dict[str, list[Any]] = field(default_factory=dict)
    """Keep rows whose field has one of these values."""
    limit: int = 0
    """Keep the first so many rows after filter and shuffle; 0: all."""
    seed: int = 0
    """Seed of the shuffle and of a generated source."""
    size: int = 1000
    """How many rows a generated source makes."""
    options: dict[str, Any] = field(default_factory=dict)
    """Parameters of a function that makes rows."""
    prompt_field: str = "prompt"
    """Field that holds the prompt: a text, which `template` goes around, or a list of chat messages."""
    max_tokens: int = 2048
    """Limit of prompt and response together."""
    too_long: Literal["error", "skip"] = "error"
    """What to do with a row over the limit: refuse the run, or skip it (counted). It is never cut."""

    def __post_init__(self) -> None:
        require_least("", self, 0, "limit")
        require_least("", self, 1, "size", "max_tokens")


@dataclass(frozen=True, kw_only=True)
class DemonstrationDataConfig(TextDataConfig):
    """Rows of `messages`, or of `prompt` and `response`."""

    messages_field: str = "messages"
    """Field that holds a chat; where a row has it, every assistant's turn in it is learnt."""
    response_field: str = "response"


@dataclass(frozen=True, kw_only=True)
class PreferenceDataConfig(TextDataConfig):
    """Rows of `prompt`, `chosen` and `rejected`, of `prompt` and `responses` (best first), or of `prompt`, `response`
    and `label`."""

    chosen_field: str = "chosen"
    """Field of the better response: a text, or chat messages (the last is the response, where they repeat the
    prompt)."""
    rejected_field: str = "rejected"
    responses_field: str = "responses"
    """Field of a ranking: two or more texts, best first."""
    generated_responses: int = 2
    """Responses of each ranking that a generated source makes."""
    response_field: str = "response"
    label_field: str = "label"
    """Field of a thumb, true for up (KTO)."""
    margin_field: str = "margin"
    """Field that says how much better the chosen response is; may be missing."""
    swapped_share: float = 0.0
    """Swap this share of the pairs, chosen by `seed`: what noisy labels do to a run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            2 <= self.generated_responses <= 6, f"generated_responses must be in 2 .. 6, got {self.generated_responses}"
        )
        require(0 <= self.swapped_share <= 1, f"swapped_share must be in 0 .. 1, got {self.swapped_share}")


@dataclass(frozen=True, kw_only=True)
class SFTConfig:
    """Supervised fine-tuning on demonstrations: `r1zero train RECIPE` with `stage: sft`."""

    stage: Literal["sft"] = "sft"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DemonstrationDataConfig = field(default_factory=DemonstrationDataConfig)
    held_out: DemonstrationDataConfig = field(default_factory=DemonstrationDataConfig)
    """Rows whose loss is measured before, during and after; an empty source: none."""
    template: str = "chat"
    """Prompt template around a text prompt; chats take the tokenizer's own."""
    epochs: float = 3.0
    batch_size: int = 128
    """Rows of one optimizer step (128 in DeepSeek-R1's cold start)."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """How evaluation samples, with `eval`."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    """What evaluation scores samples by; nothing is trained on it."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=2e-5, schedule="cosine", min_lr=2e-6, warmup_steps=10)
    )
    eval: EvalConfig = field(default_factory=EvalConfig)
    """Problems that are answered before, during and after."""
    run: EpochRunConfig = field(default_factory=EpochRunConfig)

    def __post_init__(self) -> None:
        check_epochs(self.epochs, self.batch_size)
        require(not self.reward.models, "reward.models: verifiers alone judge in this stage; leave them out")


@dataclass(frozen=True, kw_only=True)
class DPOConfig:
    """Preference optimisation without a reward model: DPO and its relatives, `stage: dpo`."""

    stage: Literal["dpo"] = "dpo"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: PreferenceDataConfig = field(default_factory=PreferenceDataConfig)
    held_out: PreferenceDataConfig = field(default_factory=PreferenceDataConfig)
    """Pairs on which loss and accuracy are measured before, during and after; an empty source: none."""
    template: str = "chat"
    """Prompt template around a text prompt; chats take the tokenizer's own."""
    loss: Literal["dpo", "ipo", "kto", "simpo", "orpo"] = "dpo"
    """dpo (cDPO with label_smoothing), ipo, kto (thumbs instead of pairs), simpo and orpo (no reference)."""
    beta: float | None = None
    """Strength of the hold on the reference; ipo's tau, orpo's lambda. None: the paper's (0.1; simpo 2)."""
    label_smoothing: float = 0.0
    """cDPO: the share of labels thought to be swapped (dpo and simpo)."""
    length_normalised: bool = False
    """Mean instead of summed log-probabilities (dpo, ipo and kto): a longer response then has no larger reward."""
    gamma: float = 1.0
    """simpo's target margin."""
    nll_weight: float = 0.0
    """Weight of an SFT term on the chosen response (0.2 in Llama 3); orpo's own has weight 1."""
    desirable_weight: float = 1.0
    """kto's lambda_D; the paper keeps lambda_D n_D / (lambda_U n_U) in 1 .. 4/3."""
    undesirable_weight: float = 1.0
    epochs: float = 1.0
    """More than one over-optimises (Rafailov et al. 2024)."""
    batch_size: int = 64
    """Pairs (kto: responses) of one optimizer step."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """How evaluation samples, with `eval`."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    """The judge of evaluation's win rate against the reference; nothing is trained on it."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=5e-7, schedule="linear", warmup_steps=10)
    )
    eval: EvalConfig = field(default_factory=EvalConfig)
    """Problems answered by the reference and by the policy, and judged by `reward`."""
    run: EpochRunConfig = field(default_factory=EpochRunConfig)

    @property
    def strength(self) -> float:
        """`beta`, the paper's where it is not set."""
        return {"simpo": 2.0}.get(self.loss, 0.1) if self.beta is None else self.beta

    @property
    def uses_reference(self) -> bool:
        return self.loss in ("dpo", "ipo", "kto")

    def __post_init__(self) -> None:
        check_epochs(self.epochs, self.batch_size)
        require(not self.reward.models, "reward.models: verifiers alone judge in this stage; leave them out")
        require(self.strength > 0, f"beta must be above 0, got {self.beta}")
        require_least("", self, 0, "gamma", "nll_weight", "desirable_weight", "undesirable_weight")
        require(0 <= self.label_smoothing < 0.5, f"label_smoothing must be in 0 .. 0.5, got {self.label_smoothing}")
        require(
            self.label_smoothing == 0 or self.loss in ("dpo", "simpo"),
            f"label_smoothing is for dpo and simpo, not {self.loss}",
        )
        require(
            not self.length_normalised or self.uses_reference, f"{self.loss} is length-normalised always: leave it out"
        )
        require(self.nll_weight == 0 or self.loss != "kto", "nll_weight is for pairs, not for kto")


@dataclass(frozen=True, kw_only=True)
class RewardModelConfig:
    """A Bradley-Terry reward model on pairs and rankings: `stage: reward_model`."""

    stage: Literal["reward_model"] = "reward_model"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: PreferenceDataConfig = field(default_factory=PreferenceDataConfig)
    held_out: PreferenceDataConfig = field(default_factory=PreferenceDataConfig)
    """Pairs on which accuracy and calibration are measured before, during and after; an empty source: none."""
    template: str = "chat"
    """Prompt template around a text prompt; chats take the tokenizer's own."""
    margin: float = 0.0
    """Margin of every pair that has none of its own."""
    centre: float = 0.01
    """Weight of (r_w + r_l)^2, which holds the scores around 0 (arXiv 2312.09244)."""
    epochs: float = 1.0
    """More than one overfits (InstructGPT)."""
    batch_size: int = 64
    """Prompts of one optimizer step, each with all of its responses."""
    eval_every: int = 0
    """Steps between evaluations; 0: only before and after."""
    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=6e-6, schedule="cosine", warmup_steps=10)
    )
    run: EpochRunConfig = field(default_factory=EpochRunConfig)

    def __post_init__(self) -> None:
        check_epochs(self.epochs, self.batch_size)
        require_least("", self, 0, "centre", "eval_every")
