"""Losses of the general-helpfulness stages: SFT, the reward model, DPO and its relatives. Pure; knows no model.

Inputs are log-probabilities of whole responses, (B,), or a reward model's scores; every denominator is that of the
WHOLE step and passed in, so that the losses and metrics of micro-batches add up to the step's, whatever the split.

Sources: DPO arXiv 2305.18290, cDPO E. Mitchell (2023), IPO 2310.12036, KTO 2402.01306, SimPO 2405.14734,
ORPO 2403.07691, Bradley-Terry over rankings 2203.02155 (InstructGPT), margin 2307.09288, centring 2312.09244.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from r1zero.algorithms.losses import Metrics, StepTotals, aggregate

MAX_MEAN_LOGPROB = -1e-6
"""ORPO's odds P / (1 - P) of a response that is certain: its mean log-probability is held just below 0."""


def nll_loss(
    logprobs: Tensor,  # (B, T) carries the gradient
    mask: Tensor,  # (B, T) bool, True on the tokens that are learnt
    totals: StepTotals,
    *,
    aggregation: Literal["token", "sequence"] = "token",
) -> tuple[Tensor, Metrics]:
    """-log pi, a mean over all learnt tokens of the step (or over each response's tokens, then over responses).

    `token` is SFT: a mean of micro-batch means would weigh a token by how many others its micro-batch happens to have.
    Metric `nll`: the token mean, nats.
    """
    nll = -logprobs
    return aggregate(nll, mask, totals, aggregation), {"nll": aggregate(nll.detach(), mask, totals, "token")}


def response_logprobs(
    logprobs: Tensor,  # (B, T)
    mask: Tensor,  # (B, T) bool
    *,
    length_normalised: bool = False,
) -> Tensor:
    """(B,) log pi(y | x): the sum over a response's tokens, or their mean."""
    total = logprobs.masked_fill(~mask, 0.0).sum(-1)
    return total / mask.sum(-1).clamp(min=1) if length_normalised else total


