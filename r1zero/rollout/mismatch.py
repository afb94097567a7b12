"""The mismatch guard: engine and trainer must give the same tokens the same logprobs, and when they do not, why.

Both hold the same weights after a sync, so what differs is a fault, or rounding. Training on other probabilities than
were sampled from looks healthy for a while and then collapses (arXiv 2510.26788; huggingface/trl issue 3867), so the
difference is measured at every step. Past the threshold a few completions are scored again, alone and unpadded: which
side agrees with that, and at which temperature, tells the faults apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.prompts import Template
from r1zero.rollout.base import Sampling
from r1zero.rollout.mismatch_causes import Cause, Rescore, Scored, diagnose, float64, unseen_ends, wrong_last_tokens


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """Differences over all completion tokens, delta = trainer's logprob - engine's, nats. Tokens are the engine's
    samples, so the KL is KL(engine || trainer) by joschu.net/blog/kl-approx.html."""

    mean_abs: float
    max_abs: float
    kl_k1: float
    """Mean of -delta: unbiased, may be below 0."""
    kl_k3: float
    """Mean of exp(delta) - 1 - delta: never below 0, less variance."""
    mean_ratio: float
    """Mean of exp(delta); its expectation is 1 where the trainer's support is within the engine's."""
    share_above: float
    """Share of tokens whose |delta| is over the threshold."""
    num_tokens: int

    def metrics(self) -> dict[str, float]:
        """Names as logged."""
        fields = ("mean_abs", "max_abs", "kl_k1", "kl_k3", "mean_ratio", "share_above")
        return {f"mismatch/{name}": getattr(self, name) for name in fields}


def measure(engine_logprobs: Tensor, trainer_logprobs: Tensor, mask: Tensor, *, threshold: float = 0.05) -> Mismatch:
    """Compare (B, T) logprobs where `mask` (B, T) is True. No token at all: zeros, and a ratio of 1."""
    delta = (trainer_logprobs.detach().double() - engine_logprobs.detach().double())[mask]
    if delta.numel() == 0:
        return Mismatch(mean_abs=0, max_abs=0, kl_k1=0, kl_k3=0, mean_ratio=1, share_above=0, num_tokens=0)
    return Mismatch(
        mean_abs=delta.abs().mean().item(),
        max_abs=delta.abs().max().item(),
        kl_k1=-delta.mean().item(),
        kl_k3=(delta.expm1() - delta).mean().item(),
        mean_ratio=delta.exp().mean().item(),
        share_above=(delta.abs() > threshold).double().mean().item(),
        num_tokens=delta.numel(),
    )


def combined(parts: Sequence[Mismatch]) -> Mismatch:
    """The measure of all processes' tokens together, from each one's."""
    total = sum(part.num_tokens for part in parts)
    if total == 0:
        return parts[0]

    def mean(name: str) -> float:
        return float(sum(getattr(part, name) * part.num_tokens for part in parts) / total)

    return Mismatch(
        mean_abs=mean("mean_abs"),
        max_abs=max(part.max_abs for part in parts),
        kl_k1=mean("kl_k1"),
        kl_k3=mean("kl_k3"),
        mean_ratio=mean("mean_ratio"),
        share_above=mean("share_above"),
        num_tokens=total,
    )


def logits_alone(model: nn.Module, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> Tensor:
    """(T, V) float32 logits of one sequence on its own: no padding, no packing, positions 0, 1, 2, …"""
    device = next(model.parameters()).device
    ids = torch.tensor([[*prompt_ids, *token_ids]], device=device)
    with torch.no_grad():
        out: Any = model(input_ids=ids, use_cache=False, logits_to_keep=len(token_ids) + 1)
    logits: Tensor = out.logits[0, :-1].float()
    return logits


class MismatchGuard:
    """Measures each step and, past the threshold, says what is wrong. One a run: it remembers how the run began."""

    def __init__(
        self,
        *,
        threshold: float,
        end_token_ids: Sequence[int] = (),
        tokenizer: Any = None,
        low_precision: bool = False,
    ) -> None:
        """`threshold`: mean |delta| in nats (`engine.mismatch_warn`). `end_token_ids`: every id the model may end with:
        the tokenizer's EOS, generation_config's, the chat template's end of turn. `low_precision`: either side
        computes in bfloat16."""
        self.threshold = threshold
        self.end_token_ids = tuple(end_token_ids)
        self.tokenizer = tokenizer
        self.low_precision = low_precision
        self.first_mean_abs: float | None = None
        """How the run began, nats; part of a run's state."""

    def check(
        self,
        rows: Sequence[Scored],
        sampling: Sampling,
        rescore: Rescore,
        *,
        num_updates: int,
        everyone: Callable[[Mismatch], Mismatch] | None = None,
    ) -> tuple[Mismatch, list[Cause]]:
        """The measure of one step's rows, and the causes to warn about: none where all is well.

        `num_updates`: optimizer steps taken on the weights before this rollout. `rescore` is called for a few rows,
        and only when the threshold is passed, or the difference has grown tenfold since the run began. `everyone`:
        the measure of these rows -> that of all processes' rows, which is what the threshold is for.
        """
        engine = torch.cat([float64(row.completion.logprobs) for row in rows]) if rows else torch.zeros(0)
        trainer = torch.cat([float64(row.trainer_logprobs) for row in rows]) if rows else torch.zeros(0)
        mismatch = measure(engine, trainer, torch.ones_like(engine, dtype=torch.bool), threshold=self.threshold)
        if everyone is not None:
            mismatch = everyone(mismatch)
        if mismatch.num_tokens == 0:
            return mismatch, []
        if self.first_mean_abs is None:
            self.first_mean_abs = mismatch.mean_abs
        causes = unseen_ends(rows, sampling, self.end_token_ids, self.tokenizer)
        causes += wrong_last_tokens(rows, self.threshold)
        if causes:
            return mismatch, causes
        grown = mismatch.mean_abs > max(10 * self.first_mean_abs, self.threshold / 10)
        if rows and (mismatch.mean_abs > self.threshold or grown):
            causes = diagnose(
                rows,
                sampling,
                rescore,
                began_clean=num_updates > 0 and self.first_mean_abs < mismatch.mean_abs / 2,
                num_updates=num_updates,
                low_precision=self.low_precision,
            )
        return mismatch, causes


def end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, template: Template) -> tuple[int, ...]:
    """Every id that model, tokenizer or template may mean as the end."""
    own = getattr(model.generation_config, "eos_token_id", None)
    ids = [tokenizer.eos_token_id, *(own if isinstance(own, list) else [own]), *template.stop_token_ids(tokenizer)]
    return tuple(dict.fromkeys(i for i in ids if i is not None))
