"""Advantages: rewards in, one number a completion or a token out. Pure; between `rewards.py` and `losses.py`.

Group functions take rewards (N, G): N prompts, G completions each, with `keep` (N, G) bool, False for a completion
that has no usable verdict: it enters no mean and no std, and its advantage is 0 (the caller also masks its tokens).
Every std has ddof 0 (population). All sums run in float64, and the result has the rewards' dtype. A statistic over the
batch is over the whole step: gather the ranks' rewards first.

Sources: DeepSeekMath arXiv 2402.03300, Dr. GRPO 2503.20783, RLOO 2402.14740, REINFORCE++ 2501.03262,
GAE 1506.02438, batch std 2508.08221.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

STD_EPS = 1e-6
"""Added to a std before dividing by it. Peers use 1e-9 to 1e-4; the papers say only that it is small."""


def group_advantages(
    rewards: Tensor,  # (N, G)
    keep: Tensor | None = None,  # (N, G) bool
    *,
    scale: Literal["group", "batch", "none"] = "group",
    eps: float = STD_EPS,
) -> Tensor:
    """(N, G): reward minus its group's mean, over (std + eps).

    scale `group`: the group's own std (GRPO). `none`: no division (Dr. GRPO; also REINFORCE with a group baseline).
    `batch`: the std of all kept rewards of the step around their common mean (arXiv 2508.08221).
    A group whose kept rewards are all equal, or with fewer than two of them, gives exact zeros.
    """
    keep = _keep(rewards, keep)
    centred = _centred(rewards, keep)  # (N, G) float64
    if scale == "group":
        centred = centred / (_std(rewards, keep, dim=1) + eps)
    elif scale == "batch":
        centred = centred / (_std(rewards.reshape(1, -1), keep.reshape(1, -1), dim=1) + eps)
    elif scale != "none":
        raise ValueError(f"scale must be group, batch or none, got {scale!r}")
    return centred.masked_fill(flat_groups(rewards, keep)[:, None] | ~keep, 0.0).to(rewards.dtype)


def rloo_advantages(rewards: Tensor, keep: Tensor | None = None) -> Tensor:
    """(N, G): reward minus the mean of the OTHER kept rewards of its group (arXiv 2402.14740).

    That equals n / (n - 1) times reward minus group mean, n being the group's kept completions.
    """
    keep = _keep(rewards, keep)
    n = keep.sum(1, keepdim=True)  # (N, 1)
    left_out = _centred(rewards, keep) * n / (n - 1).clamp(min=1)
    return left_out.masked_fill(flat_groups(rewards, keep)[:, None] | ~keep, 0.0).to(rewards.dtype)


def reinforce_advantages(
    rewards: Tensor,  # (N, G)
    keep: Tensor | None = None,
    *,
    baseline: Literal["group", "batch", "none"] = "group",
) -> Tensor:
    """(N, G): reward minus the mean of its group or of the step, or the reward itself; never divided."""
    keep = _keep(rewards, keep)
    if baseline == "group":
        return group_advantages(rewards, keep, scale="none")
    if baseline == "batch":
        return group_advantages(rewards.reshape(1, -1), keep.reshape(1, -1), scale="none").reshape_as(rewards)
    if baseline == "none":
        return rewards.masked_fill(~keep, 0.0)
    raise ValueError(f"baseline must be group, batch or none, got {baseline!r}")


def flat_groups(rewards: Tensor, keep: Tensor | None = None) -> Tensor:
    """(N,) bool: True where a group teaches nothing: fewer than two kept completions, or all their rewards equal."""
    keep = _keep(rewards, keep)
    highest = rewards.masked_fill(~keep, float("-inf")).amax(1)
    lowest = rewards.masked_fill(~keep, float("inf")).amin(1)
    return highest <= lowest  # an empty group has -inf and inf


def reinforce_pp_advantages(
    rewards: Tensor,  # (B,)
    kl: Tensor,  # (B, T) per-token KL(pi || ref) estimate (k1 in the paper), without gradient
    mask: Tensor,  # (B, T) bool, all False for a dropped completion
    *,
    beta: float,
    gamma: float = 1.0,
    eps: float = STD_EPS,
    everyone: Callable[[Tensor], Tensor] | None = None,  # see `whiten`
) -> Tensor:
    """(B, T): REINFORCE++: the return of each token, KL in the reward, normalised over all tokens of the step.

    Source: arXiv 2501.03262 section 3. Its `baseline` variant: pass rewards minus their group's mean.
    """
    returns = discounted_returns(token_rewards(rewards, kl, mask, beta=beta), mask, gamma=gamma)
    return whiten(returns, mask, eps=eps, everyone=everyone)


def token_rewards(
    rewards: Tensor,  # (B,)
    kl: Tensor,  # (B, T) per-token KL estimate
    mask: Tensor,  # (B, T) bool
    *,
    beta: float,
) -> Tensor:
    """(B, T): -beta * kl on each token, plus the reward on the last one that is True (the EOS, never padding).

    A completion without a token gets no reward anywhere.
    """
    per_token = (-beta * kl).masked_fill(~mask, 0.0)
    is_last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)  # no True token after it
    return per_token + torch.where(is_last, rewards[:, None].to(per_token.dtype), 0.0)


def kl_shaped_rewards(rewards: Tensor, kl: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """(B,): reward - beta * sum over tokens of kl: KL in the reward for advantages of whole completions (RLOO)."""
    return rewards - beta * kl.masked_fill(~mask, 0.0).sum(-1)


def discounted_returns(rewards: Tensor, mask: Tensor, *, gamma: float) -> Tensor:
    """(B, T): sum over later True tokens of gamma^distance * reward, 0 on padding."""
    advantages, _ = gae(rewards, torch.zeros_like(rewards), mask, gamma=gamma, lam=1.0)
    return advantages


def gae(
    rewards: Tensor,  # (B, T) per token
    values: Tensor,  # (B, T) V of the state before each token
    mask: Tensor,  # (B, T) bool
    *,
    gamma: float,
    lam: float,
    last_values: Tensor | None = None,  # (B,) V after the last token, for completions cut off by the length limit
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (arXiv 1506.02438 eq. 16): advantages and returns (B, T), 0 on padding.

    delta_t = r_t + gamma V(s_t+1) - V(s_t), A_t = delta_t + gamma lam A_t+1, return = A + V. The value after the last
    token is 0 unless `last_values` gives it. False tokens are stepped over, wherever they stand.
    """
    dtype = rewards.dtype
    rewards, values = rewards.double().masked_fill(~mask, 0.0), values.double().masked_fill(~mask, 0.0)
    advantages = torch.zeros_like(rewards)
    later = rewards.new_zeros(len(rewards))  # (B,) A_t+1
    next_value = later if last_values is None else last_values.double()
    for t in reversed(range(rewards.shape[1])):
        here = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        later = torch.where(here, delta + gamma * lam * later, later)
        next_value = torch.where(here, values[:, t], next_value)
        advantages[:, t] = torch.where(here, later, 0.0)
    return advantages.to(dtype), (advantages + values).to(dtype)


