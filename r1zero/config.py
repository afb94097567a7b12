"""Every setting of every stage, in dataclasses checked at construction. Importable without torch or vLLM.

A recipe (YAML) names what differs from the defaults here; a default is the value we would use ourselves.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The policy's starting point."""

    path: str = ""
    """A model folder, a hub id, or a model this project makes: `tiny:arithmetic`, `smollm2:135m-instruct`."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute type of the forward and backward passes; weights and optimizer are float32 always. auto: bfloat16 where
    the device multiplies it fast (a GPU, a CPU with AVX512-BF16 or AMX), else float32."""
    attention: Literal["auto", "sdpa", "flash_attention_2", "eager"] = "auto"
    """Attention kernel of the trainer. auto: flash_attention_2 on a GPU where it is installed, else sdpa."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    lora_rank: int = 0
    """0: train all weights; else the rank of LoRA adapters on all linear layers, merged for the engine at each sync."""
    lora_alpha: int = 32
    """LoRA scale numerator."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where problems come from."""

    source: str = ""
    """A .json/.jsonl(.gz)/.parquet file, a hub dataset id, `reasoning_gym:TASK`, or `tiny:arithmetic`."""
    config: str = ""
    """The hub dataset's configuration (subset) name."""
    split: str = "train"
    """Split of a hub dataset, or of a generated source."""
    prompt_field: str = "problem"
    """Field that holds the question."""
    answer_field: str = "answer"
    """Field that holds the gold answer."""
    filter: dict[str, list[Any]] = field(default_factory=dict)
    """Keep rows whose field has one of these values, such as {level: [3, 4, 5]}."""
    limit: int = 0
    """Keep the first so many rows after filter and shuffle; 0: all."""
    seed: int = 0
    """Seed of the shuffle and of a generated source."""
    size: int = 1000
    """How many problems a generated source makes."""
    options: dict[str, Any] = field(default_factory=dict)
    """Parameters of a generated source, such as reasoning-gym's {min_terms: 2}."""
    max_prompt_tokens: int = 1024
    """Limit of one prompt with its template."""
    too_long: Literal["error", "skip"] = "error"
    """What to do with a prompt over the limit: refuse the run, or skip it (counted). It is never cut."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How completions are sampled, for training; the trainer's logprobs use the same temperature."""

    max_tokens: int = 1024
    """Most tokens of one completion."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What generates completions."""

    name: Literal["auto", "vllm", "vllm-server", "transformers"] = "auto"
    """auto: vllm where it is installed, else transformers."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: the model's compute type."""
    memory_gib: float = 0.0
    """vLLM's KV cache on a CPU, in GiB; 0: sized from the run's own longest batch."""
    gpu_memory_utilization: float = 0.4
    """Share of a GPU's memory for vLLM (weights and KV cache); the trainer has the rest."""
    sleep: bool = True
    """Free vLLM's GPU memory while training."""
    max_context: int = 0
    """Longest prompt plus completion in tokens; 0: max_prompt_tokens + max_tokens."""
    max_sequences: int = 256
    """Sequences in flight at once."""
    tensor_parallel: int = 1
    """GPUs one engine is spread over."""
    compile: bool | None = None
    """vLLM's compilation: faster steps, slower start. None: on with a GPU, off on a CPU."""
    url: str = ""
    """vllm-server: its address, such as http://localhost:8000."""
    sync_dir: str = ""
    """vllm-server: folder both sides see, through which weights go."""
    mismatch_warn: float = 0.05
    """Mean |logprob difference| between engine and trainer past which the run warns, naming the likely cause.
    In float32 it is under 1e-5; bfloat16 alone gives 0.01 to 0.04 on small models (0.04 on SmolLM2-135M)."""


@dataclass(frozen=True, kw_only=True)
class RewardTerm:
    """One verifier's part of the reward."""

    verifier: str
    """A registered name or `package.module:function`."""
    weight: float = 1.0
    """Its score is multiplied by this."""
    name: str = ""
    """Its name in the metrics; empty: the verifier's."""
    options: dict[str, Any] = field(default_factory=dict)
    """The verifier's options."""
    gate: str = ""
    """Name of another term that must be correct for this one to count."""

    @property
    def key(self) -> str:
        return self.name or self.verifier


