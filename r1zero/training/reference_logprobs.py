"""The reference's log-probabilities of fixed responses: computed once, kept on disk, so that one model is in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file, save_file
from torch import Tensor

from r1zero.algorithms.preference_losses import response_logprobs
from r1zero.config import ModelConfig
from r1zero.data.preferences import fingerprint
from r1zero.models.made.cache import make_once
from r1zero.models.policy import Policy, Row, load_model
from r1zero.runs.tracking import say


def reference_logprobs(
    model_path: Path, config: ModelConfig, rows: Sequence[Row], max_tokens: int, accelerator: Accelerator
) -> Tensor:
    """(N,) float32 log ref(y | x) of each row, summed over tokens; from the cache where these rows of this model are.

    The key holds the weights' and the rows' fingerprints, the compute type, and `max_tokens`, as another split into
    micro-batches rounds otherwise.
    """
    facts = [
        model_fingerprint(model_path),
        fingerprint(rows),
        accelerator.mixed_precision,
        config.attention,
        max_tokens,
    ]
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    def make(folder: Path) -> None:
        say(f"reference log-probabilities of {len(rows)} responses: computed once, then cached")
        policy = Policy(load_model(model_path, config)).to(accelerator.device)
        save_file({"logprobs": row_logprobs(policy, rows, max_tokens, accelerator)}, folder / "logprobs.safetensors")

    stored: dict[str, Tensor] = load_file(make_once(f"reference-logprobs-{key}", make) / "logprobs.safetensors")
    return stored["logprobs"]


@torch.no_grad()
def row_logprobs(policy: Policy, rows: Sequence[Row], max_tokens: int, accelerator: Accelerator) -> Tensor:
    """(N,) log pi(y | x) of each row, summed over tokens, without gradient, on the CPU."""
    result = torch.zeros(len(rows))
    for micro in policy.micro_batches(rows, max_tokens, accelerator.device):
        with accelerator.autocast():
            logprobs, _ = policy(micro)
        result[torch.tensor(micro.indices)] = response_logprobs(logprobs.float(), micro.mask).cpu()
    return result


def model_fingerprint(folder: Path) -> str:
    """Hash of a model folder's config and weights. 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
