"""Process supervision: the rewards of a completion's steps, put on its tokens. Between `rewards.py` and the loss.

A verifier that judges a process returns a verdict with `steps`: how far into the text each reaches, and its score. A
verdict without them is one step that ends with the completion, so that an outcome can stand beside a process. All step
rewards of a group are normalised together, and a token's advantage is the sum of those of its own and the later steps
(DeepSeekMath, arXiv 2402.03300 section 4.1.3).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from r1zero.algorithms.advantages import STD_EPS, process_advantages
from r1zero.algorithms.rewards import Reward
from r1zero.data.records import Completion
from r1zero.prompts.tokens import decode

CONTEXT = 4
"""Tokens before a token that can change what it adds to the text: a character has up to four bytes."""


def group_process_advantages(
    completions: Sequence[Completion],
    rewards: Sequence[Reward],
    tokenizer: Any,
    *,
    prefill: str,
    num_positions: int,
    eps: float = STD_EPS,
) -> Tensor:
    """(G, num_positions) advantages of one group's tokens; 0 for a dropped completion, and after the last step.

    prefill: what stood before the sampled text when the verifiers read it; a step that ends in it counts as the first
    token's.
    """
    placed = [place_steps(c, r, tokenizer, prefill) for c, r in zip(completions, rewards, strict=True)]
    most = max(map(len, placed), default=0)
    if not most:
        return torch.zeros(len(completions), num_positions)
    padded = [steps + [(0, 0.0)] * (most - len(steps)) for steps in placed]
    ends = torch.tensor([[end for end, _ in steps] for steps in padded])
    values = torch.tensor([[value for _, value in steps] for steps in padded])
    exists = torch.arange(most)[None, :] < torch.tensor([len(steps) for steps in placed])[:, None]
    return process_advantages(values[None], ends[None], exists[None], num_positions=num_positions, eps=eps)[0]


def place_steps(completion: Completion, reward: Reward, tokenizer: Any, prefill: str) -> list[tuple[int, float]]:
    """(position of its last token, reward) of each step; none where the completion is dropped or empty."""
    if not reward.keep or not completion.token_ids:
        return []
    last = completion.num_tokens - 1
    reached = text_lengths(completion.token_ids, tokenizer)
    return [
        (last if step.end is None else min(bisect_left(reached, step.end - len(prefill)), last), step.value)
        for step in reward.steps
    ]


def text_lengths(token_ids: Sequence[int], tokenizer: Any) -> list[int]:
    """(T,) characters of the text up to and with each token. Each is decoded beside the tokens before it."""
    added = []
    for i in range(len(token_ids)):
        before = token_ids[max(0, i - CONTEXT) : i]
        added.append(len(decode(tokenizer, [*before, token_ids[i]])) - len(decode(tokenizer, before)))
    return list(accumulate(added))
