"""The sections that stages share: model, data, sampling, engine, reward, optimizer, evaluation, run folder."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from r1zero.config.checks import require as require
from r1zero.config.checks import require_least as require_least
from r1zero.config.data import DataConfig as DataConfig


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
    packed_attention: Literal["by_prompt", "joined", "flex"] = "by_prompt"
    """How the policy attends within a packed micro-batch. by_prompt: a prompt and its completions at a time. joined:
    prompts of like size together where sequences are short and the device is a CPU; faster on small models, the same
    but for rounding. flex: one kernel on a GPU (torch's flex attention; not tried on one)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    lora_rank: int = 0
    """0: train all weights; else the rank of LoRA adapters on all linear layers, merged for the engine at each sync."""
    lora_alpha: int = 32
    """LoRA scale numerator."""

    def __post_init__(self) -> None:
        require_least("model", self, 0, "lora_rank")
        require_least("model", self, 1, "lora_alpha")


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How completions are sampled, for training; the trainer's logprobs use the same temperature."""

    max_tokens: int = 1024
    """Most tokens of one completion."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        require_least("sampling", self, 1, "max_tokens")
        require_least("sampling", self, 0, "temperature", "top_k")
        require(0 < self.top_p <= 1, f"sampling.top_p must be above 0, up to 1, got {self.top_p}")
        require(0 <= self.min_p <= 1, f"sampling.min_p must be in 0 .. 1, got {self.min_p}")


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
    offload: bool | None = None
    """Keep the reference and the optimizer's state in the host's memory while they are idle (stages grpo and ppo).
    None: where vLLM samples on the trainer's GPU. Without a GPU it changes nothing."""
    max_context: int = 0
    """Longest prompt plus completion in tokens; 0: max_prompt_tokens + max_tokens."""
    max_sequences: int = 256
    """Sequences in flight at once."""
    tensor_parallel: int = 1
    """GPUs one engine is spread over."""
    compile: bool | None = None
    """vLLM's compilation: faster steps, slower start. None: on with a GPU, off on a CPU."""
    url: str = ""
    """vllm-server: its address, such as http://localhost:8000; several, parted by commas, are a fleet."""
    sync_dir: str = ""
    """vllm-server: folder both sides see, through which weights go."""
    mismatch_warn: float = 0.05
    """Mean |logprob difference| between engine and trainer past which the run warns, naming the likely cause.
    In float32 it is under 1e-5; bfloat16 alone gives 0.01 to 0.04 on small models (0.04 on SmolLM2-135M)."""

    def __post_init__(self) -> None:
        require_least("engine", self, 0, "memory_gib", "max_context", "mismatch_warn")
        require_least("engine", self, 1, "max_sequences", "tensor_parallel")
        share = self.gpu_memory_utilization
        require(0 < share <= 1, f"engine.gpu_memory_utilization must be above 0, up to 1, got {share}")


@dataclass(frozen=True, kw_only=True)
class RewardTerm:
    """One verifier's part of the reward."""

    verifier: str
    """A registered name or `package.module:function`."""
    weight: float = 1.0
    """Its score is multiplied by this. 0: it is measured only, and drops or stops nothing."""
    name: str = ""
    """Its name in the metrics; empty: the verifier's."""
    options: dict[str, Any] = field(default_factory=dict)
    """The verifier's options."""
    gate: str = ""
    """Name of another term that must be correct for this one to count."""

    @property
    def key(self) -> str:
        return self.name or self.verifier


@dataclass(frozen=True, kw_only=True)
class RewardModelTerm:
    """A trained reward model's part of the reward: its score of the tokens that were sampled, at the last one (the EOS
    where the completion has ended)."""

    path: str
    """A run folder of stage `reward_model` (its last checkpoint is taken), or a checkpoint folder."""
    weight: float = 1.0
    """Its score is multiplied by this. 0: it is measured only."""
    name: str = "reward_model"
    """Its name in the metrics."""
    normalise: bool = True
    """(score - mean) / std, by the figures that the checkpoint keeps of its held-out responses, so that beta and
    penalties mean the same for every model; one that keeps none is taken as it is."""
    truncated: Literal["penalty", "score", "drop"] = "penalty"
    """What a completion without its end earns: `truncated_score` in place of the score (the EOS trick of arXiv
    2403.17031: the model was trained on whole responses only); what the model says of it; or no part in the step."""
    truncated_score: float = -1.0
    """In the units of the score, before the weight."""


OutcomePolicy = Literal["score", "drop", "retry", "stop"]


@dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """How verdicts and reward models' scores become one number: their weighted sum. The first term is the accuracy
    term: pass@1 and dynamic sampling read it."""

    terms: list[RewardTerm] = field(
        default_factory=lambda: [RewardTerm(verifier="math"), RewardTerm(verifier="answer_tags")]
    )
    models: list[RewardModelTerm] = field(default_factory=list)
    """Trained reward models, in the stages that sample to train (grpo, ppo)."""
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
        require(len(self.terms) > 0, "reward.terms needs at least one term (weight 0: it is measured only)")
        keys = [term.key for term in self.terms]
        names = [*keys, *(model.name for model in self.models)]
        require(len(set(names)) == len(names), f"reward: two parts are called the same ({names}): give them names")
        for term in self.terms:
            require(not term.gate or term.gate in keys, f"reward.terms: gate {term.gate!r} is no term of {keys}")
        require_least("reward", self, 0, "workers", "max_error_share")
        for name in ("deadline_seconds", "memory_gib"):
            require(getattr(self, name) > 0, f"reward.{name} must be above 0, got {getattr(self, name)}")
        require(self.on_error != "score", "reward.on_error: an error is ours and has no score: drop, retry or stop")
        require(self.on_timeout != "retry", "reward.on_timeout: retry would time out again: score, drop or stop")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW, its schedule and its micro-batches."""

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; 0: never."""
    max_skipped: int = 10
    """A step whose loss or gradient is not finite is skipped; after so many in a row the run ends, and the last
    checkpoint from before them stays. 0: it goes on."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After warm-up: constant, or down to `min_lr` at the last step."""
    warmup_steps: int = 0
    min_lr: float = 0.0
    micro_batch_tokens: int = 16384
    """Tokens, padding included, in one forward and backward pass. Changes memory and speed, never the gradient."""

    def __post_init__(self) -> None:
        names = ("lr", "eps", "weight_decay", "max_grad_norm", "max_skipped", "warmup_steps", "min_lr")
        require_least("optimizer", self, 0, *names)
        require_least("optimizer", self, 1, "micro_batch_tokens")
        require(all(0 <= beta < 1 for beta in self.betas), f"optimizer.betas must be in 0 .. 1, got {self.betas}")


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

    def __post_init__(self) -> None:
        require_least("eval", self, 0, "every", "temperature", "max_tokens", "seed")
        require_least("eval", self, 1, "samples")
        require(0 < self.top_p <= 1, f"eval.top_p must be above 0, up to 1, got {self.top_p}")


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
        require_least("run", self, 1, "steps")
        self._check_rest()

    def _check_rest(self) -> None:
        require_least("run", self, 1, "checkpoint_every", "keep_checkpoints")
        require_least("run", self, 0, "seed", "threads")


@dataclass(frozen=True, kw_only=True)
class EpochRunConfig(RunConfig):
    """The folder and length of a run over a fixed set of rows."""

    steps: int = 0
    """Optimizer steps; 0: as `epochs` says."""
    save_rollouts: bool = False
    """Keep every sampled evaluation (`eval/`) as well as its figures; training has no rollouts."""

    def __post_init__(self) -> None:
        require_least("run", self, 0, "steps")
        self._check_rest()


def check_epochs(epochs: float, batch_size: int) -> None:
    require(epochs > 0, f"epochs must be above 0, got {epochs}")
    require(batch_size >= 1, f"batch_size must be 1 or more, got {batch_size}")


def cache_dir() -> Path:
    """Where made models are kept: $R1ZERO_CACHE, else ~/.cache/r1zero."""
    return Path(os.environ.get("R1ZERO_CACHE") or "~/.cache/r1zero").expanduser()
