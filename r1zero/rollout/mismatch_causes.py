"""Why engine and trainer differ: what a few rows, scored again alone and unpadded, say of each side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from r1zero.data.records import Completion
from r1zero.rollout.base import Sampling
from r1zero.rollout.hf import filtered

Rescore = Callable[[Sequence[int], Sequence[int]], Tensor]
"""(prompt ids (P,), completion ids (T,)) -> (T, V) float32 logits of the trainer's model for each completion token."""

CauseName = Literal[
    "end_token",
    "left_padding",
    "batched_forward",
    "trainer_temperature",
    "engine_temperature",
    "cut",
    "stale_weights",
    "other_weights",
    "rounding",
]
PROBE_ROWS, PROBE_TOKENS = 6, 64
"""Completions scored again for a diagnosis, and tokens of each: (384, V) logits at most."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The likeliest fault: its name, and one line that says what was seen and where to look."""

    name: CauseName
    message: str


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One completion with the trainer's view of it."""

    prompt_ids: Sequence[int]
    """(P,)"""
    completion: Completion
    trainer_logprobs: Sequence[float]
    """(T,) of `completion.token_ids`, at the sampling temperature, as the loss uses them."""
    left_padding: int | None = None
    """Padding tokens the trainer's batch put before the prompt; None: not known, or the batch is packed."""

    def abs_deltas(self) -> Tensor:
        """(T,) |trainer - engine|."""
        return (float64(self.trainer_logprobs) - float64(self.completion.logprobs)).abs()


def unseen_ends(
    rows: Sequence[Scored], sampling: Sampling, end_token_ids: Sequence[int], tokenizer: Any = None
) -> list[Cause]:
    """Ends that the engine did not see: an end token inside a completion, which ran on past it.

    This leaves no trace in the logprobs, since both sides score the same tokens, so it is looked for at every step.
    """
    unseen = set(end_token_ids) - set(sampling.stop_token_ids)
    counts = {end: sum(end in row.completion.token_ids for row in rows) for end in sorted(unseen)}
    return [
        Cause(
            name="end_token",
            message=f"{count} of {len(rows)} completions contain the end token {_spell(end, tokenizer)}, at which the "
            f"engine does not stop (it stops at {[_spell(i, tokenizer) for i in sampling.stop_token_ids]}): the engine "
            "and the model or its template have different EOS tokens",
        )
        for end, count in counts.items()
        if count
    ]


def wrong_last_tokens(rows: Sequence[Scored], threshold: float) -> list[Cause]:
    """A mismatch that sits on the last token of completions that ended by themselves, and nowhere else.

    One token of a long completion does not move the mean, so this too is looked for at every step.
    """
    ended = [row.abs_deltas() for row in rows if row.completion.finish_reason == "stop"]
    if not ended:
        return []
    last = torch.stack([deltas[-1] for deltas in ended])
    before = torch.cat([d[:-1] for d in ended] + [r.abs_deltas() for r in rows if r.completion.truncated])
    if before.numel() == 0 or last.median() < max(threshold, 10 * before.mean().item()):
        return []
    return [
        Cause(
            name="end_token",
            message=f"the difference sits on the last token of completions that ended ({last.mean():.3f} there, "
            f"{before.mean():.2g} elsewhere): the trainer scores another EOS token than the engine sampled",
        )
    ]


def diagnose(
    rows: Sequence[Scored],
    sampling: Sampling,
    rescore: Rescore,
    *,
    began_clean: bool,
    num_updates: int,
    low_precision: bool,
) -> list[Cause]:
    """Name what makes engine and trainer differ. `began_clean`: they agreed before the weights were first updated.

    Let d be the mean |delta| of the rows looked at. Scored alone the trainer's model gives a third opinion; a side that
    is within d/3 of it is right, and both cannot be, since they are d apart. The wrong side is then tried at other
    temperatures, and, where it is the engine, with a cut of the distribution.
    """
    worst = sorted((row for row in rows if row.completion.num_tokens), key=lambda row: -row.abs_deltas().mean().item())
    probe = [(row, rescore(row.prompt_ids, row.completion.token_ids[:PROBE_TOKENS])) for row in worst[:PROBE_ROWS]]
    logits = torch.cat([alone.detach().float().cpu() for _, alone in probe])  # (N, V)
    tokens = torch.tensor([t for row, alone in probe for t in row.completion.token_ids[: len(alone)]])  # (N,)
    engine = float64([x for row, alone in probe for x in row.completion.logprobs[: len(alone)]])
    trainer = float64([x for row, alone in probe for x in row.trainer_logprobs[: len(alone)]])
    apart = (trainer - engine).abs().mean().item()

    def residual(target: Tensor, temperature: float) -> float:
        return (_logprobs(logits, tokens, temperature) - target).abs().mean().item()

    causes = []
    if residual(trainer, sampling.temperature) >= apart / 3:
        fitted = fit_temperature(lambda t: residual(trainer, t), sampling.temperature)
        if fitted is not None:
            causes.append(_temperature_cause("trainer", fitted, sampling.temperature))
        else:
            causes.append(_forward_cause(rows))
    cut = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
    as_sampled = filtered(logits / sampling.temperature, sampling) * sampling.temperature if cut else logits
    engine_residual = (_logprobs(as_sampled, tokens, sampling.temperature) - engine).abs()
    if engine_residual.mean().item() < apart / 3:
        if cut and not causes:
            causes.append(_cut_as_set(sampling))
        return causes
    fitted = fit_temperature(lambda t: residual(engine, t), sampling.temperature)
    higher = engine - _logprobs(logits, tokens, sampling.temperature)  # (N,)
    if fitted is not None:
        causes.append(_temperature_cause("engine", fitted, sampling.temperature))
    elif not cut and (higher > -0.1 * higher.abs().mean()).double().mean() > 0.99:
        causes.append(_cut_unasked(higher.mean().item()))
    else:
        causes.append(_weights_cause(engine_residual.mean().item(), began_clean, num_updates, low_precision))
    return causes


