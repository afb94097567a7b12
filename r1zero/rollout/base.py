"""The rollout engine's interface: prompt token ids in, groups of `Completion`s out; weights go in between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from r1zero.data.records import Completion

OnCompletion = Callable[[int, int, Completion], None]
"""Called as each completion ends, with its prompt's index, its index in the group and itself; may come in any order."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Every sampling parameter an engine knows. All are sent: an engine must not fill any from the model's folder."""

    max_tokens: int
    """Most tokens of one completion."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    top_k: int = 0
    """0: off."""
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a completion; kept as its last token. The model's own EOS counts only when listed here."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion, kept in its text and its tokens."""
    seed: int | None = None
    """Of this call; completion j of prompt i has its own stream derived from (seed, i, j). None: not repeatable."""


class Engine(Protocol):
    """What trains and evaluates on samples. `prompts` are token ids: nothing is tokenised here."""

    name: str
    """`vllm`, `vllm-server`, `transformers`, `scripted`, `openai`."""

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """`n` completions of each prompt, in order.

        Raises UserError for a prompt that leaves no room for `sampling.max_tokens` in the engine's context: it is
        never cut.
        """
        ...

    def sync_weights(self, model: torch.nn.Module) -> None:
        """Take over `model`'s weights (its Hugging Face names) and forget everything cached under the old ones."""
        ...

    def sleep(self) -> None:
        """Give the device's memory to the trainer, where the engine can."""
        ...

    def wake(self) -> None:
        """Take it back; the next `generate` or `sync_weights` must work as if `sleep` had not been."""
        ...

    def close(self) -> None:
        """End the engine and free what it holds."""
        ...
