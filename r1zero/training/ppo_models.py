"""The models of a PPO run besides its policy: four of their own, or one backbone for all and adapters (LoRA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from r1zero.config import PPOConfig, RLConfig
from r1zero.errors import UserError
from r1zero.models.lora_backbone import (
    REWARD,
    VALUE,
    SharedScores,
    WithAdapter,
    add_adapter,
    load_adapter,
    reward_adapter,
)
from r1zero.models.policy import Policy, Row, add_lora, load_model
from r1zero.models.reward_model import Scorer, ScoreRows, load_reward_model, score_rows, score_scale
from r1zero.models.value_model import (
    SharedValueModel,
    ValueModel,
    head_in_reward_units,
    value_from_policy,
    value_from_reward_model,
    zero_head,
)


@dataclass(frozen=True, kw_only=True)
class Models:
    """What PPO has besides the policy."""

    value: ValueModel | SharedValueModel
    reference: nn.Module | None
    """None where nothing is measured against it."""
    scorers: Mapping[str, ScoreRows]
    """Reward models by the name of their term."""


def load_scorers(config: RLConfig, reward_models: Sequence[Path], accelerator: Accelerator) -> dict[str, ScoreRows]:
    """The reward models of `config.reward`, whose checkpoints are `reward_models`, by the name of their term."""
    budget = config.optimizer.micro_batch_tokens
    return {
        term.name: Scorer(path, term, config.model, accelerator, max_tokens=budget)
        for term, path in zip(config.reward.models, reward_models, strict=True)
    }


def load_models(
    config: PPOConfig, policy: Policy, base: Path, reward_models: Sequence[Path], accelerator: Accelerator
) -> Models:
    """The models of `config` for a policy that starts from the folder `base`."""
    if config.shared_backbone:
        return _shared_models(config, policy, base, reward_models, accelerator)
    if config.value.init == "policy":
        value = value_from_policy(base, config.model)
    else:
        value = value_from_reward_model(reward_models[0], config.model, config.reward.models[0])
    if config.model.lora_rank:
        torch.manual_seed(config.run.seed)  # the adapters' random halves
        add_lora(value.backbone, config.model)
    return Models(
        value=value,
        reference=Policy(load_model(base, config.model)) if config.algorithm.needs_reference else None,
        scorers=load_scorers(config, reward_models, accelerator),
    )


def _shared_models(
    config: PPOConfig, policy: Policy, base: Path, reward_models: Sequence[Path], accelerator: Accelerator
) -> Models:
    """Adapters on the policy's own backbone; the reference is the backbone without them.

    Raises UserError for more than one process, and for a reward model that is no adapter of this backbone.
    """
    if accelerator.num_processes > 1:
        raise UserError(f"shared_backbone runs on one process, and {accelerator.num_processes} were started")
    model, backbone = policy.model, policy.backbone
    torch.manual_seed(config.run.seed)  # the adapters' random halves
    rank, alpha = config.model.lora_rank, config.model.lora_alpha
    scorers: dict[str, ScoreRows] = {}
    head = zero_head(model)
    trained: Mapping[str, Tensor] = {}
    if config.reward.models:
        term, path = config.reward.models[0], reward_models[0]
        trained, lora = reward_adapter(path, base)
        # The head from the checkpoint: it has an adapter too, and is so small that it is kept merged.
        score: nn.Linear = load_reward_model(path, config.model, pad_token_id=0, seed=0).score.requires_grad_(False)
        add_adapter(model, REWARD, lora.lora_rank, lora.lora_alpha)
        load_adapter(model, trained, REWARD)
        module = SharedScores(backbone, score).to(accelerator.device)
        mean, std = score_scale(path) if term.normalise else (0.0, 1.0)

        def scorer(rows: Sequence[Row]) -> list[float]:
            budget = config.optimizer.micro_batch_tokens
            found = score_rows(module, rows, budget, accelerator, packed=policy.packed)
            return [(score - mean) / std for score in found]

        scorers[term.name] = scorer
        if config.value.init == "reward_model":
            head, rank, alpha = head_in_reward_units(score, score_scale(path), term), lora.lora_rank, lora.lora_alpha
    added = add_adapter(model, VALUE, rank, alpha)
    if config.value.init == "reward_model":
        load_adapter(model, trained, VALUE)
    return Models(
        value=SharedValueModel(policy, added, head),
        reference=WithAdapter(policy, model, None) if config.algorithm.needs_reference else None,
        scorers=scorers,
    )
