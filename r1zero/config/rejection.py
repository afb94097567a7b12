"""Rejection sampling: what is sampled, what of it is kept, and in which form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from r1zero.config.offline import DemonstrationDataConfig
from r1zero.config.sections import (
    DataConfig,
    EngineConfig,
    ModelConfig,
    RewardConfig,
    SamplingConfig,
    require,
    require_least,
)


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """Which completions become demonstrations, in `sft.jsonl`."""

    require: list[str] | None = None
    """Reward terms whose verdict must be `correct`. None: the first; []: no verdict is asked, the reward decides."""
    min_reward: float | None = None
    """Least reward; None: any."""
    per_problem: int = 4
    """Keep the so many of highest reward of a problem, the earlier drawn among equals; 1: best of k; 0: all."""
    deduplicate: bool = True
    """Of a problem's texts that differ in spaces at most, keep one."""
    max_accuracy: float = 1.0
    """A problem solved in more than this share of its samples is left out: there is little to learn from it."""

    def __post_init__(self) -> None:
        require(self.per_problem >= 0, f"select.per_problem must be 0 (all) or more, got {self.per_problem}")
        require(0 < self.max_accuracy <= 1, f"select.max_accuracy must be in 0 .. 1, got {self.max_accuracy}")


@dataclass(frozen=True, kw_only=True)
class PairsConfig:
    """Which completions become preference pairs, in `pairs.jsonl`: right or wrong, the reward alone decides."""

    per_problem: int = 0
    """Most pairs of one problem, of the widest gap first, no completion in two of them; 0: no pairs are made."""
    min_gap: float = 0.0
    """Least difference in reward between chosen and rejected; it is above 0 always."""
    max_length_ratio: float = 0.0
    """Length control: the longer of the two has at most so many times the tokens of the other; 0: no limit."""
    balance_lengths: bool = False
    """Leave out pairs, drawn at random, until the chosen is the longer one as often as the shorter one."""

    def __post_init__(self) -> None:
        require(self.per_problem >= 0, f"pairs.per_problem must be 0 (none) or more, got {self.per_problem}")
        require_least("pairs", self, 0, "min_gap")
        require(
            self.max_length_ratio == 0 or self.max_length_ratio >= 1,
            f"pairs.max_length_ratio must be 0 (no limit) or 1 and more, got {self.max_length_ratio}",
        )


@dataclass(frozen=True, kw_only=True)
class SamplingRunConfig:
    """The folder of a run that trains nothing."""

    name: str = ""
    """Folder under `root`; empty: the recipe's name."""
    root: str = "runs"
    seed: int = 0
    threads: int = 0
    """CPU threads; 0: one a core."""

    def __post_init__(self) -> None:
        require_least("run", self, 0, "seed", "threads")


@dataclass(frozen=True, kw_only=True)
class RejectionSamplingConfig:
    """Sample k completions of each problem, keep some: `r1zero train RECIPE` with `stage: rejection_sampling`."""

    stage: Literal["rejection_sampling"] = "rejection_sampling"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    template: str = "r1zero"
    """Prompt template: a name in prompts/, or a path to a file. What is kept is the question without it."""
    samples: int = 16
    """Completions of one problem (k; Llama 3 takes 10 to 30)."""
    batch_problems: int = 64
    """Problems in one call of the engine: what a kill costs at most."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Verifiers and reward models that judge the samples."""
    select: SelectionConfig = field(default_factory=SelectionConfig)
    pairs: PairsConfig = field(default_factory=PairsConfig)
    extra: DemonstrationDataConfig = field(default_factory=DemonstrationDataConfig)
    """Rows put into `sft.jsonl` beside what was sampled (writing, chat); an empty source: none."""
    held_out_share: float = 0.0
    """Share of the problems, chosen by their text, whose rows say `split: test`, the others `split: train`: the next
    stage tells them apart by `filter: {split: [train]}`."""
    decontaminate: list[str] = field(default_factory=list)
    """Benchmarks (names or files) with which no problem may share ten words in a row: refused before the run."""
    data_dir: str = ""
    """Folder with local copies of those benchmarks; empty: the hub."""
    run: SamplingRunConfig = field(default_factory=SamplingRunConfig)

    def __post_init__(self) -> None:
        require_least("", self, 1, "samples", "batch_problems")
        require(self.samples == 1 or self.sampling.temperature > 0, "temperature 0 gives samples that are all the same")
        require(0 <= self.held_out_share < 1, f"held_out_share must be in 0 .. 1, got {self.held_out_share}")
        keys = [term.key for term in self.reward.terms]
        for name in self.select.require or ():
            require(name in keys, f"select.require: {name!r} is no reward term of {keys}")
