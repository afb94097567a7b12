"""Every setting of every stage, in dataclasses checked at construction. Importable without torch or vLLM.

A recipe (YAML) names what differs from the defaults here; a default is the value we would use ourselves.
"""

from __future__ import annotations

from r1zero.config.grpo import AlgorithmConfig, GRPOConfig, HealthConfig, LengthSwitch
from r1zero.config.lab import LabConfig, LabEffect, LabMeasure, LabPanel, LabVariant
from r1zero.config.offline import (
    DemonstrationDataConfig,
    DPOConfig,
    PreferenceDataConfig,
    RewardModelConfig,
    SFTConfig,
    TextDataConfig,
)
from r1zero.config.sections import (
    DataConfig,
    EngineConfig,
    EpochRunConfig,
    EvalConfig,
    ModelConfig,
    OptimizerConfig,
    OutcomePolicy,
    RewardConfig,
    RewardModelTerm,
    RewardTerm,
    RunConfig,
    SamplingConfig,
    cache_dir,
)

PolicyConfig = GRPOConfig | SFTConfig | DPOConfig
"""The stages whose checkpoints answer prompts."""
StageConfig = PolicyConfig | RewardModelConfig | LabConfig

__all__ = [
    "AlgorithmConfig",
    "DPOConfig",
    "DataConfig",
    "DemonstrationDataConfig",
    "EngineConfig",
    "EpochRunConfig",
    "EvalConfig",
    "GRPOConfig",
    "HealthConfig",
    "LabConfig",
    "LabEffect",
    "LabMeasure",
    "LabPanel",
    "LabVariant",
    "LengthSwitch",
    "ModelConfig",
    "OptimizerConfig",
    "OutcomePolicy",
    "PolicyConfig",
    "PreferenceDataConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RewardModelTerm",
    "RewardTerm",
    "RunConfig",
    "SFTConfig",
    "SamplingConfig",
    "StageConfig",
    "TextDataConfig",
    "cache_dir",
]
