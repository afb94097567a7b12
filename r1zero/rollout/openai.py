"""Completions from any OpenAI-compatible endpoint, for evaluation: vLLM's or SGLang's server, or a hosted model.

One request a sample, so that each has its own seed, is retried alone and is kept when another fails. What an endpoint
does is not ours to trust: a timeout, a 5xx, a cut response or nonsense is tried again, and a sample given up on is a
`FailedCompletion`, which is graded `error` and never wrong.

Two modes. `completions`: prompts are token ids of the model's tokenizer, sent as they are (vLLM and SGLang do), so
a score is comparable with one sampled in-process. `chat`: the server applies its own chat template to messages; what
stands for token ids is then the messages' JSON in UTF-8 (`ChatTemplate.encode`), as there is no tokenizer on this side.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import torch

from r1zero.data.records import Completion, FinishReason
from r1zero.errors import UserError
from r1zero.prompts import Template
from r1zero.rollout.base import OnCompletion, Sampling
from r1zero.rollout.requests import stream_seed

_OF_THIS_PROMPT = (400, 413, 422)
"""Statuses that may be about one prompt: too long for the server, or refused by its filter. When they are about all,
`give_up_after` stops the run."""


@dataclass(frozen=True, kw_only=True)
class FailedCompletion(Completion):
    """A completion that the endpoint did not give: graded `error`, never wrong."""

    error: str
    """What happened last, and how often it was tried."""


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """An endpoint and how patient to be with it."""

    url: str
    """Its base address, up to and with `/v1`."""
    model: str
    """The model's name there."""
    mode: Literal["chat", "completions"] = "chat"
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; the key itself stands in no file."""
    timeout_seconds: float = 600.0
    """For one request from start to last byte, however slowly it drips."""
    tries: int = 6
    """Of one sample, the first included."""
    backoff_seconds: float = 1.0
    """Before the second try; doubles with each, up to a minute, times a random 0.5 to 1."""
    concurrency: int = 32
    """Requests in flight."""
    requests_per_minute: float = 0.0
    """0: no limit."""
    give_up_after: int = 20
    """Samples failed in a row, without one that came through, that mean the endpoint is down: the run stops."""


class OpenAIEngine:
    """An `Engine` whose samples come from an endpoint. It has no weights: `sync_weights` is a mistake of the caller."""

    name = "openai"

    def __init__(self, config: EndpointConfig) -> None:
        for setting in ("timeout_seconds", "tries", "concurrency"):
            if getattr(config, setting) <= 0:
                raise UserError(f"the endpoint's {setting} must be above 0, got {getattr(config, setting)}")
        if config.requests_per_minute < 0:
            raise UserError(f"the endpoint's requests_per_minute must be 0 or more, got {config.requests_per_minute}")
        try:
            url = httpx.URL(config.url)
        except httpx.InvalidURL as error:
            raise UserError(f"the endpoint's address {config.url!r} is none ({error})") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise UserError(f"the endpoint's address {config.url!r} must be like http://localhost:8000/v1")
        key = os.environ.get(config.api_key_env, "")
        self.config = config
        self._client = httpx.Client(
            base_url=config.url.rstrip("/"),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=config.timeout_seconds,
            limits=httpx.Limits(max_connections=config.concurrency, max_keepalive_connections=config.concurrency),
        )
        self._rate = _Rate(config.requests_per_minute)
        self._stop = threading.Event()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        n: int,
        on_completion: OnCompletion | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`; a completion may be a `FailedCompletion`."""
        jobs = [(prompt, _seed(sampling, i, j)) for i, prompt in enumerate(prompts) for j in range(n)]
        report = None if on_completion is None else lambda at, done: on_completion(at // n, at % n, done)
        flat = self._all(jobs, sampling, report)
        return [tuple(flat[i * n : (i + 1) * n]) for i in range(len(prompts))]

    def generate_streams(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        streams: Sequence[int],
        on_completion: OnCompletion | None = None,
    ) -> list[Completion]:
        """One completion of each prompt, its seed from `streams[i]`, whatever else is in the call."""
        jobs = [(prompt, _seed(sampling, stream, 0)) for prompt, stream in zip(prompts, streams, strict=True)]
        report = None if on_completion is None else lambda at, done: on_completion(at, 0, done)
        return self._all(jobs, sampling, report)

    def sync_weights(self, model: torch.nn.Module) -> None:
        raise UserError("an OpenAI endpoint takes no weights: it is for evaluation, not for training")

    def sleep(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None:
        self._stop.set()
        self._client.close()

    def _all(
        self,
        jobs: Sequence[tuple[Sequence[int], int | None]],
        sampling: Sampling,
        report: Callable[[int, Completion], None] | None,
    ) -> list[Completion]:
        done: dict[int, Completion] = {}
        failed_in_a_row = 0
        with ThreadPoolExecutor(self.config.concurrency) as threads:
            futures: dict[Future[Completion], int] = {}
            todo = iter(enumerate(jobs))
            try:
                while len(done) < len(jobs):
                    # No more is handed out than is in flight: a run that stops must not wait for a long queue.
                    while len(futures) < self.config.concurrency and (job := next(todo, None)) is not None:
                        at, (prompt, seed) = job
                        futures[threads.submit(self._one, prompt, sampling, seed)] = at
                    ready, _ = wait(futures, return_when=FIRST_COMPLETED)
                    for future in ready:
                        at = futures.pop(future)
                        completion = done[at] = future.result()
                        failed_in_a_row = failed_in_a_row + 1 if isinstance(completion, FailedCompletion) else 0
                        if isinstance(completion, FailedCompletion) and failed_in_a_row >= self.config.give_up_after:
                            raise UserError(
                                f"{failed_in_a_row} samples in a row failed at {self.config.url} ({completion.error}): "
                                "is it up? What was sampled is kept: run the same command again to go on"
                            )
                        if report is not None:
                            report(at, completion)
            except BaseException:
                self._stop.set()  # wakes what sleeps between two tries
                raise
        return [done[at] for at in range(len(jobs))]

    def _one(self, prompt: Sequence[int], sampling: Sampling, seed: int | None) -> Completion:
        path, body = _request(self.config, prompt, sampling, seed)
        last = ""
        for attempt in range(1, self.config.tries + 1):
            self._rate.wait(self._stop)
            pause = min(60.0, self.config.backoff_seconds * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
            try:
                status, headers, text = self._post(path, body)
                if status == 200:
                    return _completion(json.loads(text))
                last = f"status {status}: {_excerpt(text)}"
                if status in _OF_THIS_PROMPT:
                    break  # the same again would be refused again; other prompts may pass
                if 400 <= status < 500 and status not in (408, 409, 425, 429):
                    raise UserError(
                        f"{self.config.url}{path} refuses the request ({last}): check url, model, key and limits"
                    )
                pause = max(pause, _retry_after(headers))
            except (httpx.RequestError, httpx.StreamError, TimeoutError) as error:
                last = f"{type(error).__name__}: {error}".rstrip(": ")
            except (ValueError, KeyError, TypeError, IndexError) as error:
                last = f"no completion in the response ({type(error).__name__}: {error})"
            if attempt < self.config.tries and self._stop.wait(pause):
                break
        return FailedCompletion(
            token_ids=(), text="", logprobs=(), finish_reason="length", error=f"{last} (tried {attempt} times)"
        )

    def _post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], str]:
        """Status, headers and text. Raises TimeoutError past the deadline, which httpx's own timeouts (between two
        bytes) do not see."""
        deadline = time.monotonic() + self.config.timeout_seconds
        with self._client.stream("POST", path, json=body) as response:
            chunks = []
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no whole response within {self.config.timeout_seconds:g} s")
            return response.status_code, response.headers, b"".join(chunks).decode("utf-8", "replace")


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template of ours as the messages of a chat endpoint: system line and question. Fits `EvalTemplate`."""

    template: Template

    @property
    def stop(self) -> tuple[str, ...]:
        return self.template.stop

    def stop_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """None: the server's chat template knows its own."""
        return ()

    def turn_prefill(self, tokenizer: Any) -> str:
        return ""

    def messages(self, question: str) -> list[dict[str, str]]:
        system = [{"role": "system", "content": self.template.system}] if self.template.system else []
        return [*system, {"role": "user", "content": self.template.body.replace("{question}", question)}]

    def render(self, question: str, tokenizer: Any) -> str:
        """For a reader: what the server makes of the messages is not known here."""
        return "\n".join(f"{message['role']}: {message['content']}" for message in self.messages(question))

    def encode(self, question: str, tokenizer: Any) -> list[int]:
        """The messages' JSON in UTF-8, a byte a number."""
        return list(json.dumps(self.messages(question), ensure_ascii=False).encode())


def _request(
    config: EndpointConfig, prompt: Sequence[int], sampling: Sampling, seed: int | None
) -> tuple[str, dict[str, Any]]:
    """Path and body. Every parameter is sent; those outside OpenAI's own (top_k, min_p) only where they are set."""
    body: dict[str, Any] = {
        "model": config.model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if seed is not None:
        body["seed"] = seed & 0x7FFFFFFF
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.top_k:
        body["top_k"] = sampling.top_k
    if sampling.min_p:
        body["min_p"] = sampling.min_p
    if config.mode == "chat":
        return "/chat/completions", {**body, "messages": json.loads(bytes(prompt))}
    # vLLM's own: the stop text is kept, as every engine here keeps it, and the ids end a completion.
    extra = {"include_stop_str_in_output": True, "stop_token_ids": list(sampling.stop_token_ids)}
    return "/completions", {**body, **extra, "prompt": list(prompt)}


def _completion(response: Any) -> Completion:
    """A `Completion` without token ids of its own: an endpoint gives text. Raises KeyError and its like for less."""
    choice = response["choices"][0]
    if "message" in choice:
        # Reasoning models' servers split the thinking off; a verifier must see where it ends.
        thinking = choice["message"].get("reasoning_content") or choice["message"].get("reasoning")
        text = choice["message"]["content"]
        if thinking:
            # Cut while it thought: the block stays open, as it does where nothing splits it off.
            cut = not text and choice.get("finish_reason") == "length"
            text = f"<think>{thinking}" if cut else f"<think>{thinking}</think>{text or ''}"
    else:
        text = choice["text"]
    if not isinstance(text, str):
        raise TypeError("the completion's text is no text")
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise ValueError(f"finish_reason is {reason!r}, neither stop nor length")
    finish: FinishReason = reason
    num_tokens = int((response.get("usage") or {}).get("completion_tokens") or 0)
    return Completion(token_ids=(-1,) * num_tokens, text=text, logprobs=(), finish_reason=finish)


def _seed(sampling: Sampling, prompt_index: int, sample_index: int) -> int | None:
    return None if sampling.seed is None else stream_seed(sampling.seed, prompt_index, sample_index)


def _excerpt(text: str) -> str:
    return " ".join(text.split())[:200]


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds the server asks to wait, at most five minutes; 0 where it says nothing we can read."""
    try:
        return min(300.0, float(headers.get("retry-after", 0)))
    except ValueError:
        return 0.0


class _Rate:
    """Spaces requests evenly; shared by the threads of one engine."""

    def __init__(self, per_minute: float) -> None:
        self._gap = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        if not self._gap:
            return
        with self._lock:
            at = max(self._next, time.monotonic())
            self._next = at + self._gap
        stop.wait(at - time.monotonic())