OutcomePolicy = Literal["score", "drop", "retry", "stop"]


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """How verdicts become one number. The first term is the accuracy term: pass@1 and dynamic sampling read it."""

    terms: list[RewardTerm] = field(
        default_factory=lambda: [RewardTerm(verifier="math"), RewardTerm(verifier="answer_tags")]
    )
    on_unparseable: OutcomePolicy = "score"
    """score: its score (0); drop: the completion takes no part in the step; stop: end the run."""
    on_truncated: OutcomePolicy = "score"
    """Cut off before there was an answer; see also algorithm.drop_truncated."""
    on_timeout: OutcomePolicy = "drop"
    """A verifier over its deadline says nothing of the answer."""
    on_error: OutcomePolicy = "retry"
    """Ours, never the model's: tried once more, then dropped. It is never scored."""
    workers: int = 0
    """Verifier processes; 0: one a core."""
    deadline_seconds: float = 10.0
    """A verification past this is killed."""
    memory_gib: float = 2.0
    """Address space of one verifier process."""
    max_error_share: float = 0.5
    """A step in which more than this share of verdicts are `error` ends the run: the verifier is broken."""

    def __post_init__(self) -> None:
        _require(len(self.terms) > 0, "reward.terms needs at least one term")
        keys = [term.key for term in self.terms]
        _require(len(set(keys)) == len(keys), f"reward.terms: two terms are called the same ({keys}): give them names")
        for term in self.terms:
            _require(not term.gate or term.gate in keys, f"reward.terms: gate {term.gate!r} is no term of {keys}")
        _require(self.on_error != "score", "reward.on_error: an error is ours and has no score: drop, retry or stop")
        _require(self.on_timeout != "retry", "reward.on_timeout: retry would time out again: score, drop or stop")


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """The policy-gradient objective. The defaults are GRPO as in arXiv 2402.03300 with the field's later repairs named
    at each field; recipes set them apart."""

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
    advantage: Literal["group", "rloo", "group_baseline", "batch_baseline", "reinforce_pp"] = "group"
    """group: (r - mean) / std of the group; rloo: leave-one-out mean; *_baseline: mean of the group or batch alone."""
    std: Literal["group", "batch", "none"] = "group"
    """What the advantage is divided by; none is Dr. GRPO."""
    std_eps: float = 1e-6
    """Added to the std (ddof 0)."""
    aggregation: Literal["sequence", "token", "constant"] = "sequence"
    """sequence: mean over a completion's tokens, then over completions (the paper); token: mean over all tokens of the
    step (DAPO); constant: sum over tokens / (completions * max_tokens) (Dr. GRPO)."""
    clip_low: float | None = None
    clip_high: float | None = None
    """Ratio kept within [1 - clip_low, 1 + clip_high]. None: the loss's own paper's: clip 0.2 and 0.2, gspo 3e-4 and
    4e-4 (its ratio is a mean over tokens: 0.2 would never bind), cispo open below and 0.2."""
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
        _require(self.group_size >= 2, f"group_size must be 2 or more, got {self.group_size}")
        _require(self.prompts_per_step >= 1, f"prompts_per_step must be 1 or more, got {self.prompts_per_step}")
        _require(self.minibatches >= 1 and self.epochs >= 1, "minibatches and epochs must be 1 or more")
        _require(
            self.prompts_per_step * self.group_size % self.minibatches == 0,
            f"minibatches={self.minibatches} does not divide prompts_per_step * group_size = "
            f"{self.prompts_per_step * self.group_size}",
        )
        _require(self.beta >= 0, f"beta must be 0 or more, got {self.beta}")
        _require(self.dual_clip == 0 or self.dual_clip > 1, f"dual_clip must be 0 or above 1, got {self.dual_clip}")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW, its schedule and its micro-batches."""

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; 0: never."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After warm-up: constant, or down to `min_lr` at the last step."""
    warmup_steps: int = 0
    min_lr: float = 0.0
    micro_batch_tokens: int = 16384
    """Tokens, padding included, in one forward and backward pass. Changes memory and speed, never the gradient."""


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """Scoring a held-out set during and around training, with the harness `r1zero eval` uses."""

    data: DataConfig = field(default_factory=DataConfig)
    """Held-out problems; an empty source: no evaluation."""
    every: int = 0
    """Steps between evaluations; 0: only before and after."""
    samples: int = 1
    """Completions a problem (k)."""
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 0
    """0: the training limit."""
    seed: int = 12345
    decontaminate: list[str] = field(default_factory=list)
    """Benchmarks (names or files) with which no training problem may share ten words in a row: refused before the run,
    see `r1zero eval decontaminate` for the hits."""
    data_dir: str = ""
    """Folder with local copies of those benchmarks; empty: the hub."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run's folder and length."""

    name: str = ""
    """Folder under `root`; empty: the recipe's name."""
    root: str = "runs"
    steps: int = 100
    """Rollout-and-train steps."""
    seed: int = 0
    checkpoint_every: int = 50
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: int = 2
    """How many of the latest to keep, besides the best."""
    save_rollouts: bool = True
    """Keep every prompt, completion, verdict and advantage."""
    trackers: list[str] = field(default_factory=lambda: ["tensorboard"])
    """Any that accelerate knows: tensorboard, wandb, mlflow, …; metrics.jsonl is always written."""
    threads: int = 0
    """CPU threads of the trainer; 0: one a core."""

    def __post_init__(self) -> None:
        _require(self.steps >= 1, f"run.steps must be 1 or more, got {self.steps}")
        _require(self.checkpoint_every >= 1, "run.checkpoint_every must be 1 or more")


