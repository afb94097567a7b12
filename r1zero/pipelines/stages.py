"""Every stage by its name: a config in, its last checkpoint out, and the lineage written down."""

from __future__ import annotations

import importlib
from pathlib import Path

from r1zero.config import LabConfig, PipelineConfig, StageConfig
from r1zero.pipelines import lineage

STAGES = {
    "grpo": "r1zero.training.grpo:train_grpo",
    "ppo": "r1zero.training.ppo:train_ppo",
    "sft": "r1zero.training.sft:train_sft",
    "dpo": "r1zero.training.dpo:train_dpo",
    "reward_model": "r1zero.training.reward_model:train_reward_model",
    "rejection_sampling": "r1zero.training.rejection:train_rejection_sampling",
    "lab": "r1zero.pipelines.lab:train_lab",
    "pipeline": "r1zero.pipelines.pipeline:train_pipeline",
}
"""Stage -> the function `(config, *, resume) -> last checkpoint` that runs it, imported when it is."""


def run(config: StageConfig, *, resume: bool) -> Path:
    """Run the stage a config is of; returns its last checkpoint. `resume` goes on from the latest one."""
    module, _, function = STAGES[config.stage].partition(":")
    checkpoint: Path = getattr(importlib.import_module(module), function)(config, resume=resume)
    if not isinstance(config, LabConfig | PipelineConfig):
        lineage.record(config, checkpoint)
    return checkpoint