def dpo_loss(
    chosen: Tensor,  # (B,) log pi(y_w | x), sum or mean over tokens; carries the gradient
    rejected: Tensor,  # (B,) log pi(y_l | x)
    ref_chosen: Tensor,  # (B,) the same under the reference
    ref_rejected: Tensor,  # (B,)
    *,
    beta: float,
    num_pairs: int,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """-log sigma(beta (log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l))), DPO's eq. 7.

    `label_smoothing` e is cDPO: the share of labels thought to be swapped; (1 - e) of the loss, and e of the swapped
    pair's. Its minimum is at the finite margin log((1 - e) / e). Metrics: see `_pair_metrics`.
    """
    metrics = _pair_metrics(chosen, rejected, ref_chosen, ref_rejected, beta, num_pairs)
    margin = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    return _smoothed(margin, label_smoothing).sum() / max(num_pairs, 1), metrics


def ipo_loss(
    chosen: Tensor,  # (B,)
    rejected: Tensor,  # (B,)
    ref_chosen: Tensor,  # (B,)
    ref_rejected: Tensor,  # (B,)
    *,
    beta: float,
    num_pairs: int,
) -> tuple[Tensor, Metrics]:
    """(h - 1 / (2 beta))^2, h the difference of log-ratios: eq. 17 with tau = beta. It stops at a finite margin.

    The paper's h is over whole responses; with means over tokens (`length_normalised`) the target does not ask the
    more of a pair the longer it is, which is what its authors recommend in practice.
    """
    metrics = _pair_metrics(chosen, rejected, ref_chosen, ref_rejected, beta, num_pairs)
    h = (chosen - ref_chosen) - (rejected - ref_rejected)
    return (h - 1 / (2 * beta)).square().sum() / max(num_pairs, 1), metrics


def simpo_loss(
    chosen: Tensor,  # (B,) MEAN log pi of the response's tokens
    rejected: Tensor,  # (B,)
    *,
    beta: float,
    gamma: float,
    num_pairs: int,
    label_smoothing: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """-log sigma(beta mean log pi(y_w) - beta mean log pi(y_l) - gamma), eq. 6: no reference, no pay for length."""
    zero = torch.zeros_like(chosen)
    metrics = _pair_metrics(chosen, rejected, zero, zero, beta, num_pairs)
    return _smoothed(beta * (chosen - rejected) - gamma, label_smoothing).sum() / max(num_pairs, 1), metrics


def orpo_loss(
    chosen: Tensor,  # (B,) MEAN log pi of the response's tokens
    rejected: Tensor,  # (B,)
    *,
    weight: float,
    num_pairs: int,
) -> tuple[Tensor, Metrics]:
    """weight * -log sigma(log odds(y_w) - log odds(y_l)), odds = P / (1 - P), P = exp(mean log pi): eq. 6 to 7.

    The odds-ratio term alone; ORPO adds the SFT loss of the chosen response (`nll_loss`, aggregation `sequence`).
    """
    zero = torch.zeros_like(chosen)
    metrics = _pair_metrics(chosen, rejected, zero, zero, weight, num_pairs)
    odds = _log_odds(chosen) - _log_odds(rejected)
    return -weight * logsigmoid(odds).sum() / max(num_pairs, 1), metrics


def preferred(chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor) -> Tensor:
    """(B,) log(pi / ref) of the chosen minus that of the rejected response, without gradient, for metrics.

    0 within the rounding of what it is made of: a policy that is still its reference, with log-probabilities summed in
    another order, prefers neither.
    """
    with torch.no_grad():
        difference = (chosen - ref_chosen) - (rejected - ref_rejected)
        rounding = 8 * torch.finfo(chosen.dtype).eps * (chosen.abs() + rejected.abs())
        return torch.where(difference.abs() <= rounding, 0.0, difference)


def length_figures(
    margins: Tensor,  # (B,) implicit reward of the chosen minus that of the rejected response
    longer: Tensor,  # (B,) int, how many tokens more the chosen response has
    *,
    num_pairs: int,
) -> Metrics:
    """What says whether a preference is one for length: `longer` and `shorter`, the shares of the step's pairs whose
    chosen response is so; `longer_right` and `shorter_right`, those of them in which it has the larger reward."""
    with torch.no_grad():
        right = _better(margins)
        values = {"longer": longer > 0, "shorter": longer < 0}
        sums = {name: which.sum().to(right.dtype) for name, which in values.items()}
        sums |= {f"{name}_right": (right * which).sum() for name, which in values.items()}
        return {name: value / max(num_pairs, 1) for name, value in sums.items()}


def kto_loss(
    logps: Tensor,  # (B,) log pi(y | x)
    ref_logps: Tensor,  # (B,)
    desirable: Tensor,  # (B,) bool, thumbs up
    baseline: float,  # z_0: KL(pi || ref) estimated on mismatched responses, see `kto_baseline`
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
    num_examples: int,
) -> tuple[Tensor, Metrics]:
    """lambda_y - v(x, y) with v = lambda_D sigma(beta (r - z_0)) or lambda_U sigma(beta (z_0 - r)), r = log(pi / ref).

    Eq. 8 of the paper. Needs no pairs: a response and a thumb. Metrics: `desirable_reward`, `undesirable_reward`, sums
    over their kind / all examples, and the shares to divide them by; `accuracy`: thumbs on the right side of z_0.
    """
    log_ratio = logps - ref_logps
    side = torch.where(desirable, 1.0, -1.0)
    weight = torch.where(desirable, desirable_weight, undesirable_weight)
    loss = (weight * (1 - torch.sigmoid(beta * side * (log_ratio - baseline)))).sum() / max(num_examples, 1)
    with torch.no_grad():
        up, reward = desirable.to(log_ratio.dtype), beta * log_ratio
        right = _better(side * (log_ratio - baseline))
        sums = {
            "desirable_reward": (reward * up).sum(),
            "undesirable_reward": (reward * (1 - up)).sum(),
            "desirable_share": up.sum(),
            "chosen_logprob": (logps * up).sum(),
            "rejected_logprob": (logps * (1 - up)).sum(),
            "accuracy": right.sum(),
        }
        return loss, {name: value / max(num_examples, 1) for name, value in sums.items()}


def kto_baseline(mismatched: Tensor, ref_mismatched: Tensor) -> float:
    """z_0 of `kto_loss`: the mean log(pi / ref) of responses put to other prompts than theirs, not below 0.

    (N,) each, of the whole step: a baseline by micro-batch would depend on the split.
    """
    return max(0.0, float((mismatched - ref_mismatched).mean())) if len(mismatched) else 0.0


def bradley_terry_loss(
    scores: Tensor,  # (R,) of all responses in the micro-batch; carries the gradient
    better: Tensor,  # (P,) int64, index of each pair's preferred response
    worse: Tensor,  # (P,) int64
    weights: Tensor,  # (P,) 1 / the number of pairs of the pair's prompt
    *,
    num_prompts: int,
    margins: Tensor | None = None,  # (P,) how much better, in scores
    centre: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """-log sigma(r_w - r_l - margin), a mean over a prompt's K(K-1)/2 pairs, then over prompts.

    InstructGPT's eq. 1: all pairs of a prompt in one batch element, so that a response that stands in K - 1 pairs is
    scored once and a long ranking does not outweigh a pair. `margins` as in Llama 2 (eq. 2); `centre` times
    (r_w + r_l)^2 holds the scores around 0, which the first term leaves free. Metrics: `accuracy` (a tie is half),
    `margin`, `score` (means in the same weighting), and `nll`, the first term without its margin.
    """
    difference = scores[better] - scores[worse]  # (P,)
    wanted = difference if margins is None else difference - margins
    both = scores[better] + scores[worse]
    denominator = max(num_prompts, 1)
    loss = (weights * (-logsigmoid(wanted) + centre * both.square())).sum() / denominator
    with torch.no_grad():
        figures = {
            "accuracy": _better(difference),
            "margin": difference,
            "score": both / 2,
            "nll": -logsigmoid(difference),
        }
        return loss, {name: (weights * value).sum() / denominator for name, value in figures.items()}


def _smoothed(margin: Tensor, label_smoothing: float) -> Tensor:
    """(B,) -(1 - e) log sigma(m) - e log sigma(-m)."""
    return -(1 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)


def _log_odds(mean_logprob: Tensor) -> Tensor:
    """log P - log(1 - P) of P = exp(mean_logprob), precise near P = 0 and P = 1."""
    held = mean_logprob.clamp(max=MAX_MEAN_LOGPROB)
    return held - torch.log(-torch.expm1(held))


def _better(difference: Tensor) -> Tensor:
    """1 where above 0, 1/2 where 0: a model that cannot tell a pair apart is not right."""
    return (difference > 0).to(difference.dtype) + 0.5 * (difference == 0).to(difference.dtype)


def _pair_metrics(
    chosen: Tensor, rejected: Tensor, ref_chosen: Tensor, ref_rejected: Tensor, beta: float, num_pairs: int
) -> Metrics:
    """Means over the step's pairs: `chosen_reward`, `rejected_reward` (beta log(pi / ref), the implicit rewards),
    their `margin`, `accuracy` (a tie is half), and `chosen_logprob`, `rejected_logprob`."""
    with torch.no_grad():
        won, lost = beta * (chosen - ref_chosen), beta * (rejected - ref_rejected)
        values = {
            "chosen_reward": won,
            "rejected_reward": lost,
            "margin": won - lost,
            "accuracy": _better(preferred(chosen, rejected, ref_chosen, ref_rejected)),
            "chosen_logprob": chosen,
            "rejected_logprob": rejected,
        }
        return {name: value.sum() / max(num_pairs, 1) for name, value in values.items()}
