"""Losses of the GRPO family: log-probabilities and advantages in, a scalar loss and metrics out.

Stands between `advantages.py` and the optimizer step; knows no model. Every loss takes right-padded (B, T) tensors,
T being completion positions, and the totals of the WHOLE step (`StepTotals`: all micro-batches, accumulation steps and
data-parallel ranks), so that the losses and metrics of micro-batches add up to the step's, whatever the split.
Under DDP or FSDP, which average gradients over ranks, the caller multiplies the loss by the number of ranks.

Sources: PPO arXiv 1707.06347, dual clip 1912.09729, GRPO 2402.03300, DAPO 2503.14476, Dr. GRPO 2503.20783,
CISPO 2506.13585, GSPO 2507.18071; KL estimators: J. Schulman, "Approximating KL divergence" (2020).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from r1zero.algorithms.totals import MIN_LOGPROB, masked_max, sequence_mean
from r1zero.algorithms.totals import Aggregation as Aggregation
from r1zero.algorithms.totals import Metrics as Metrics
from r1zero.algorithms.totals import StepTotals as StepTotals
from r1zero.algorithms.totals import add_metrics as add_metrics
from r1zero.algorithms.totals import aggregate as aggregate
from r1zero.algorithms.totals import log_ratio as log_ratio

KLEstimator = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""A ratio is held at e^20 (no gradient beyond): exp overflows float32 at 88.7, and inf * 0 is nan in the backward."""


def clipped_policy_loss(
    logprobs: Tensor,  # (B, T) log pi of each token; carries the gradient
    old_logprobs: Tensor,  # (B, T) log pi_old of the same tokens
    advantages: Tensor,  # (B,) one per completion, or (B, T) one per token
    mask: Tensor,  # (B, T) bool, True on the completion tokens that are trained on
    totals: StepTotals,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    weights: Tensor | None = None,  # (B, T) or (B, 1) importance weights, without gradient
    aggregation: Aggregation = "sequence",
) -> tuple[Tensor, Metrics]:
    """-min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A), rho = pi / pi_old for each token.

    Source: arXiv 1707.06347 eq. 7, with the two bounds set apart as in arXiv 2503.14476; `float("inf")` for either
    takes it away. `dual_clip` c > 1 keeps the objective of a negative advantage above c A (arXiv 1912.09729).
    Metrics (means over the step's tokens): see `_surrogate`.
    """
    ratio = _ratio(log_ratio(logprobs, old_logprobs, mask))  # (B, T)
    return _surrogate(ratio, advantages, mask, totals, clip_low, clip_high, dual_clip, weights, aggregation)


def gspo_loss(
    logprobs: Tensor,  # (B, T)
    old_logprobs: Tensor,  # (B, T)
    advantages: Tensor,  # (B,) or (B, T)
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    weights: Tensor | None = None,
    aggregation: Aggregation = "sequence",
) -> tuple[Tensor, Metrics]:
    """GSPO: the clipped surrogate with one ratio a completion, s = exp(mean over tokens of log(pi / pi_old)).

    Source: arXiv 2507.18071 eq. 5 and 7, the clip range of its section 5.1; written as GSPO-token (eq. 13-14), which
    has the same value and gradient when a completion has one advantage and one weight, and also takes one per token.
    """
    log_rho = log_ratio(logprobs, old_logprobs, mask)  # (B, T)
    sequence = sequence_mean(log_rho, mask)[:, None].detach()  # (B, 1)
    # The value is the sequence's, the gradient goes through each token's own log-probability.
    ratio = _ratio(sequence + (log_rho - log_rho.detach()))  # (B, T)
    return _surrogate(ratio, advantages, mask, totals, clip_low, clip_high, None, weights, aggregation)


def cispo_loss(
    logprobs: Tensor,  # (B, T)
    old_logprobs: Tensor,  # (B, T)
    advantages: Tensor,  # (B,) or (B, T)
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    clip_low: float = float("inf"),
    clip_high: float = 0.2,
    weights: Tensor | None = None,
    aggregation: Aggregation = "token",
) -> tuple[Tensor, Metrics]:
    """CISPO: REINFORCE weighted by the clipped, gradient-free ratio, so that no token loses its gradient.

    Source: arXiv 2506.13585 eq. 4-5 (MiniMax-M1), which leaves the low side open, as the default here does.
    `clip_frac_low` and `clip_frac_high` count ratios outside the bounds, whatever the advantage's sign.
    """
    ratio = _ratio(log_ratio(logprobs, old_logprobs, mask)).detach()  # (B, T)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    weighted = clipped if weights is None else clipped * weights
    loss, _ = reinforce_loss(logprobs, advantages, mask, totals, weights=weighted, aggregation=aggregation)
    metrics = _ratio_metrics(ratio, mask, totals)
    metrics["clip_frac_low"] = aggregate((ratio < 1 - clip_low).float(), mask, totals, "token")
    metrics["clip_frac_high"] = aggregate((ratio > 1 + clip_high).float(), mask, totals, "token")
    return loss, metrics


