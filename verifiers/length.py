"""`overlong` and `cosine_length`: rewards that depend on how many tokens a completion has."""

from __future__ import annotations

import math

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, VerifierSpec, register, resolve


@register("overlong", judges="shaping", example=Sample(completion="Two.", num_tokens=2))
def overlong(num_tokens: int, *, max_tokens: int = 20480, buffer: int = 4096) -> Verdict:
    """Correct, with score 0, when the completion has at most `max_tokens - buffer` tokens; beyond that wrong, with a
    penalty that falls linearly to -1 at `max_tokens`.

    Source: DAPO's soft overlong punishment, arXiv 2503.14476 eq. 13, whose setting the defaults are. Set max_tokens to
    the recipe's sampling.max_tokens. Add it to the accuracy term with weight 1 and no gate, as the paper does.
    """
    if not 0 < buffer <= max_tokens:
        return Verdict(Outcome.ERROR, reason=f"options: 0 < buffer <= max_tokens, got {buffer} and {max_tokens}")
    free = max_tokens - buffer
    if num_tokens <= free:
        return Verdict(Outcome.CORRECT, score=0.0, reason=f"{num_tokens} tokens, free up to {free}")
    penalty = max((free - num_tokens) / buffer, -1.0)
    return Verdict(Outcome.WRONG, score=penalty, reason=f"{num_tokens} tokens, over {free} of {max_tokens}")


@register("cosine_length", example=Sample(completion="It is \\boxed{2}.", answer="2", num_tokens=5))
def cosine_length(
    completion: str,
    answer: str,
    problem: Problem,
    prompt: str,
    finish_reason: FinishReason,
    num_tokens: int,
    *,
    verifier: str = "math",
    max_tokens: int = 14336,
    correct_short: float = 0.2,
    correct_long: float = 0.1,
    wrong_short: float = -1.0,
    wrong_long: float = 0.0,
    exceeded: float = -1.0,
) -> Verdict:
    """Correct when `verifier` says so; the score goes with the length along half a cosine: for a correct completion
    from `correct_short` at 0 tokens to `correct_long` at `max_tokens`, for any other from `wrong_short` to
    `wrong_long`. A completion of `max_tokens` or more, or cut off, scores `exceeded`.

    Source: the cosine reward of arXiv 2502.03373; the defaults are its setting divided by 10 (a score lies in
    [-1, 1]): give the term weight 10. It takes the accuracy term's place. It pays wrong answers for length: watch
    `repetition`.
    `error` and `timeout` of `verifier` are handed on as they are.
    """
    if verifier == "cosine_length":
        return Verdict(Outcome.ERROR, reason="option verifier: cosine_length cannot judge by itself")
    sample = Sample(
        completion=completion,
        answer=answer,
        problem=problem,
        prompt=prompt,
        finish_reason=finish_reason,
        num_tokens=num_tokens,
    )
    inner = resolve(VerifierSpec(name=verifier))(sample)
    if inner.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
        return inner
    if num_tokens >= max_tokens or finish_reason == "length":
        score = exceeded
    elif inner.correct:
        score = cosine(num_tokens / max_tokens, correct_short, correct_long)
    else:
        score = cosine(num_tokens / max_tokens, wrong_short, wrong_long)
    reason = f"{num_tokens} tokens, {verifier}: {inner.reason}"
    return Verdict(inner.outcome, score=score, reason=reason, extracted=inner.extracted, details=inner.details)


def cosine(progress: float, start: float, end: float) -> float:
    """Half a cosine from `start` at progress 0 to `end` at progress 1."""
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * progress))
