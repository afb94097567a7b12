"""The objective that a recipe names, on a micro-batch: surrogate, sampling corrected, KL term, entropy bonus."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from r1zero.algorithms import losses
from r1zero.config import PolicyGradientConfig
from r1zero.training.batch import StepBatch


def objective(
    algorithm: PolicyGradientConfig,
    logprobs: Tensor,  # (B, T) log pi of each token; carries the gradient
    entropy: Tensor,  # (B, T) of the policy at each token; carries a gradient where there is a bonus
    batch: StepBatch,  # the micro-batch's own rows
    totals: losses.StepTotals,
) -> tuple[Tensor, losses.Metrics]:
    """The scalar to minimise and its metrics; both are sums over the step's denominators and add up."""
    mask = batch.mask
    old = logprobs.detach() if batch.old_logprobs is None else batch.old_logprobs
    weights, weight_metrics = _importance_weights(algorithm, old, batch.engine_logprobs, mask, totals)
    loss, metrics = policy_loss(algorithm, logprobs, old, batch.advantages, mask, totals, weights)
    metrics = metrics | weight_metrics | {"loss": loss.detach()}
    if batch.ref_logprobs is not None and algorithm.kl_in == "loss":
        kl, kl_metrics = losses.kl_loss(
            logprobs,
            batch.ref_logprobs,
            mask,
            totals,
            beta=algorithm.beta,
            estimator=algorithm.kl,
            old_logprobs=old if algorithm.kl_corrected else None,
            aggregation=algorithm.aggregation,
        )
        loss = loss + kl
        metrics |= kl_metrics
    bonus, entropy_metrics = losses.entropy_loss(
        entropy, mask, totals, coefficient=algorithm.entropy_bonus, aggregation=algorithm.aggregation
    )
    metrics |= entropy_metrics
    named = {f"policy/{name}": value for name, value in metrics.items()}
    return loss + bonus if algorithm.entropy_bonus else loss, named


def _importance_weights(
    algorithm: PolicyGradientConfig, old: Tensor, engine: Tensor, mask: Tensor, totals: losses.StepTotals
) -> tuple[Tensor | None, losses.Metrics]:
    if algorithm.importance_correction == "none":
        return None, {}
    level, _, outside = algorithm.importance_correction.partition("_")
    return losses.importance_weights(
        old,
        engine,
        mask,
        totals,
        level="token" if level == "token" else "sequence",
        outside="mask" if outside else "truncate",
        cap=algorithm.importance_cap,
        floor=algorithm.importance_floor,
    )


def policy_loss(
    algorithm: PolicyGradientConfig,
    logprobs: Tensor,  # (B, T)
    old_logprobs: Tensor,  # (B, T)
    advantages: Tensor,  # (B, T)
    mask: Tensor,  # (B, T) bool
    totals: losses.StepTotals,
    weights: Tensor | None,  # (B, T)
) -> tuple[Tensor, losses.Metrics]:
    """The policy loss that `algorithm.loss` names."""
    if algorithm.loss == "reinforce":
        return losses.reinforce_loss(
            logprobs, advantages, mask, totals, weights=weights, aggregation=algorithm.aggregation
        )
    low, high = algorithm.clip_bounds
    clip: dict[str, Any] = {
        "clip_low": low,
        "clip_high": high,
        "weights": weights,
        "aggregation": algorithm.aggregation,
    }
    if algorithm.loss == "gspo":
        return losses.gspo_loss(logprobs, old_logprobs, advantages, mask, totals, **clip)
    if algorithm.loss == "cispo":
        return losses.cispo_loss(logprobs, old_logprobs, advantages, mask, totals, **clip)
    return losses.clipped_policy_loss(
        logprobs, old_logprobs, advantages, mask, totals, dual_clip=algorithm.dual_clip or None, **clip
    )