def whiten(
    values: Tensor,  # (B, T)
    mask: Tensor,  # (B, T) bool
    *,
    eps: float = STD_EPS,
    everyone: Callable[[Tensor], Tensor] | None = None,  # this process's (n,) values -> those of all processes
) -> Tensor:
    """(B, T): (value - mean) / (std + eps) over all True tokens, 0 on padding; all zeros where they are all equal."""
    flat = values[mask]
    step = flat if everyone is None else everyone(flat)
    if len(step) == 0 or bool((step == step[0]).all()):
        return torch.zeros_like(values)
    wide = step.double()
    whitened = torch.zeros_like(values)
    whitened[mask] = ((flat.double() - wide.mean()) / (wide.std(correction=0) + eps)).to(values.dtype)
    return whitened


def process_advantages(
    step_rewards: Tensor,  # (N, G, S) the reward of each reasoning step
    step_ends: Tensor,  # (N, G, S) int, the completion position of each step's last token, in 0 .. num_positions - 1
    step_mask: Tensor,  # (N, G, S) bool, True for a step that exists
    *,
    num_positions: int,
    eps: float = STD_EPS,
) -> Tensor:
    """(N, G, num_positions): process supervision: the sum of the normalised rewards of this step and the later ones.

    Source: DeepSeekMath arXiv 2402.03300 section 4.1.3: all step rewards of a group share one mean and one std.
    Tokens after the last step's end get 0.
    """
    n, g, s = step_rewards.shape
    scaled = group_advantages(step_rewards.reshape(n, g * s), step_mask.reshape(n, g * s), eps=eps).reshape(n, g, s)
    at_end = scaled.new_zeros(n, g, num_positions)
    at_end.scatter_add_(2, step_ends.masked_fill(~step_mask, 0), scaled)  # a missing step adds 0
    return at_end.double().flip(2).cumsum(2).flip(2).to(scaled.dtype)


def _keep(rewards: Tensor, keep: Tensor | None) -> Tensor:
    return torch.ones_like(rewards, dtype=torch.bool) if keep is None else keep


def _mean(rewards: Tensor, keep: Tensor, dim: int) -> Tensor:
    return rewards.double().masked_fill(~keep, 0.0).sum(dim, keepdim=True) / keep.sum(dim, keepdim=True).clamp(min=1)


def _centred(rewards: Tensor, keep: Tensor) -> Tensor:
    """(N, G) float64: reward minus its row's mean over the kept; 0 where not kept (whatever the reward there)."""
    return (rewards.double() - _mean(rewards, keep, 1)).masked_fill(~keep, 0.0)


def _std(rewards: Tensor, keep: Tensor, dim: int) -> Tensor:
    """Population std over the kept, (…, 1) float64."""
    return _mean(_centred(rewards, keep).square(), keep, dim).sqrt()
