"""The records that cross module borders, from a data file to the loss. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem as a data source gives it."""

    id: str
    """Unique in its source."""
    prompt: str
    """The question's text, before any template."""
    answer: str = ""
    """The gold answer as the source writes it; empty where a verifier needs none (code with tests)."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What a verifier needs beyond the answer (`tests`, `entry_point`, a reasoning-gym entry); level and subject."""
    source: str = ""
    """Where it came from: a file name, a hub id, `reasoning_gym:chain_sum`; of mixed data the source's name."""
    verifier: str = ""
    """Name of its own verifier; empty: the reward's accuracy term judges it."""
    verifier_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `verifier`."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What the engine sampled for one prompt: the very tokens, never decoded and tokenised again."""

    token_ids: tuple[int, ...]
    """(T,) sampled ids, with the stop token where the model ended by itself."""
    text: str
    """Decoded `token_ids` without special tokens."""
    logprobs: tuple[float, ...]
    """(T,) log-probability of each sampled id under the distribution sampled from (after temperature, top-p, top-k)."""
    finish_reason: FinishReason
    """`stop`: the model ended; `length`: it was cut off at the token limit."""
    version: int = 0
    """Of the weights that made it: how many syncs a vLLM server had had; 0 where the engine does not count them."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One problem's group: the prompt as sent to the engine and its G completions."""

    problem: Problem
    prompt_ids: tuple[int, ...]
    """(P,) prompt token ids, template applied."""
    completions: tuple[Completion, ...]
    """G of them; the group whose mean reward is the baseline."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One completion on its way to the loss."""

    prompt_ids: tuple[int, ...]
    """(P,), P >= 1."""
    completion_ids: tuple[int, ...]
    """(T,), T >= 1; of an episode of several turns, everything after the prompt."""
    own: tuple[bool, ...] | None = None
    """(T,) True on the policy's own tokens: an observation is read, and neither predicted nor trained on. None: all."""

    def __post_init__(self) -> None:
        if self.own is not None and (len(self.own) != len(self.completion_ids) or not any(self.own)):
            raise ValueError(f"`own` has {len(self.own)} marks for {len(self.completion_ids)} tokens, or marks none")

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + len(self.completion_ids)
