"""`judge`: another model says whether an answer is right, over any OpenAI-compatible endpoint.

A reply counts only by its last line, `VERDICT mark: CORRECT` or `WRONG`. The mark is a hash of the very text that is
judged, so that no completion can hold its own: a verdict written into a completion, and one that the judge quotes
from it, lack the mark.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.shown import shown

MAX_CHARS = 50_000
_PROMPT = Path(__file__).with_name("judge_prompt.txt")
_FIELD = re.compile(r"\{(question|answer|response|mark)\}")
_RETRIED = {408, 409, 425, 429, 500, 502, 503, 504}


class JudgeError(Exception):
    """No verdict could be had: ours, never the model's."""


@register(
    "judge",
    preload=("httpx",),
    example=Sample(
        completion="<think>Two.</think>The capital is Paris.",
        answer="Paris",
        problem=Problem(id="1", prompt="What is the capital of France?", answer="Paris"),
    ),
)
def judge(
    completion: str,
    answer: str,
    problem: Problem,
    *,
    url: str = "",
    model: str = "",
    prompt_file: str = "",
    samples: int = 1,
    temperature: float = 0.0,
    max_tokens: int = 1024,
    timeout_seconds: float = 60.0,
    tries: int = 3,
    api_key_env: str = "OPENAI_API_KEY",
    cache: str = "",
) -> Verdict:
    """Correct when most of `samples` replies of the judge say so; the score is 1 or 0.

    url: the endpoint, like http://localhost:8000/v1, else `R1ZERO_JUDGE_URL`; model: its name there, else
    `R1ZERO_JUDGE_MODEL`; prompt_file: a text with {question}, {answer}, {response} and {mark} in it, which asks for the
    last line `VERDICT {mark}: CORRECT` or `WRONG` (default: verifiers/judge_prompt.txt); samples: replies asked for, an
    odd number (more than one needs a temperature above 0); timeout_seconds: of one request, all of them together below
    the pool's deadline; tries: of one request, the first included; api_key_env: the variable that holds the key; cache:
    a folder that keeps replies, so that the same text is not judged twice.

    The judge sees the text after the thinking and not the thinking. An endpoint that does not answer, and replies of
    which no majority has a verdict, are `error`, never a zero. It does not stop a text that persuades the judge.
    """
    if samples < 1 or samples % 2 == 0 or tries < 1:
        raise UserError(f"verifier 'judge': samples must be odd and tries 1 or more, got {samples} and {tries}")
    url, model = url or os.environ.get("R1ZERO_JUDGE_URL", ""), model or os.environ.get("R1ZERO_JUDGE_MODEL", "judge")
    if not url.startswith(("http://", "https://")):
        raise UserError("verifier 'judge' needs the option url (or R1ZERO_JUDGE_URL), like http://localhost:8000/v1")
    text = shown(completion).strip()
    if not text or len(text) > MAX_CHARS:
        reason = f"an answer of over {MAX_CHARS} characters" if text else "no text after the thinking"
        return Verdict(Outcome.UNPARSEABLE, reason=reason)
    mark = _mark(text)
    message = fill(read_prompt(prompt_file), question=problem.prompt, answer=answer, response=text, mark=mark)
    message = message.encode("utf-8", "replace").decode("utf-8")  # a lone surrogate cannot be sent
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": message}]}
    body |= {"temperature": temperature, "max_tokens": max_tokens}
    endpoint = Endpoint(url=url.rstrip("/"), timeout_seconds=timeout_seconds, tries=tries, api_key_env=api_key_env)
    try:
        replies = poll(endpoint, body, samples, mark, cache)
    except JudgeError as error:
        return Verdict(Outcome.ERROR, reason=f"the judge at {url}: {error}")
    votes = Counter(verdict_of(reply, mark) for reply in replies)
    details = {"for": votes[True], "against": votes[False], "unclear": votes[None], "reply": replies[-1][-500:]}
    if max(votes[True], votes[False]) <= samples // 2:
        return Verdict(Outcome.ERROR, reason="the judge's replies hold no verdict of a majority", details=details)
    outcome = Outcome.CORRECT if votes[True] > votes[False] else Outcome.WRONG
    return Verdict(outcome, reason=f"{votes[True]} for, {votes[False]} against", extracted=text[:200], details=details)


