"""A pipeline: stages that each start from an earlier one's checkpoint, and what is measured of every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from r1zero.config.sections import DataConfig, EngineConfig, RewardConfig, SamplingConfig, require


@dataclass(frozen=True, kw_only=True)
class MeasureConfig:
    """Held-out problems on which every checkpoint of a pipeline is measured alike."""

    data: DataConfig = field(default_factory=DataConfig)
    template: str = "r1zero"
    """Prompt template: a name in prompts/, or a path to a file."""
    samples: int = 1
    """Completions a problem (k)."""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    """Every term, and every reward model, is a column: its mean score. Weights mean nothing here. Where a model is
    `stage:NAME`, the checkpoints are measured when all stages are done."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute type, as in `model`."""
    seed: int = 12345

    def __post_init__(self) -> None:
        require(bool(self.data.source), "a measure needs data.source")
        require(self.samples >= 1, f"samples must be 1 or more, got {self.samples}")
        require(self.samples == 1 or self.sampling.temperature > 0, "temperature 0 gives samples that are all the same")


@dataclass(frozen=True, kw_only=True)
class PipelineRunConfig:
    """Where a pipeline keeps its stages' runs."""

    name: str = ""
    """Folder under `root`; empty: the recipe's name."""
    root: str = "runs"
    seed: int = 0
    """Seed of every stage that names none."""
    threads: int = 0
    """CPU threads of the measures; 0: one a core."""


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """Stages one after another: `r1zero train RECIPE` with `stage: pipeline`."""

    stage: Literal["pipeline"] = "pipeline"
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Name -> the stage's settings, as in a recipe of its own; `recipe: NAME` there names one they are laid on.
    `stage:NAME` in them stands for the last checkpoint of another stage, `stage:NAME/FILE` for a file it wrote. They
    run in the order they stand in, each after those it refers to; null takes away one of a recipe that is extended. On
    the command line: --stages.NAME.section.key VALUE."""
    measures: dict[str, MeasureConfig] = field(default_factory=dict)
    """Name -> what every checkpoint that answers prompts is measured on. --measures.NAME.section.key VALUE."""
    run: PipelineRunConfig = field(default_factory=PipelineRunConfig)

    def __post_init__(self) -> None:
        require(len(self.stages) > 0, "a pipeline needs stages")
        for name in self.stages:
            require(
                name.replace("-", "").replace("_", "").isalnum(),
                f"stage {name!r}: a name becomes a folder and an option: letters, digits, - and _",
            )
            require(name != START, f"a stage cannot be called {START!r}: the model the pipeline begins with is")


START = "start"
"""What the model a pipeline begins with is called in its table."""