def _cut_as_set(sampling: Sampling) -> Cause:
    return Cause(
        name="cut",
        message=f"top_p={sampling.top_p}, top_k={sampling.top_k}, min_p={sampling.min_p} cut the engine's "
        "distribution, whose logprobs are of what is left; the trainer's are of the whole: sample with top_p 1, "
        "top_k 0 and min_p 0",
    )


def _cut_unasked(higher: float) -> Cause:
    return Cause(
        name="cut",
        message=f"the engine's logprobs are never below the trainer's (by {higher:.3f} higher in the mean): it cuts "
        "its distribution (top-p, top-k, min-p) though the config names no cut; look for a generation_config.json "
        "that fills in unset parameters",
    )


def fit_temperature(residual: Callable[[float], float], configured: float) -> float | None:
    """The temperature that explains one side, or None: it must leave under a third of the residual at `configured`."""
    grid = [0.1 * 1.15**i for i in range(28)]  # 0.1 to 4.4
    best = min(range(len(grid)), key=lambda i: residual(grid[i]))
    low, high = math.log(grid[max(best - 1, 0)]), math.log(grid[min(best + 1, len(grid) - 1)])
    for _ in range(14):  # thirds: the bracket shrinks to 0.1%
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if residual(math.exp(a)) < residual(math.exp(b)):
            high = b
        else:
            low = a
    fitted = math.exp((low + high) / 2)
    explains = residual(fitted) < residual(configured) / 3 and abs(math.log(fitted / configured)) > 0.01
    return fitted if explains else None


def _temperature_cause(side: Literal["trainer", "engine"], fitted: float, configured: float) -> Cause:
    name: CauseName = "trainer_temperature" if side == "trainer" else "engine_temperature"
    other = "engine" if side == "trainer" else "trainer"
    return Cause(
        name=name,
        message=f"the {side}'s logprobs are those of temperature {fitted:.3g}, the config says {configured:g} and the "
        f"{other} may follow it: the temperature is set on one side only",
    )


def _forward_cause(rows: Sequence[Scored]) -> Cause:
    padded = [row.abs_deltas() for row in rows if row.left_padding]
    unpadded = [row.abs_deltas() for row in rows if row.left_padding == 0]
    if padded and (not unpadded or torch.cat(unpadded).mean() < torch.cat(padded).mean() / 3):
        seen = f"{torch.cat(padded).mean():.3f} in rows with left padding"
        seen += f", {torch.cat(unpadded).mean():.3f} in rows without" if unpadded else ""
        return Cause(
            name="left_padding",
            message=f"the trainer's logprobs are wrong under left padding ({seen}) and right when the same tokens are "
            "scored alone: its position ids or its attention mask do not leave the padding out",
        )
    return Cause(
        name="batched_forward",
        message="the trainer's logprobs in its batch differ from those of the same tokens scored alone: its position "
        "ids or its attention mask (left padding, packing) are wrong, or the weights moved in between",
    )


def _weights_cause(residual: float, began_clean: bool, num_updates: int, low_precision: bool) -> Cause:
    if low_precision and residual < 0.1 and not began_clean:
        return Cause(
            name="rounding",
            message=f"the engine is {residual:.3f} off from the first step on, in bfloat16: likely rounding; compare "
            "with engine.dtype float32, and keep importance_correction on",
        )
    if num_updates > 0:
        return Cause(
            name="stale_weights",
            message=f"the engine does not have the trainer's weights after {num_updates} updates, and no temperature "
            "explains it: the weight sync is stale (not called, or part of the weights does not arrive)",
        )
    return Cause(
        name="other_weights",
        message="the engine differs from the trainer before any update, and no temperature explains it: it was started "
        "on other weights, or computes the model otherwise",
    )


def _logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """(N,) float64 logprobs of `tokens` at a temperature."""
    scaled = logits / temperature
    return (scaled.gather(-1, tokens[:, None])[:, 0] - scaled.logsumexp(-1)).double()


def float64(values: Sequence[float]) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64, device="cpu")


def _spell(token_id: int, tokenizer: Any) -> str:
    return str(token_id) if tokenizer is None else f"{tokenizer.convert_ids_to_tokens(token_id)} ({token_id})"
