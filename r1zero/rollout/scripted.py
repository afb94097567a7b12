"""The `scripted` engine: completions from a list or a function, no model. What the tests of every stage sample from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from r1zero.data.records import Completion
from r1zero.prompts.tokens import decode
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.requests import check_prompts

Script = Callable[[Sequence[int], int, int], str | Completion]
"""(prompt ids, prompt index, sample index) -> a text, or a whole Completion."""


class ScriptedEngine:
    """Answers from `script`: a function, or texts handed out in turn (over calls too) and again from the start.

    A text is tokenised with `tokenizer` and ended with the first stop token; it is cut at `max_tokens` like a sampled
    one. `logprob` is what it claims for every token.
    """

    name = "scripted"

    def __init__(
        self,
        script: Script | Sequence[str | Completion],
        tokenizer: Any = None,
        *,
        logprob: float = -0.5,
        max_context: int = 1 << 30,
    ) -> None:
        self.script = script
        self.tokenizer = tokenizer
        self.logprob = logprob
        self.max_context = max_context
        self.num_served = 0
        """Completions handed out so far."""
        self.num_syncs = 0
        """How often `sync_weights` was called."""
        self.awake = True

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`."""
        if not self.awake:
            raise RuntimeError("generate was called on a sleeping engine")
        check_prompts(prompts, sampling, n, self.max_context)
        groups: list[tuple[Completion, ...]] = []
        for i, prompt in enumerate(prompts):
            group = []
            for j in range(n):
                said = self._next(prompt, i, j)
                completion = said if isinstance(said, Completion) else self._spoken(said, sampling)
                group.append(completion)
                if on_completion is not None:
                    on_completion(i, j, completion)
            groups.append(tuple(group))
        return groups

    def sync_weights(self, model: nn.Module) -> None:
        self.num_syncs += 1

    def sleep(self) -> None:
        self.awake = False

    def wake(self) -> None:
        self.awake = True

    def close(self) -> None:
        self.awake = False

    def _next(self, prompt: Sequence[int], i: int, j: int) -> str | Completion:
        served = self.num_served
        self.num_served += 1
        if callable(self.script):
            return self.script(prompt, i, j)
        return self.script[served % len(self.script)]

    def _spoken(self, text: str, sampling: Sampling) -> Completion:
        if self.tokenizer is None:
            raise ValueError("a scripted text needs a tokenizer; a whole Completion does not")
        token_ids = [*self.tokenizer.encode(text, add_special_tokens=False), *sampling.stop_token_ids[:1]]
        cut = len(token_ids) > sampling.max_tokens
        token_ids = token_ids[: sampling.max_tokens]
        return Completion(
            token_ids=tuple(token_ids),
            text=decode(self.tokenizer, token_ids),
            logprobs=(self.logprob,) * len(token_ids),
            finish_reason="length" if cut else "stop",
        )