@dataclass(frozen=True, kw_only=True)
class HealthConfig:
    """Thresholds of the alarms a run prints; none of them changes the run."""

    kl_max: float = 0.5
    """KL to the reference, nats a token."""
    entropy_min_share: float = 0.05
    """Alarm when entropy falls below this share of its mean over the first steps."""
    length_factor: float = 3.0
    """Alarm when the mean length is so many times that of the first steps, or so many times shorter."""
    flat_share: float = 0.95
    """Share of groups with equal rewards."""
    truncated_share: float = 0.5
    error_share: float = 0.05
    """Share of one verifier's verdicts that are `error`."""


@dataclass(frozen=True, kw_only=True)
class LengthSwitch:
    """From a step on, another completion limit (R1-Zero: 65,536 tokens from step 8,200)."""

    step: int
    max_tokens: int


@dataclass(frozen=True, kw_only=True)
class GRPOConfig:
    """A GRPO run and its family: `r1zero train RECIPE`."""

    stage: Literal["grpo"] = "grpo"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    template: str = "r1zero"
    """Prompt template: a name in prompts/, or a path to a file."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    length_switches: list[LengthSwitch] = field(default_factory=list)
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    run: RunConfig = field(default_factory=RunConfig)


def cache_dir() -> Path:
    """Where made models are kept: $R1ZERO_CACHE, else ~/.cache/r1zero."""
    return Path(os.environ.get("R1ZERO_CACHE") or "~/.cache/r1zero").expanduser()


# -- the stages of general helpfulness -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class TextDataConfig:
    """Where the texts of a supervised stage come from."""

    source: str = ""
    """A .json/.jsonl(.gz)/.parquet file, a hub dataset id, or `tiny:arithmetic`."""
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
    prompt_field: str = "prompt"
    """Field that holds the prompt: a text, which `template` goes around, or a list of chat messages."""
    max_tokens: int = 2048
    """Limit of prompt and response together."""
    too_long: Literal["error", "skip"] = "error"
    """What to do with a row over the limit: refuse the run, or skip it (counted). It is never cut."""


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
        _require(
            2 <= self.generated_responses <= 6, f"generated_responses must be in 2 .. 6, got {self.generated_responses}"
        )
        _require(0 <= self.swapped_share <= 1, f"swapped_share must be in 0 .. 1, got {self.swapped_share}")


@dataclass(frozen=True, kw_only=True)
class EpochRunConfig(RunConfig):
    """The folder and length of a run over a fixed set of rows."""

    steps: int = 0
    """Optimizer steps; 0: as `epochs` says."""
    save_rollouts: bool = False
    """Keep every sampled evaluation (`eval/`) as well as its figures; training has no rollouts."""

    def __post_init__(self) -> None:
        _require(self.steps >= 0, f"run.steps must be 0 or more, got {self.steps}")
        _require(self.checkpoint_every >= 1, "run.checkpoint_every must be 1 or more")


def _check_epochs(epochs: float, batch_size: int) -> None:
    _require(epochs > 0, f"epochs must be above 0, got {epochs}")
    _require(batch_size >= 1, f"batch_size must be 1 or more, got {batch_size}")


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
        _check_epochs(self.epochs, self.batch_size)


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
        _check_epochs(self.epochs, self.batch_size)
        _require(self.strength > 0, f"beta must be above 0, got {self.beta}")
        _require(0 <= self.label_smoothing < 0.5, f"label_smoothing must be in 0 .. 0.5, got {self.label_smoothing}")
        _require(
            self.label_smoothing == 0 or self.loss in ("dpo", "simpo"),
            f"label_smoothing is for dpo and simpo, not {self.loss}",
        )
        _require(
            not self.length_normalised or self.uses_reference, f"{self.loss} is length-normalised always: leave it out"
        )
        _require(self.nll_weight == 0 or self.loss != "kto", "nll_weight is for pairs, not for kto")


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
        _check_epochs(self.epochs, self.batch_size)


PolicyConfig = GRPOConfig | SFTConfig | DPOConfig
"""The stages whose checkpoints answer prompts."""
StageConfig = PolicyConfig | RewardModelConfig
