"""GRPO and its family (arXiv 2402.03300, algorithm 1): sample groups, score them by rule, step on the advantages.

    for each step:
        sample G completions of each prompt with the engine            `rollout`
        score each; drop what says nothing of the answer               `rollout`
        advantage = reward against its group                           `advantages`
        for each minibatch: clipped surrogate (+ KL), one AdamW step   `update`
        hand the new weights to the engine                             `sync`

What differs between GRPO, Dr. GRPO, DAPO, GSPO, CISPO, RLOO and REINFORCE++ is a value in `AlgorithmConfig`; what they
share with PPO is `PolicyGradient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor

from r1zero.algorithms import losses
from r1zero.algorithms.advantages import (
    group_advantages,
    kl_shaped_rewards,
    reinforce_advantages,
    reinforce_pp_advantages,
    rloo_advantages,
)
from r1zero.algorithms.process_rewards import group_process_advantages
from r1zero.config import GRPOConfig
from r1zero.models.policy import Policy, Row, load_model
from r1zero.training.batch import StepBatch
from r1zero.training.groups import ScoredGroup
from r1zero.training.on_policy import Inputs, train_on_policy
from r1zero.training.policy_gradient import PolicyGradient
from r1zero.training.ppo_models import load_scorers


def train_grpo(config: GRPOConfig, *, resume: bool = False) -> Path:
    """A run of GRPO or its family: see `loop.train`."""
    return train_on_policy(config, _with_models, resume=resume)


def _with_models(config: GRPOConfig, inputs: Inputs, **parts: Any) -> GRPO:
    reference = Policy(load_model(inputs.path, config.model)) if config.algorithm.beta > 0 else None
    scorers = load_scorers(config, inputs.reward_models, parts["accelerator"])
    return GRPO(config, reference=reference, scorers=scorers, **parts)


class GRPO(PolicyGradient[GRPOConfig]):
    """The algorithm: `PolicyGradient` with advantages against the group."""

    def advantages(self, groups: Sequence[ScoredGroup], rows: Sequence[Row]) -> StepBatch:
        """The step's tensors, a completion's advantage on each of its tokens."""
        algorithm = self.config.algorithm
        kl_in_reward = self.reference is not None and algorithm.kl_in == "reward"
        batch = self.batch(groups, rows, with_old=kl_in_reward)
        kl = None
        if kl_in_reward:
            assert batch.old_logprobs is not None
            assert batch.ref_logprobs is not None
            kl = losses.KL_ESTIMATORS[algorithm.kl](batch.old_logprobs, batch.ref_logprobs, batch.mask)
        if algorithm.advantage == "process":
            advantages = self._process_advantages(groups, batch.mask)
        else:
            advantages = self._advantages(batch.rewards, batch.mask.any(-1), kl, batch.mask)
        return replace(batch, advantages=advantages)

    def _advantages(self, rewards: Tensor, keep: Tensor, kl: Tensor | None, mask: Tensor) -> Tensor:
        """(B, T) advantages from (B,) rewards: the choice that `algorithm.advantage` and `algorithm.std` name.

        Statistics over the batch are over all processes: the rewards are gathered first.
        """
        algorithm = self.config.algorithm
        if algorithm.advantage == "reinforce_pp":
            zeros = torch.zeros(mask.shape) if kl is None else kl
            beta = algorithm.beta if kl is not None else 0.0
            return reinforce_pp_advantages(rewards, zeros, mask, beta=beta, everyone=self._everyone)
        if kl is not None:
            rewards = kl_shaped_rewards(rewards, kl, mask, beta=algorithm.beta)
        size = algorithm.group_size
        # As objects: under dynamic sampling a process may have found fewer groups than the others.
        shares: list[tuple[list[float], list[bool]]] = gather_object([(rewards.tolist(), keep.tolist())])
        everyone = torch.tensor([r for share, _ in shares for r in share]).reshape(-1, size)
        kept = torch.tensor([k for _, share in shares for k in share], dtype=torch.bool).reshape(-1, size)
        if algorithm.advantage == "group":
            result = group_advantages(everyone, kept, scale=algorithm.std, eps=algorithm.std_eps)
        elif algorithm.advantage == "rloo":
            result = rloo_advantages(everyone, kept)
        else:
            one_group = algorithm.advantage == "group_baseline"
            result = reinforce_advantages(everyone, kept, baseline="group" if one_group else "batch")
        before = sum(len(share) for share, _ in shares[: self.accelerator.process_index])
        own = result.flatten()[before : before + len(rewards)]
        return own[:, None].expand(mask.shape)

    def _process_advantages(self, groups: Sequence[ScoredGroup], mask: Tensor) -> Tensor:
        """(B, T) advantages from the rewards of steps. A group is on one process: nothing is gathered."""
        prefill = self.template.turn_prefill(self.tokenizer)
        eps = self.config.algorithm.std_eps
        parts = [
            group_process_advantages(
                g.completions, g.rewards, self.tokenizer, prefill=prefill, num_positions=mask.shape[1], eps=eps
            )
            for g in groups
        ]
        return torch.cat(parts) if parts else torch.zeros(mask.shape)
