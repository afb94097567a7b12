"""What a stage needs from outside, checked before anything is written: model, template, problems that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero import models, prompts
from r1zero.config import DataConfig, DPOConfig, ModelConfig, RewardModelConfig, RunConfig, SFTConfig
from r1zero.data import datasets
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.models.policy import Row, add_lora, compute_dtype, load_model, load_tokenizer
from r1zero.prompts import Template
from r1zero.rollout import engine_name
from r1zero.runs.folder import RunFolder
from r1zero.runs.tracking import make_accelerator
from r1zero.verifiers import VerifierSpec, resolve


@dataclass(frozen=True, kw_only=True)
class Base:
    """The model a run starts from, and its words."""

    path: Path
    tokenizer: PreTrainedTokenizerBase
    template: Template


def load_base(model_path: str, template: str) -> Base:
    """Check and find model, tokenizer and template. Writes nothing into the run's folder."""
    loaded = prompts.load(template)
    path = models.resolve(model_path)
    return Base(path=path, tokenizer=load_tokenizer(path), template=loaded)


def base_manifest(config: SFTConfig | DPOConfig | RewardModelConfig, base: Base) -> dict[str, Any]:
    """What the manifest says of model and template."""
    return {
        "template": {"name": base.template.name, "fingerprint": base.template.fingerprint},
        "model": config.model.path,
    }


def within_limit(
    problems: Sequence[Problem], data: DataConfig, template: Template, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[Problem], int]:
    """The problems whose prompt fits, and how many do not; raises UserError where the config says to refuse."""
    kept, longest, over = [], 0, []
    for problem in problems:
        size = len(template.encode(problem.prompt, tokenizer))
        if size <= data.max_prompt_tokens:
            kept.append(problem)
        else:
            over.append(problem.id)
            longest = max(longest, size)
    if over and data.too_long == "error":
        raise UserError(
            f"{len(over)} of {len(problems)} prompts of {data.source} are over max_prompt_tokens="
            f"{data.max_prompt_tokens} (first: {over[0]!r}; longest: {longest} tokens): raise the limit, or set "
            "too_long to skip"
        )
    if problems and not kept:
        raise UserError(f"every prompt of {data.source} is over max_prompt_tokens={data.max_prompt_tokens}")
    return kept, len(over)


def longest_prompt(problems: Sequence[Problem], base: Base) -> int:
    """Tokens of the longest prompt."""
    return max(len(base.template.encode(p.prompt, base.tokenizer)) for p in problems)


def load_questions(config: SFTConfig | DPOConfig, base: Base) -> list[Problem]:
    """The held-out problems of `config.eval`, checked with their verifiers; none where there is no source."""
    if not config.eval.data.source:
        return []
    for term in config.reward.terms:
        resolve(VerifierSpec(name=term.verifier, options=term.options))
    engine_name(config.engine)
    problems = datasets.load_problems(config.eval.data)
    return within_limit(problems, config.eval.data, base.template, base.tokenizer)[0]


def check_questions(questions: Sequence[Problem], base: Base, rows: Sequence[Row]) -> None:
    """Raises UserError where a held-out problem's prompt is among the training rows."""
    seen = {row.prompt_ids for row in rows}
    shared = [p for p in questions if tuple(base.template.encode(p.prompt, base.tokenizer)) in seen]
    if shared:
        raise UserError(
            f"{len(shared)} held-out problems are also training prompts (first: {shared[0].prompt[:80]!r}): "
            "evaluation sets are never trained on; choose another eval.data"
        )


def accelerator_of(run: RunConfig, model: ModelConfig, folder: RunFolder) -> Accelerator:
    """The run's accelerator in the model's compute type."""
    return make_accelerator(run, folder, "bf16" if compute_dtype(model) == torch.bfloat16 else "no")


def require_one_process(accelerator: Accelerator, stage: str) -> None:
    """Raises UserError for more than one process."""
    if accelerator.num_processes > 1:
        raise UserError(f"stage {stage} runs on one process, and {accelerator.num_processes} were started")


def load_policy(config: SFTConfig | DPOConfig, base: Base, checkpoint: Path | None) -> PreTrainedModel:
    """The model to train: the checkpoint's weights, or the base's; with LoRA the base and fresh adapters."""
    if not config.model.lora_rank:
        return load_model(checkpoint or base.path, config.model)
    model = load_model(base.path, config.model)
    torch.manual_seed(config.run.seed)  # the adapters' random halves
    add_lora(model, config.model)
    return model