def reinforce_loss(
    logprobs: Tensor,  # (B, T)
    advantages: Tensor,  # (B,) or (B, T)
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    weights: Tensor | None = None,  # (B, T) or (B, 1), without gradient
    aggregation: Aggregation = "token",
) -> tuple[Tensor, Metrics]:
    """-A log pi: the policy gradient of Williams (1992), right on the policy that sampled; no ratio, no clip."""
    logprobs = logprobs.masked_fill(~mask, 0.0).clamp(min=MIN_LOGPROB)
    token_loss = -_per_token(advantages) * logprobs  # (B, T)
    return aggregate(_weighted(token_loss, weights), mask, totals, aggregation), {}


def kl_k1(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    """log(pi / ref), (B, T): an unbiased estimate of KL(pi || ref) on samples of pi; single tokens can be negative."""
    return log_ratio(logprobs, ref_logprobs, mask)


def kl_k2(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    """log(pi / ref)^2 / 2, (B, T): biased, never negative, and its gradient is that of KL(pi || ref) on-policy."""
    return 0.5 * log_ratio(logprobs, ref_logprobs, mask).square()


def kl_k3(logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    """ref / pi - log(ref / pi) - 1, (B, T): unbiased and never negative; GRPO's (arXiv 2402.03300 eq. 4)."""
    log_rho = log_ratio(ref_logprobs, logprobs, mask)
    # Both terms stop at the same place: were the exponential alone held, what is left would pull the wrong way.
    log_rho = log_rho.clamp(max=MAX_LOG_RATIO)
    return log_rho.expm1() - log_rho


KL_ESTIMATORS = {"k1": kl_k1, "k2": kl_k2, "k3": kl_k3}


def kl_loss(
    logprobs: Tensor,  # (B, T) carries the gradient
    ref_logprobs: Tensor,  # (B, T)
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    beta: float,
    estimator: KLEstimator = "k3",
    old_logprobs: Tensor | None = None,  # (B, T) given: correct for the sampling distribution
    aggregation: Aggregation = "sequence",
) -> tuple[Tensor, Metrics]:
    """beta times the KL term inside the loss; metric `kl` is its mean over the step's tokens, without beta.

    With `k3` and no `old_logprobs` this is the term of the GRPO paper. The gradient of a sampled estimate is not that
    of the KL: on-policy k1's is zero on average, k2's is right, and k3's is that of the reversed KL(ref || pi).
    With `old_logprobs` each token is weighted by pi / pi_old with its gradient, which makes value and gradient those of
    KL(pi || ref) for k1 and k3, off-policy as well (as in DeepSeek-V3.2, arXiv 2512.02556).
    """
    kl = KL_ESTIMATORS[estimator](logprobs, ref_logprobs, mask)  # (B, T)
    metrics = {"kl": aggregate(kl.detach(), mask, totals, "token")}
    if old_logprobs is not None:
        kl = kl * _ratio(log_ratio(logprobs, old_logprobs, mask))
    return beta * aggregate(kl, mask, totals, aggregation), metrics


def entropy_loss(
    entropy: Tensor,  # (B, T) nats, of the whole next-token distribution; carries the gradient when coefficient != 0
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    coefficient: float,
    aggregation: Aggregation = "sequence",
) -> tuple[Tensor, Metrics]:
    """-coefficient * entropy: adding it to a loss rewards entropy. Metric `entropy`: nats, mean over tokens."""
    metrics = {"entropy": aggregate(entropy.detach(), mask, totals, "token")}
    return -coefficient * aggregate(entropy, mask, totals, aggregation), metrics


def value_loss(
    values: Tensor,  # (B, T) carries the gradient
    old_values: Tensor,  # (B, T) as they were when the advantages were made
    returns: Tensor,  # (B, T)
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    clip: float = 0.2,
) -> tuple[Tensor, Metrics]:
    """PPO's value loss: half the squared error, the worse of the value and of the value held near its old one.

    The clip is that of OpenAI's PPO code (baselines `ppo2`), not of the paper; `float("inf")` takes it away.
    """
    values, old_values, returns = (x.masked_fill(~mask, 0.0) for x in (values, old_values, returns))
    held = old_values + (values - old_values).clamp(-clip, clip)
    error, held_error = (values - returns).square(), (held - returns).square()
    metrics = {"value_clip_frac": aggregate((held_error > error).float(), mask, totals, "token")}
    return 0.5 * aggregate(torch.maximum(error, held_error), mask, totals, "token"), metrics


def importance_weights(
    logprobs: Tensor,  # (B, T) of the trainer's policy at the time of sampling (or now, for staleness)
    engine_logprobs: Tensor,  # (B, T) as the rollout engine reported them
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    *,
    level: Literal["token", "sequence"] = "token",
    outside: Literal["truncate", "mask"] = "truncate",
    cap: float = 2.0,
    floor: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """Weights (B, T), without gradient, that correct for sampling from another distribution than the one trained.

    w = pi_trainer / pi_engine for each token, or for a whole completion the exponential of the MEAN of the tokens'
    log-ratios: a sum would drift to 0 or to the cap with length. Outside [floor, cap] a weight is held at the bound
    (`truncate`, truncated importance sampling) or set to 0 (`mask`, as IcePop does with floor 0.5 and cap 5).
    Metrics: `is_weight_mean` (of what is returned), `is_ratio_max` (before the bounds), `is_outside_frac` (of tokens).
    """
    log_rho = log_ratio(logprobs, engine_logprobs, mask).detach()  # (B, T)
    if level == "sequence":
        log_rho = sequence_mean(log_rho, mask)[:, None].expand_as(log_rho)
    elif level != "token":
        raise ValueError(f"level must be token or sequence, got {level!r}")
    raw = _ratio(log_rho)
    beyond = (raw < floor) | (raw > cap)
    if outside == "truncate":
        weights = raw.clamp(floor, cap)
    elif outside == "mask":
        weights = raw.masked_fill(beyond, 0.0)
    else:
        raise ValueError(f"outside must be truncate or mask, got {outside!r}")
    metrics = {
        "is_weight_mean": aggregate(weights, mask, totals, "token"),
        "is_ratio_max": masked_max(raw, mask),
        "is_outside_frac": aggregate(beyond.float(), mask, totals, "token"),
    }
    return weights, metrics


def mismatch_metrics(logprobs: Tensor, engine_logprobs: Tensor, mask: Tensor, totals: StepTotals) -> Metrics:
    """How far the trainer's log-probabilities are from the engine's, on the tokens the engine sampled.

    `mismatch_abs_mean`, `mismatch_abs_max`: |log pi_trainer - log pi_engine|, nats. `mismatch_kl`: the k3 estimate of
    KL(engine || trainer). `mismatch_ratio_mean`: pi_trainer / pi_engine, which is 1 on average when all is well.
    """
    log_rho = log_ratio(logprobs, engine_logprobs, mask).detach()
    return {
        "mismatch_abs_mean": aggregate(log_rho.abs(), mask, totals, "token"),
        "mismatch_abs_max": masked_max(log_rho.abs(), mask),
        "mismatch_kl": aggregate(kl_k3(engine_logprobs, logprobs, mask).detach(), mask, totals, "token"),
        "mismatch_ratio_mean": aggregate(_ratio(log_rho), mask, totals, "token"),
    }


def _ratio(log_rho: Tensor) -> Tensor:
    return log_rho.clamp(max=MAX_LOG_RATIO).exp()


def _per_token(advantages: Tensor) -> Tensor:
    """(B,) -> (B, 1), to go with (B, T); (B, T) as it is."""
    return advantages[:, None] if advantages.dim() == 1 else advantages


def _weighted(token_loss: Tensor, weights: Tensor | None) -> Tensor:
    return token_loss if weights is None else token_loss * weights.detach()


def _ratio_metrics(ratio: Tensor, mask: Tensor, totals: StepTotals) -> Metrics:
    """`ratio_mean`, `ratio_max` of pi / pi_old, and `approx_kl`: the k3 estimate of KL(pi_old || pi), nats a token."""
    ratio = ratio.detach()
    approx_kl = ratio - 1 - ratio.clamp(min=torch.finfo(ratio.dtype).tiny).log()
    return {
        "ratio_mean": aggregate(ratio, mask, totals, "token"),
        "ratio_max": masked_max(ratio, mask),
        "approx_kl": aggregate(approx_kl, mask, totals, "token"),
    }


def _surrogate(
    ratio: Tensor,  # (B, T)
    advantages: Tensor,  # (B,) or (B, T)
    mask: Tensor,  # (B, T) bool
    totals: StepTotals,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
    weights: Tensor | None,
    aggregation: Aggregation,
) -> tuple[Tensor, Metrics]:
    """The clipped surrogate of any ratio, aggregated.

    Metrics, means over the step's tokens: `clip_frac_low` (A < 0 and ratio below its bound), `clip_frac_high` (A > 0
    and ratio above), `clip_frac_dual` (A < 0 and ratio above `dual_clip`): in these cases, and in no other, the token
    has no gradient. `ratio_mean`, `ratio_max`, `approx_kl`: see `_ratio_metrics`.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip must be above 1, got {dual_clip}")
    adv = _per_token(advantages)  # (B, 1) or (B, T)
    objective = torch.minimum(ratio * adv, ratio.clamp(1 - clip_low, 1 + clip_high) * adv)  # (B, T)
    metrics = _ratio_metrics(ratio, mask, totals)
    with torch.no_grad():
        low = (adv < 0) & (ratio < 1 - clip_low)
        high = (adv > 0) & (ratio > 1 + clip_high)
        metrics["clip_frac_low"] = aggregate(low.float(), mask, totals, "token")
        metrics["clip_frac_high"] = aggregate(high.float(), mask, totals, "token")
    if dual_clip is not None:
        dual = (adv < 0) & (ratio.detach() > dual_clip)
        objective = torch.where(dual, dual_clip * adv, objective)
        metrics["clip_frac_dual"] = aggregate(dual.float(), mask, totals, "token")
    return aggregate(_weighted(-objective, weights), mask, totals, aggregation), metrics
