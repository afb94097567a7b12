"""Several vLLM servers as one engine: `engine.url` names them, parted by commas.

Each is a server as `r1zero rollout-server` starts it, whatever parallelism stands behind it. A request goes to the
least busy one (`dealing.py`); a server that dies is left out, its requests go to others, and when it answers again it
gets the weights in force before it is sent any. The folder of those weights is kept for that until the next sync.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.dealing import Fleet, ServerLostError, deal, revive_due
from r1zero.rollout.requests import check_prompts, load_tokenizer
from r1zero.rollout.server import START, NoServerError, ServerError, VllmServerEngine, write_weights


class VllmFleetEngine:
    """A client of several servers; `config.max_sequences` is what each of them is sent at once."""

    name = "vllm-server"

    def __init__(
        self,
        model_path: str,
        *,
        config: EngineConfig,
        compute_dtype: torch.dtype,
        max_context: int,
        tokenizer: Any = None,
        patience_seconds: float = 600.0,
    ) -> None:
        """Connect to the servers of `config.url`. Raises UserError where none is there, or one is not fit to train on;
        in mid-run, where none has answered for `patience_seconds`."""
        if not config.sync_dir:
            raise UserError(f"engine vllm-server needs engine.sync_dir; {START}")
        self.model_path = model_path
        self.config = config
        self.compute_dtype = compute_dtype
        self.max_context = max_context
        self.tokenizer = tokenizer if tokenizer is not None else load_tokenizer(model_path)
        self.patience_seconds = patience_seconds
        urls = [url.strip() for url in config.url.split(",") if url.strip()]
        self.fleet = Fleet(urls)
        self._servers: dict[str, VllmServerEngine] = {}
        self._lock = threading.Lock()
        self._weights: Path | None = None
        """The folder of the weights in force; None: those the servers were started with."""
        revive_due(self.fleet, self._revive)
        if not self.fleet.fit():
            self.close()
            raise UserError(f"no vLLM server answers at {', '.join(urls)}: {START}")

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`. A request a completion; its seed is its own, so that it does not matter which server
        has it."""
        check_prompts(prompts, sampling, n, self.max_context)
        self._notice_restarts()
        places = [(i, j) for i in range(len(prompts)) for j in range(n)]

        def send(url: str, version: int, place: tuple[int, int]) -> Completion:
            try:
                completion = self._servers[url].complete(prompts[place[0]], sampling, place)
            except (NoServerError, ServerError) as error:
                raise ServerLostError(str(error)) from error
            return replace(completion, version=version)

        groups: list[list[Completion | None]] = [[None] * n for _ in prompts]
        answers = deal(
            places,
            self.fleet,
            send,
            self._revive,
            workers=self.config.max_sequences * len(self.fleet.urls),
            patience_seconds=self.patience_seconds,
        )
        for index, completion in answers:
            i, j = places[index]
            groups[i][j] = completion
            if on_completion is not None:
                on_completion(i, j, completion)
        return [tuple(completion for completion in group if completion is not None) for group in groups]

    def sync_weights(self, model: nn.Module) -> None:
        """Write `model`'s weights once and have every server that is there load them; the others when they return."""
        version = self.fleet.publish()
        before = self._weights
        self._weights = write_weights(model, Path(self.config.sync_dir).absolute(), version, self.compute_dtype)
        revive_due(self.fleet, self._revive)
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)

    def sleep(self) -> None:
        """The servers have their own devices."""

    def wake(self) -> None:
        """They never slept."""

    def close(self) -> None:
        """Leaves the servers running; the weights' folder goes."""
        for server in self._servers.values():
            server.close()
        if self._weights is not None:
            shutil.rmtree(self._weights, ignore_errors=True)

    def _revive(self, url: str, version: int) -> None:
        """Connect where that has not been done, and give the server the weights in force."""
        try:
            if url not in self._servers:
                server = VllmServerEngine(
                    self.model_path,
                    config=replace(self.config, url=url),
                    compute_dtype=self.compute_dtype,
                    max_context=self.max_context,
                    tokenizer=self.tokenizer,
                )
                with self._lock:
                    self._servers[url] = server
            held = self._servers[url].loaded()
            if self._weights is not None and any(path != str(self._weights) for path in held):
                self._servers[url].load(self._weights)
        except (NoServerError, ServerError) as error:
            raise ServerLostError(str(error)) from error

    def _notice_restarts(self) -> None:
        """A server that was started again between two rollouts answers, but with the weights it was started with."""
        for url in self.fleet.fit():
            try:
                held = self._servers[url].loaded()
            except (NoServerError, ServerError):
                held = []
            if not held or (self._weights is not None and any(path != str(self._weights) for path in held)):
                self.fleet.lost(url, busy=False)
