"""On-policy distillation: a student learns from a teacher's distribution on the student's own rollouts. Pure.

Source: GKD, arXiv 2306.13649 (Agarwal et al.): eq. 1, KL(P || Q) = sum over the vocabulary of P log(P / Q); eq. 2, the
generalised Jensen-Shannon divergence

    JSD_b(P || Q) = b KL(P || M) + (1 - b) KL(Q || M),  M = b P + (1 - b) Q,  0 < b < 1,

P the teacher, Q the student. As b goes to 0, JSD_b / b goes to the forward KL(P || Q); as b goes to 1, JSD_b / (1 - b)
to the reverse KL(Q || P). We say `beta` for b; 0 and 1 name those two KLs themselves (as TRL's GKD trainer does).
Where only the sampled token's logprob is known of the teacher (a server's prompt logprobs), the reverse KL is estimated
on it and serves as a per-token advantage: its expectation under the student is -KL(Q || P).
All take full log-probabilities, nats, and sum in float32 or wider.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def forward_kl(
    student_logprobs: Tensor,  # (..., V) log Q, carries the gradient
    teacher_logprobs: Tensor,  # (..., V) log P
) -> Tensor:
    """(...,) KL(P || Q), teacher first: covers all the teacher says. A token the teacher never says counts 0."""
    return _kl(teacher_logprobs, student_logprobs)


def reverse_kl(student_logprobs: Tensor, teacher_logprobs: Tensor) -> Tensor:
    """(...,) KL(Q || P) of (..., V), student first: seeks what the teacher likes. inf where the student says what the
    teacher never does."""
    return _kl(student_logprobs, teacher_logprobs)


def generalized_jsd(student_logprobs: Tensor, teacher_logprobs: Tensor, *, beta: float) -> Tensor:
    """(...,) JSD_beta(P || Q) of (..., V): at most the entropy of (beta, 1 - beta), finite whatever the supports.

    beta 0: the forward KL; 1: the reverse KL. Raises ValueError outside [0, 1].
    """
    if not 0 <= beta <= 1:
        raise ValueError(f"beta lies in [0, 1], got {beta}")
    if beta == 0:
        return forward_kl(student_logprobs, teacher_logprobs)
    if beta == 1:
        return reverse_kl(student_logprobs, teacher_logprobs)
    teacher, student = _wide(teacher_logprobs), _wide(student_logprobs)
    floor = torch.finfo(teacher.dtype).min  # logaddexp of two -inf has a nan gradient
    mixture = torch.logaddexp(
        teacher.clamp(min=floor) + math.log(beta), student.clamp(min=floor) + math.log1p(-beta)
    )  # (..., V) log M
    return beta * _kl(teacher, mixture) + (1 - beta) * _kl(student, mixture)


def distillation_loss(
    student_logprobs: Tensor,  # (B, T, V) carries the gradient
    teacher_logprobs: Tensor,  # (B, T, V)
    mask: Tensor,  # (B, T) bool, True on the student's own tokens
    *,
    beta: float,
    num_tokens: int,  # True tokens of the whole step, all micro-batches and ranks
) -> tuple[Tensor, dict[str, Tensor]]:
    """JSD_beta summed over the student's tokens and divided by `num_tokens` (eq. 3 of arXiv 2306.13649, lambda = 1: the
    rollouts are the student's, and no gradient goes through their sampling).

    Returns a scalar and the detached metric `distill/divergence`; both add up over micro-batches.
    """
    divergence = generalized_jsd(student_logprobs[mask], teacher_logprobs[mask], beta=beta)  # (N,)
    loss = divergence.sum() / max(num_tokens, 1)
    return loss, {"distill/divergence": loss.detach()}


def reverse_kl_advantages(
    student_logprobs: Tensor,  # (B, T) of the sampled tokens, as they were sampled
    teacher_logprobs: Tensor,  # (B, T) of the same tokens
    mask: Tensor,  # (B, T) bool, True on the student's own tokens
    *,
    scale: float = 1.0,
    clip: float = math.inf,
) -> Tensor:
    """(B, T) scale * (log P - log Q) of each sampled token, without gradient, cut to [-clip, clip] before scaling; 0
    where not masked.

    The one-sample estimate of -KL(Q || P) at each token, an advantage for any policy loss; to be added to a verifier's
    where both are wanted. With `clip` infinite, a token impossible for the teacher is -inf: set a bound.
    """
    gap = (teacher_logprobs - student_logprobs).detach().masked_fill(~mask, 0.0)
    return scale * gap.clamp(-clip, clip)


def _kl(first: Tensor, second: Tensor) -> Tensor:
    """(...,) KL(first || second) of log-probabilities (..., V); 0 log 0 is 0, and its gradient too."""
    first, second = _wide(first), _wide(second)
    possible = first > -math.inf  # cut before the product: 0 * inf is nan in the backward pass
    gap = first.masked_fill(~possible, 0.0) - second.masked_fill(~possible, 0.0)
    return (first.masked_fill(~possible, 0.0).exp() * gap).masked_fill(~possible, 0.0).sum(-1)


def _wide(logprobs: Tensor) -> Tensor:
    return logprobs if logprobs.dtype == torch.float64 else logprobs.float()
