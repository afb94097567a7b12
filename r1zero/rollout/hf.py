"""The `transformers` engine: no vLLM needed. The fallback, and the reference that the other engines are tested against.

A plain sampling loop over a KV cache. Each prompt is prefilled once for all its completions, rows that have ended
leave the batch, and given a seed the result is the same to the bit on a CPU, which an exact resume relies on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from r1zero.data.records import Completion, FinishReason
from r1zero.prompts.tokens import decode
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.requests import (
    check_context,
    check_prompts,
    load_model_config,
    load_tokenizer,
    stream_seed,
)
from r1zero.rollout.weights import named_weights, unwrapped


@dataclass(eq=False)
class _Row:
    """One completion while it grows."""

    prompt_index: int
    sample_index: int
    stream: np.random.Generator
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class TransformersEngine:
    """Samples from a Hugging Face causal model: its own copy from a folder, or the trainer's live module, shared."""

    name = "transformers"

    def __init__(
        self,
        model: str | nn.Module,
        *,
        tokenizer: Any = None,
        compute_dtype: torch.dtype = torch.float32,
        max_context: int,
        max_sequences: int = 256,
    ) -> None:
        """`model`: a folder or hub id, loaded in `compute_dtype`, or a live module, run under autocast where its
        weights are of another dtype. `tokenizer` may be left out with a folder. Raises UserError where it is missing.
        """
        if isinstance(model, str):
            from transformers import AutoModelForCausalLM

            load_model_config(model)  # says it in one line when this is no model
            loaded = AutoModelForCausalLM.from_pretrained(model, dtype=compute_dtype)
            self.model: Any = loaded.to("cuda" if torch.cuda.is_available() else "cpu")
            self.tokenizer = tokenizer if tokenizer is not None else load_tokenizer(model)
        else:
            if tokenizer is None:
                raise ValueError("a live model needs its tokenizer")
            self.model, self.tokenizer = unwrapped(model), tokenizer
        check_context(self.model.config, max_context)
        self.compute_dtype = compute_dtype
        self.max_context = max_context
        self.max_sequences = max_sequences

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`. Batches of `max_sequences`, prompts of like length together."""
        check_prompts(prompts, sampling, n, self.max_context)
        groups: list[list[Completion | None]] = [[None] * n for _ in prompts]
        base_seed = sampling.seed if sampling.seed is not None else int(np.random.SeedSequence().entropy)  # type: ignore[arg-type]
        rows = [
            _Row(i, j, np.random.Generator(np.random.Philox(stream_seed(base_seed, i, j))))
            for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i]))  # like lengths together: less padding
            for j in range(n)
        ]
        with self._generating():
            for start in range(0, len(rows), self.max_sequences):
                for row, completion in self._batch(prompts, rows[start : start + self.max_sequences], sampling):
                    groups[row.prompt_index][row.sample_index] = completion
                    if on_completion is not None:
                        on_completion(row.prompt_index, row.sample_index, completion)
        return [tuple(completion for completion in group if completion is not None) for group in groups]

    def sync_weights(self, model: nn.Module) -> None:
        """Copy `model`'s weights; nothing to do where it is the live module itself."""
        if unwrapped(model) is self.model:
            return
        own = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in named_weights(model):
                own[name].copy_(tensor)

    def sleep(self) -> None:
        """Nothing is held between calls but the weights, which may be the trainer's."""

    def wake(self) -> None:
        """Nothing was given away."""

    def close(self) -> None:
        self.model = None

    @contextmanager
    def _generating(self) -> Iterator[None]:
        """No gradient, no dropout, the compute dtype; the trainer's module is as it was afterwards."""
        was_training = self.model.training
        self.model.eval()
        weights_dtype = next(self.model.parameters()).dtype
        autocast = torch.autocast(
            self.model.device.type, dtype=self.compute_dtype, enabled=weights_dtype != self.compute_dtype
        )
        try:
            # no_grad, not inference_mode: what a live module caches here (rotary tables) must stay usable in training.
            with torch.no_grad(), autocast:
                yield
        finally:
            self.model.train(was_training)

    def _batch(
        self, prompts: Sequence[Sequence[int]], rows: list[_Row], sampling: Sampling
    ) -> Iterator[tuple[_Row, Completion]]:
        """Sample every row of one batch to its end; yields each as it ends."""
        from transformers import DynamicCache

        device = self.model.device
        indices = list(dict.fromkeys(row.prompt_index for row in rows))
        width = max(len(prompts[i]) for i in indices)
        pad = [[0] * (width - len(prompts[i])) for i in indices]
        input_ids = torch.tensor([p + list(prompts[i]) for p, i in zip(pad, indices, strict=True)], device=device)
        mask = torch.tensor([[0] * len(p) + [1] * (width - len(p)) for p in pad], device=device)  # (prompts, width)
        # Positions count real tokens: a left-padded row must see the same positions as alone, and as in training.
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache(config=self.model.config)
        logits = self._forward(input_ids, mask, positions, cache)  # (prompts, vocabulary)

        # One prefill a prompt, then a row a completion.
        source = torch.tensor([indices.index(row.prompt_index) for row in rows], device=device)
        cache.batch_select_indices(source)
        logits, mask, position = logits[source], mask[source], positions[source, -1]
        while True:
            token_ids, logprobs = sample(logits, sampling, [row.stream for row in rows])
            ended = []
            for row, token_id, logprob in zip(rows, token_ids.tolist(), logprobs.tolist(), strict=True):
                row.token_ids.append(token_id)
                row.logprobs.append(logprob)
                reason = self._finish_reason(row, sampling)
                ended.append(reason is not None)
                if reason is not None:
                    yield row, self._completion(row, reason)
            if all(ended):
                return
            if any(ended):
                keep = torch.tensor([i for i, end in enumerate(ended) if not end], device=device)
                rows = [row for row, end in zip(rows, ended, strict=True) if not end]
                cache.batch_select_indices(keep)
                token_ids, mask, position = token_ids[keep], mask[keep], position[keep]
            position = position + 1
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            logits = self._forward(token_ids[:, None], mask, position[:, None], cache)

    def _forward(self, input_ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """(B, V) float32 logits of each row's last token; the cache grows by the input."""
        out = self.model(
            input_ids=input_ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits[:, -1].float()
        return logits

    def _finish_reason(self, row: _Row, sampling: Sampling) -> FinishReason | None:
        if row.token_ids[-1] in sampling.stop_token_ids:
            return "stop"
        if sampling.stop:
            # The text may only just have appeared, and a character may take 4 byte tokens.
            tail = decode(self.tokenizer, row.token_ids[-4 * max(map(len, sampling.stop)) - 4 :])
            if any(text in tail for text in sampling.stop):
                return "stop"
        return "length" if len(row.token_ids) >= sampling.max_tokens else None

    def _completion(self, row: _Row, reason: FinishReason) -> Completion:
        return Completion(
            token_ids=tuple(row.token_ids),
            text=decode(self.tokenizer, row.token_ids),
            logprobs=tuple(row.logprobs),
            finish_reason=reason,
        )


def sample(logits: Tensor, sampling: Sampling, streams: Sequence[np.random.Generator]) -> tuple[Tensor, Tensor]:
    """One token of each row: ids (B,), and their float32 logprobs (B,) under the distribution sampled from.

    Inverse transform with one uniform number a row from that row's own stream, so a row's choice does not depend on
    its neighbours. Greedy (temperature 0) reports logprobs at temperature 1, as vLLM does.
    """
    if sampling.temperature == 0:
        token_ids = logits.argmax(-1)
        return token_ids, logits.log_softmax(-1).gather(-1, token_ids[:, None])[:, 0]
    logprobs = filtered(logits / sampling.temperature, sampling).log_softmax(-1)  # (B, V)
    cumulative = logprobs.double().exp().cumsum(-1)  # float64: a float32 sum over 150,000 entries loses the rare ones
    uniform = torch.tensor([[stream.random()] for stream in streams], dtype=torch.float64, device=logits.device)
    # right=True: the first entry strictly above, so a token of probability 0 is never taken.
    token_ids = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
    token_ids = token_ids.clamp(max=logits.shape[-1] - 1)
    return token_ids[:, 0], logprobs.gather(-1, token_ids)[:, 0]


def filtered(logits: Tensor, sampling: Sampling) -> Tensor:
    """(B, V) logits with -inf where min-p, then top-k, then top-p cut, in vLLM's order; ties at the k-th are kept."""
    if sampling.min_p > 0:
        probabilities = logits.softmax(-1)
        floor = sampling.min_p * probabilities.amax(-1, keepdim=True)
        logits = logits.masked_fill(probabilities < floor, float("-inf"))
    if 0 < sampling.top_k < logits.shape[-1]:
        kth = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < kth, float("-inf"))
    if sampling.top_p < 1:
        ordered, order = logits.sort(dim=-1)  # ascending
        cut = ordered.softmax(-1).cumsum(-1) <= 1 - sampling.top_p
        cut[:, -1] = False  # the likeliest always stays
        logits = logits.masked_fill(torch.zeros_like(cut).scatter(-1, order, cut), float("-inf"))
    return logits
