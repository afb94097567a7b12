"""The figures of a step's rollout over the completions of all processes. Pure: GRPO gathers, this counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch

from r1zero.algorithms.advantages import flat_groups
from r1zero.algorithms.rewards import Reward, reward_metrics


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one process contributes: small enough to be sent to all."""

    rewards: list[list[Reward]]
    """Of each group, of each completion."""
    num_tokens: list[list[int]]
    truncated: list[list[bool]]
    sampled: int
    """Groups sampled to get these; more under dynamic sampling."""
    sources: list[str] = field(default_factory=list)
    """Where each group's problem came from; empty: not told."""


def rollout_metrics(shares: Sequence[Share]) -> dict[str, float]:
    """Rewards, lengths and groups of the step; a mean over nothing is left out, not 0."""
    groups = [group for share in shares for group in share.rewards]
    rewards = [reward for group in groups for reward in group]
    figures = reward_metrics(rewards) | _by_source(shares)
    figures["group/sampled"] = float(sum(share.sampled for share in shares))
    if not rewards:
        return figures | {"group/zero_variance": 1.0}
    lengths = torch.tensor([float(n) for share in shares for group in share.num_tokens for n in group])
    cut = [one for share in shares for group in share.truncated for one in group]
    quantiles = torch.quantile(lengths, torch.tensor([0.1, 0.5, 0.9])).tolist()
    values = torch.tensor([[r.value if r.value is not None else 0.0 for r in group] for group in groups])
    keep = torch.tensor([[r.keep for r in group] for group in groups], dtype=torch.bool)
    figures |= {
        "completion/tokens_mean": float(lengths.mean()),
        **{f"completion/tokens_p{p}": q for p, q in zip((10, 50, 90), quantiles, strict=True)},
        "completion/tokens_max": float(lengths.max()),
        "completion/truncated": sum(cut) / len(cut),
    }
    if values.shape[1] == 1:  # PPO: nothing is compared within a group
        return figures
    return figures | {
        "group/zero_variance": float(flat_groups(values, keep).float().mean()),
        "group/reward_std": float(_kept_std(values, keep).mean()),
    }


def _by_source(shares: Sequence[Share]) -> dict[str, float]:
    """`source/NAME/groups`, `…/reward`, `…/accuracy`, `…/tokens` where the step has problems of more than one."""
    judged: dict[str, list[Reward]] = {}
    lengths: dict[str, list[int]] = {}
    groups: Counter[str] = Counter()
    for share in shares:
        for name, rewards, tokens in zip(share.sources, share.rewards, share.num_tokens, strict=bool(share.sources)):
            groups[name] += 1
            judged.setdefault(name, []).extend(rewards)
            lengths.setdefault(name, []).extend(tokens)
    figures: dict[str, float] = {}
    for name, rewards in sorted(judged.items()) if len(judged) > 1 else ():
        figures[f"source/{name}/groups"] = float(groups[name])
        figures[f"source/{name}/tokens"] = fmean(lengths[name])
        values = [reward.value for reward in rewards if reward.value is not None]
        known = [float(reward.correct) for reward in rewards if reward.correct is not None]
        if values:
            figures[f"source/{name}/reward"] = fmean(values)
        if known:
            figures[f"source/{name}/accuracy"] = fmean(known)
    return figures


def advantage_metrics(advantages: Sequence[float]) -> dict[str, float]:
    """Mean, std (ddof 0) and extremes of the kept completions' advantages (each the mean over its tokens)."""
    if not advantages:
        return {}
    values = torch.tensor(advantages, dtype=torch.float64)
    return {
        "advantage/mean": float(values.mean()),
        "advantage/std": float(values.std(correction=0)),
        "advantage/min": float(values.min()),
        "advantage/max": float(values.max()),
    }


def _kept_std(rewards: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """(N,) population std of each group's kept rewards; 0 where none is kept."""
    count = keep.sum(1).clamp(min=1)
    mean = rewards.masked_fill(~keep, 0.0).sum(1) / count
    return ((rewards - mean[:, None]).masked_fill(~keep, 0.0).square().sum(1) / count).sqrt()
