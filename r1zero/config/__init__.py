"""Every setting of every stage, in dataclasses checked at construction. Importable without torch or vLLM.

A recipe (YAML) names what differs from the defaults here; a default is the value we would use ourselves.
"""

from __future__ import annotations

from r1zero.config.data import DataConfig, MixedSource
from r1zero.config.grpo import AlgorithmConfig, GRPOConfig
from r1zero.config.lab import LabConfig, LabEffect, LabMeasure, LabPanel, LabVariant
from r1zero.config.offline import (
    DemonstrationDataConfig,
    DPOConfig,
    PreferenceDataConfig,
    RewardModelConfig,
    SFTConfig,
    TextDataConfig,
)
from r1zero.config.pipeline import MeasureConfig, PipelineConfig, PipelineRunConfig
from r1zero.config.ppo import PPOAlgorithmConfig, PPOConfig, ValueConfig
from r1zero.config.rejection import PairsConfig, RejectionSamplingConfig, SamplingRunConfig, SelectionConfig
from r1zero.config.rl import HealthConfig, LengthSwitch, PolicyGradientConfig, RLConfig
from r1zero.config.sections import (
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

PolicyConfig = GRPOConfig | PPOConfig | SFTConfig | DPOConfig
"""The stages whose checkpoints answer prompts."""
StageConfig = PolicyConfig | RewardModelConfig | RejectionSamplingConfig | LabConfig | PipelineConfig

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
    "MeasureConfig",
    "MixedSource",
    "ModelConfig",
    "OptimizerConfig",
    "OutcomePolicy",
    "PPOAlgorithmConfig",
    "PPOConfig",
    "PairsConfig",
    "PipelineConfig",
    "PipelineRunConfig",
    "PolicyConfig",
    "PolicyGradientConfig",
    "PreferenceDataConfig",
    "RLConfig",
    "RejectionSamplingConfig",
    "RewardConfig",
    "RewardModelConfig",
    "RewardModelTerm",
    "RewardTerm",
    "RunConfig",
    "SFTConfig",
    "SamplingConfig",
    "SamplingRunConfig",
    "SelectionConfig",
    "StageConfig",
    "TextDataConfig",
    "ValueConfig",
    "cache_dir",
]