def verdict_of(reply: str, mark: str) -> bool | None:
    """What a reply says: its last line alone counts, and it must hold the mark. None where it says nothing."""
    lines = reply.rpartition("</think>")[2].strip().splitlines()
    found = re.fullmatch(rf"[\s*_`>#]*VERDICT {mark}:\s*(CORRECT|WRONG)[\s*_`.]*", lines[-1][:200]) if lines else None
    return None if found is None else found[1] == "CORRECT"


def fill(template: str, **values: str) -> str:
    """The template with its fields filled in once: braces in a value stay as they are."""
    return _FIELD.sub(lambda found: values[found[1]], template)


def _mark(text: str) -> str:
    return _digest(b"r1zero judge " + text.encode(errors="replace"))[:12]


def _digest(data: bytes) -> str:
    import hashlib  # brings OpenSSL along: some milliseconds that only a judge is to cost

    return hashlib.sha256(data).hexdigest()


@functools.lru_cache(maxsize=8)
def read_prompt(path: str) -> str:
    """The text of a prompt file. Raises UserError where it cannot be read or lacks a field."""
    try:
        text = (Path(path) if path else _PROMPT).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"prompt_file {path!r} of verifier 'judge' cannot be read: {error}") from error
    missing = [name for name in ("response", "mark") if f"{{{name}}}" not in text]
    if missing:
        raise UserError(f"prompt_file {path!r} of verifier 'judge' has no {{{missing[0]}}} in it")
    return text


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the judge is, and how often it is asked."""

    url: str
    timeout_seconds: float
    """Of one request."""
    tries: int
    """Of one reply, the first included."""
    api_key_env: str


def poll(endpoint: Endpoint, body: dict[str, Any], samples: int, mark: str, cache: str) -> list[str]:
    """The judge's replies: `samples` of them, or as many as make a majority. Raises JudgeError."""
    import httpx

    key = os.environ.get(endpoint.api_key_env, "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    replies: list[str] = []
    with httpx.Client(base_url=endpoint.url, headers=headers, timeout=endpoint.timeout_seconds) as client:
        for seed in range(samples):
            request = {**body, "seed": seed}
            reply = _cached(Path(cache), endpoint.url, request) if cache else None
            if reply is None:
                reply = ask(client, request, endpoint.tries)
                if cache:
                    _keep(Path(cache), endpoint.url, request, reply)
            replies.append(reply)
            votes = Counter(verdict_of(reply, mark) for reply in replies)
            if max(votes[True], votes[False]) > samples // 2:
                break
    return replies


def ask(client: Any, body: dict[str, Any], tries: int) -> str:
    """The endpoint's reply, tried again on what passes. Raises JudgeError."""
    import httpx

    last = ""
    for attempt in range(tries):
        if attempt:
            time.sleep(min(8.0, 0.25 * 2**attempt))
        try:
            response = client.post("/chat/completions", json=body)
            if response.status_code == 200:
                content = response.json()["choices"][0]["message"]["content"]
                if isinstance(content, str) and content.strip():
                    return content
                last = "an empty reply"
                continue
            last = f"status {response.status_code}: {response.text[:200]}"
            if response.status_code not in _RETRIED:
                break
        except httpx.HTTPError as error:
            last = f"{type(error).__name__}: {error}"
        except (ValueError, LookupError, TypeError) as error:
            last = f"a reply that is none ({type(error).__name__})"
    raise JudgeError(last)


def _file(folder: Path, url: str, body: dict[str, Any]) -> Path:
    text = json.dumps([url, body], sort_keys=True)
    return folder / f"{_digest(text.encode(errors='replace'))}.json"


def _cached(folder: Path, url: str, body: dict[str, Any]) -> str | None:
    try:
        reply = json.loads(_file(folder, url, body).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return reply if isinstance(reply, str) else None


def _keep(folder: Path, url: str, body: dict[str, Any], reply: str) -> None:
    """Whole or not at all: many workers write here. A cache that cannot be written costs time and no verdict."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            file.write(json.dumps(reply))
        Path(file.name).replace(_file(folder, url, body))
