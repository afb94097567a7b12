"""What every engine does before it samples: refuse what does not fit, and give each completion its own seed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r1zero.errors import UserError, first_line
from r1zero.rollout.base import Sampling


def stream_seed(seed: int, prompt_index: int, sample_index: int) -> int:
    """Seed of one completion's own random stream, below 2**63.

    A hash, not a sum: seed + index would give completion 1 of seed 0 the stream of completion 0 of seed 1.
    """
    digest = hashlib.blake2b(f"{seed}/{prompt_index}/{sample_index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def check_prompts(prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, max_context: int) -> None:
    """Raise UserError when a prompt is empty, or leaves no room for `sampling.max_tokens` in `max_context` tokens."""
    if n < 1:
        raise ValueError(f"n must be 1 or more, got {n}")
    if sampling.max_tokens < 1:
        raise ValueError(f"max_tokens must be 1 or more, got {sampling.max_tokens}")
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise UserError(f"prompt {index} has no tokens: a completion needs at least one token to follow")
        if len(prompt) + sampling.max_tokens > max_context:
            raise UserError(
                f"prompt {index} has {len(prompt)} tokens and max_tokens is {sampling.max_tokens}, "
                f"together over the engine's context of {max_context}: raise engine.max_context, lower "
                "max_tokens, or drop the prompt (data.too_long: skip)"
            )


def load_model_config(model_path: str) -> Any:
    """The folder's transformers config; UserError where it is no model."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model_path)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{model_path!r} is not a model that transformers can read: {first_line(error)}") from error


def load_tokenizer(model_path: str) -> Any:
    """The folder's tokenizer; UserError where it has none."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model_path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        where = model_path if Path(model_path).is_dir() else f"{model_path} (hub)"
        raise UserError(f"no tokenizer in {where}: {first_line(error)}") from error


def check_context(model_config: Any, max_context: int) -> None:
    """Raise UserError when the model has fewer positions than `max_context` tokens: it would answer with noise."""
    limit = getattr(model_config, "max_position_embeddings", None)
    if max_context < 2:
        raise ValueError(f"max_context must be 2 or more, got {max_context}")
    if limit is not None and max_context > limit:
        raise UserError(
            f"the run needs a context of {max_context} tokens and the model has {limit} positions: "
            "lower max_tokens (--max-tokens of `r1zero eval`) or max_prompt_tokens, or set rope scaling in the model's "
            "config.json"
        )
