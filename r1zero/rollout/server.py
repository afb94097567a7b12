"""The `vllm-server` engine: samples from a vLLM server on other GPUs or machines (`r1zero rollout-server`).

Tokens in, tokens out, over its OpenAI-compatible completions endpoint. Weights go through files in a folder that both
sides see (`engine.sync_dir`): written under a temporary name, renamed, loaded by every worker, then removed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx
import torch
from torch import nn

from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.prompts.tokens import decode
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.requests import check_prompts, load_tokenizer, stream_seed
from r1zero.rollout.weights import named_weights

START = "start it with `r1zero rollout-server MODEL --port 8000`"


class NoServerError(UserError):
    """Nothing answers at the address, or what answered broke off."""


class ServerError(RuntimeError):
    """The server answered with an error of its own (HTTP 5xx)."""


class VllmServerEngine:
    """A client of one server, which may be many replicas behind it (vLLM's `--data-parallel-size`)."""

    name = "vllm-server"

    def __init__(
        self,
        model_path: str,
        *,
        config: EngineConfig,
        compute_dtype: torch.dtype,
        max_context: int,
        tokenizer: Any = None,
    ) -> None:
        """Connect to `config.url` and check that the server is fit to train on. `max_context` (tokens): what the run
        needs; the server must have as much. Raises UserError where it has not, is not there, or was not started by
        `r1zero rollout-server`."""
        if not config.url or not config.sync_dir:
            raise UserError(f"engine vllm-server needs engine.url and engine.sync_dir; {START}")
        self.tokenizer = tokenizer if tokenizer is not None else load_tokenizer(model_path)
        self.compute_dtype = compute_dtype
        self.max_context = max_context
        self.max_sequences = config.max_sequences
        self.sync_dir = Path(config.sync_dir).absolute()
        self.num_syncs = 0
        """Weight syncs so far; names the folder of each."""
        # A completion takes as long as it takes: only connecting has a deadline.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=config.max_sequences)
        self._client = httpx.Client(base_url=config.url, timeout=httpx.Timeout(None, connect=10), limits=limits)
        try:
            self._model = self._check_server()
        except BaseException:
            self._client.close()
            raise

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`. A request a completion, up to `max_sequences` at a time."""
        check_prompts(prompts, sampling, n, self.max_context)
        groups: list[list[Completion | None]] = [[None] * n for _ in prompts]
        with ThreadPoolExecutor(max_workers=self.max_sequences) as pool:
            futures = {
                pool.submit(self.complete, prompt, sampling, (i, j)): (i, j)
                for i, prompt in enumerate(prompts)
                for j in range(n)
            }
            try:
                for future in as_completed(futures):
                    i, j = futures[future]
                    completion = future.result()
                    groups[i][j] = completion
                    if on_completion is not None:
                        on_completion(i, j, completion)
            except BaseException:  # Ctrl-C too: do not wait for what has not begun
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [tuple(completion for completion in group if completion is not None) for group in groups]

    def sync_weights(self, model: nn.Module) -> None:
        """Write `model`'s weights in the compute type, have every worker load them, drop the prefix cache."""
        self.num_syncs += 1
        folder = write_weights(model, self.sync_dir, self.num_syncs, self.compute_dtype)
        try:
            self.load(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def load(self, folder: Path) -> None:
        """Have every worker load the weights in `folder`, and drop the prefix cache."""
        loaded = self._post("/collective_rpc", {"method": "r1zero_load_weights", "args": [str(folder)]})["results"]
        if not loaded or any(path != str(folder) for path in loaded):
            raise RuntimeError(f"not every worker loaded {folder}: {loaded}")
        if not self._post("/reset_prefix_cache", {})["success"]:
            raise RuntimeError("the server kept its prefix cache after a weight sync: requests are still running")

    def loaded(self) -> list[str | None]:
        """The folder whose weights each worker holds; None where it still has those it was started with."""
        found: list[str | None] = self._post("/collective_rpc", {"method": "r1zero_loaded"})["results"]
        return found

    def sleep(self) -> None:
        """The server has its own device."""

    def wake(self) -> None:
        """It never slept."""

    def close(self) -> None:
        """Leaves the server running: others may sample from it."""
        self._client.close()

    def complete(self, prompt: Sequence[int], sampling: Sampling, index: tuple[int, int]) -> Completion:
        """Completion j of prompt i, `index` being (i, j)."""
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "n": 1,
            "max_tokens": sampling.max_tokens,
            "min_tokens": 0,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": None if sampling.seed is None else stream_seed(sampling.seed, *index),
            "stop_token_ids": list(sampling.stop_token_ids),
            "ignore_eos": True,  # only the ids listed above end a completion
            "stop": list(sampling.stop),
            "include_stop_str_in_output": True,
            "logprobs": 0,  # of the sampled token alone
            "return_token_ids": True,
        }
        choice = self._post("/v1/completions", body)["choices"][0]
        if choice["finish_reason"] not in ("stop", "length"):
            raise RuntimeError(f"the server ended a completion with finish_reason {choice['finish_reason']!r}")
        return Completion(
            token_ids=tuple(choice["token_ids"]),
            text=decode(self.tokenizer, choice["token_ids"]),
            logprobs=tuple(choice["logprobs"]["token_logprobs"]),
            finish_reason=choice["finish_reason"],
            version=self.num_syncs,
        )

    def _check_server(self) -> str:
        """The served model's name, once the server has shown what training on its samples needs."""
        card = self._get("/v1/models")["data"][0]
        if card["max_model_len"] < self.max_context:
            raise UserError(
                f"the run needs a context of {self.max_context} tokens and the server has {card['max_model_len']}: "
                f"start it with --max-model-len {self.max_context}"
            )
        info = self._get("/server_info?config_format=json")["vllm_config"]
        mode = info["model_config"]["logprobs_mode"]
        extension = info["parallel_config"]["worker_extension_cls"]
        if mode != "processed_logprobs" or not extension:
            raise UserError(f"the server at {self._client.base_url} was not started for training: {START}")
        name: str = card["id"]
        return name

    def _get(self, path: str) -> Any:
        return self._answer("GET", path, None)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._answer("POST", path, body)

    def _answer(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        """The response's JSON. Raises UserError where there is no server, RuntimeError with its words on an error."""
        try:
            response = self._client.request(method, path, json=body)
        except httpx.TransportError as error:
            raise NoServerError(f"no vLLM server answers at {self._client.base_url} ({error}): {START}") from error
        if response.status_code == 404:
            raise UserError(f"the server at {self._client.base_url} has no {path.partition('?')[0]}: {START}")
        if response.is_error:
            kind = ServerError if response.is_server_error else RuntimeError
            raise kind(f"{method} {path}: HTTP {response.status_code}: {response.text[:500]}")
        return response.json()


def write_weights(model: nn.Module, parent: Path, number: int, dtype: torch.dtype) -> Path:
    """Write `model`'s weights as `dtype` into a new folder in `parent`, whole or not at all; returns the folder."""
    from safetensors.torch import save_file

    folder = parent / f"weights-{os.getpid()}-{number}"
    temporary = folder.with_suffix(".tmp")
    try:
        temporary.mkdir(parents=True)
        weights = {
            name: tensor.detach().to("cpu", dtype).clone(memory_format=torch.contiguous_format)
            for name, tensor in named_weights(model)
        }
        save_file(weights, temporary / "model.safetensors", metadata={"format": "pt"})
        temporary.rename(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"engine.sync_dir {parent} cannot be written: {error}") from error
    return folder
