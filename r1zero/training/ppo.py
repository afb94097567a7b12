"""PPO with a value model (arXiv 1707.06347; for language models 2203.02155): a reward at the end, a baseline a token.

    for each step:
        sample completions of each prompt with the engine               `rollout`
        score each: verifiers, reward model, or both weighted           `rollout`
        reward of a token = -beta log(pi / ref), plus the score at the last one, the EOS
        advantage = GAE(gamma, lambda) of rewards and values, whitened  `advantages`
        for each epoch, for each minibatch:                             `update`
            policy: clipped surrogate; value model: clipped squared error; one AdamW step each
        steer beta, where a KL is aimed at                              `after_update`
        hand the new weights to the engine                              `sync`

What is not here is `PolicyGradient`'s, of which GRPO is made as well. gamma = lambda = 1 without a KL term is
Open-Reasoner-Zero (arXiv 2503.24290). Where others choose otherwise: the advantages' deviation has ddof 0 (TRL and
verl: 1); the score lands on the very EOS that was sampled, and a completion without one ends where it was cut, with no
value after it (as in TRL); the losses are means over the minibatch's tokens; value and policy have their own learning
rates, gradient norms and AdamW (TRL: one sum of losses, `vf_coef` 0.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from r1zero.algorithms import losses
from r1zero.algorithms.advantages import gae, token_rewards, whiten
from r1zero.config import PPOConfig
from r1zero.models.policy import MicroBatch, Row
from r1zero.models.value_model import SharedValueModel, ValueModel
from r1zero.training.batch import PPOBatch, StepBatch
from r1zero.training.groups import ScoredGroup
from r1zero.training.on_policy import Inputs, train_on_policy
from r1zero.training.policy_gradient import PolicyGradient
from r1zero.training.ppo_models import load_models
from r1zero.training.updater import adamw, clipped_step, learning_rate

MAX_KL_ERROR = 0.2
"""Adaptive KL: how far off its target a step may look (arXiv 1909.08593 section 2.2)."""


def train_ppo(config: PPOConfig, *, resume: bool = False) -> Path:
    """A run of PPO: see `loop.train`."""
    return train_on_policy(config, _with_models, resume=resume)


def _with_models(config: PPOConfig, inputs: Inputs, **parts: Any) -> PPO:
    found = load_models(config, parts["policy"], inputs.path, inputs.reward_models, parts["accelerator"])
    return PPO(config, value=found.value, reference=found.reference, scorers=found.scorers, **parts)


class PPO(PolicyGradient[PPOConfig]):
    """The algorithm: `PolicyGradient` with a value model and its optimizer."""

    def __init__(self, config: PPOConfig, *, value: ValueModel | SharedValueModel, **parts: Any) -> None:
        super().__init__(config, **parts)
        self.beta = config.algorithm.beta
        """The KL coefficient of now; adaptive KL moves it."""
        if isinstance(value, SharedValueModel):
            value.requires_grad_(True)  # only now: the policy's optimizer takes what has a gradient
        self.model.packed = self.model.packed and value.packed
        optimizer = adamw(value, replace(config.optimizer, lr=config.value.lr))
        self.value, self.value_optimizer = self.accelerator.prepare(value, optimizer)
        self.trained.append(self.value)
        self.optimizers.append(self.value_optimizer)

    @property
    def value_model(self) -> nn.Module:
        """The value model without the wrappers of data parallelism."""
        model: nn.Module = self.accelerator.unwrap_model(self.value)
        return model

    # -- advantages ----------------------------------------------------------------------------------------------

    def advantages(self, groups: Sequence[ScoredGroup], rows: Sequence[Row]) -> PPOBatch:
        """GAE of the token rewards; its figures: how far from the reference, how good the values are."""
        algorithm = self.config.algorithm
        batch = self.batch(groups, rows, with_old=self.reference is not None)
        mask, kl, beta = batch.mask, torch.zeros(batch.mask.shape), 0.0
        figures = {"policy/beta": self.beta}
        if batch.old_logprobs is not None and batch.ref_logprobs is not None:
            figures |= self._distance(batch.old_logprobs, batch.ref_logprobs, mask)
            if algorithm.kl_in == "reward":
                kl = losses.KL_ESTIMATORS[algorithm.kl](batch.old_logprobs, batch.ref_logprobs, mask)
                beta = self.beta
        values = self.values(rows, mask)
        advantages, returns = gae(
            token_rewards(batch.rewards, kl, mask, beta=beta), values, mask, gamma=algorithm.gamma, lam=algorithm.lam
        )
        figures |= self._value_figures(values, returns, mask)
        if algorithm.whiten:
            advantages = whiten(advantages, mask, everyone=self._everyone)
        return PPOBatch.of(batch, advantages=advantages, figures=figures, old_values=values, returns=returns)

    @torch.no_grad()
    def values(self, rows: Sequence[Row], mask: Tensor) -> Tensor:
        """(B, T) value of the state before each token, without gradient; 0 where `mask` is False."""
        return self._of_all_rows(self.value_model, rows, mask)

    def _distance(self, logprobs: Tensor, reference: Tensor, mask: Tensor) -> dict[str, float]:
        """How far a policy is from the reference on what it sampled, over all processes.

        `policy/kl`: log(pi / ref), nats a token; `policy/kl_completion`: its sum, nats a completion;
        `policy/ref_perplexity`: the reference's perplexity of what the policy writes.
        """
        there = mask.any(-1)
        kl = self._everyone(losses.kl_k1(logprobs, reference, mask).sum(-1)[there])
        surprise = self._everyone(-reference.masked_fill(~mask, 0.0).sum(-1)[there])
        tokens = self._everyone(mask.sum(-1)[there])
        if len(kl) == 0:
            return {}
        return {
            "policy/kl": float(kl.sum() / tokens.sum()),
            "policy/kl_completion": float(kl.mean()),
            "policy/ref_perplexity": math.exp(float(surprise.sum() / tokens.sum())),
        }

    def _value_figures(self, values: Tensor, returns: Tensor, mask: Tensor) -> dict[str, float]:
        """`value/mean`, `value/return`, and `value/explained_variance` of the returns by the values (1: all of it)."""
        value, target = self._everyone(values[mask]).double(), self._everyone(returns[mask]).double()
        if len(value) == 0:
            return {}
        figures = {"value/mean": float(value.mean()), "value/return": float(target.mean())}
        spread = float(target.var(correction=0))
        if spread > 0:
            figures["value/explained_variance"] = 1 - float((target - value).var(correction=0)) / spread
        return figures

    def held_out_figures(self, rows: Sequence[Row], truncated: Sequence[bool]) -> dict[str, float]:
        figures = super().held_out_figures(rows, truncated)
        if self.reference is not None and rows:
            lengths = torch.tensor([len(row.completion_ids) for row in rows])
            mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
            own, reference = self._logprobs(self.model, rows, mask), self.ref_logprobs(rows, mask)
            found = self._distance(own, reference, mask)
            figures |= {name.replace("policy/", "eval/"): value for name, value in found.items()}
        return figures

    # -- update --------------------------------------------------------------------------------------------------

    def _learns_from(self, batch: StepBatch, i: int) -> bool:
        """The value model learns from every completion that is not dropped."""
        return bool(batch.mask[i].any())

    def backward_of(
        self, micro: MicroBatch, batch: StepBatch, totals: losses.StepTotals
    ) -> tuple[losses.Metrics, Tensor]:
        """One micro-batch's gradients: the policy's, then the value model's, one graph in memory at a time."""
        assert isinstance(batch, PPOBatch)
        metrics, logprobs = super().backward_of(micro, batch, totals)
        clip = self.config.value.clip or math.inf
        loss, found = losses.value_loss(
            self.value(micro), batch.old_values, batch.returns, batch.mask, totals, clip=clip
        )
        self.accelerator.backward(loss * self.accelerator.num_processes)
        return metrics | {"value/loss": loss.detach(), "value/clip_frac": found["value_clip_frac"]}, logprobs

    def optimizer_step(self, step: int, *, finite: bool = True) -> dict[str, float]:
        """One step of the value model, and one of the policy unless the value model is still being warmed up."""
        settings = self.config.optimizer
        lr = learning_rate(replace(settings, lr=self.config.value.lr), step, self.config.run.steps)
        for group in self.value_optimizer.param_groups:
            group["lr"] = lr
        norm, skipped = clipped_step(
            self.accelerator, self.value.parameters(), self.value_optimizer, settings.max_grad_norm, finite=finite
        )
        figures = {"value/grad_norm": norm, "value/skipped": skipped, "value/lr": lr}
        if step <= self.config.value.warmup_steps:
            self.optimizer.zero_grad()
            return figures
        return figures | super().optimizer_step(step, finite=finite)

    def after_update(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adaptive KL, and what `PolicyGradient` does."""
        algorithm = self.config.algorithm
        if algorithm.kl_target and "policy/kl_completion" in metrics:
            self.beta = steered_beta(
                self.beta,
                metrics["policy/kl_completion"],
                target=algorithm.kl_target,
                completions=algorithm.prompts_per_step * algorithm.group_size,
                horizon=algorithm.kl_horizon,
            )
        super().after_update(step, metrics)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        tensors, counters = super().state()
        value = {name: p.detach() for name, p in self.value_model.named_parameters() if p.requires_grad}
        tensors |= {"value": value, "value_optimizer": self.value_optimizer.state_dict()}
        return tensors, {**counters, "beta": self.beta}

    def load_state(self, tensors: dict[str, Any], state: dict[str, Any]) -> None:
        super().load_state(tensors, state)
        self.value_model.load_state_dict(tensors["value"], strict=False)
        self.value_optimizer.load_state_dict(tensors["value_optimizer"])
        self.idle.put(self.value_optimizer)
        self.beta = state["beta"]


def steered_beta(beta: float, kl: float, *, target: float, completions: int, horizon: int) -> float:
    """The next KL coefficient: beta (1 + clip(KL / target - 1, -0.2, 0.2) n / horizon).

    Source: arXiv 1909.08593 section 2.2, with the paper's K_beta written as n / horizon, as in its code. KL in nats a
    completion, n the completions it was measured on.
    """
    error = min(max(kl / target - 1, -MAX_KL_ERROR), MAX_KL_ERROR)
    return beta * (1 + error * completions / horizon)
