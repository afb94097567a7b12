"""The far side of `host`: one environment in one process, forked by the verifiers' fork server. Imports no torch.

Requests come pickled from our side; answers go back as JSON, so that an environment which a hostile text took over can
lie, but cannot make the trainer run anything.
"""

from __future__ import annotations

import importlib
import json
import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.environments.base import MAX_OBSERVATION_CHARS, Environment, Observation, Start, shortened
from r1zero.environments.registry import get
from r1zero.verifiers.running.worker import describe_exception

MAX_ANSWER_BYTES = 1 << 20
"""Of one answer; a longer one is a fault of the environment's."""


@dataclass(frozen=True, kw_only=True)
class Open:
    """The first request."""

    name: str
    module: str
    """Whose import registers it."""
    options: Mapping[str, Any]
    problem: Problem


@dataclass(frozen=True)
class Fault:
    """Why an environment gave no answer: it hung, crashed, or answered nonsense. Ours, never the policy's."""

    reason: str
    hung: bool = False


def serve(channel: Connection[Any, Any], memory_bytes: int) -> None:
    """Answer requests until the host closes the channel. `memory_bytes`: the limit this process already has."""
    environment: Environment | None = None
    while True:
        try:
            payload = channel.recv_bytes()
        except (EOFError, ConnectionResetError):
            return
        try:
            request = pickle.loads(payload)
            if isinstance(request, Open):
                importlib.import_module(request.module)
                environment = get(request.name).factory(**request.options)
                answer = _start(environment, request.problem)
            else:
                assert environment is not None, "the first request opens"
                answer = _step(environment, request)
            message = json.dumps(answer).encode()
        except (Exception, SystemExit) as error:  # noqa: BLE001  a plugin may raise anything; the fault names it
            message = json.dumps({"fault": f"raised {describe_exception(error)}"}).encode()
        channel.send_bytes(message)


def _start(environment: Environment, problem: Problem) -> dict[str, Any]:
    messages = [{"role": str(m["role"]), "content": str(m["content"])} for m in environment.start(problem)]
    return {"start": {"messages": messages, "tools": list(getattr(environment, "tool_schemas", ()))}}


def _step(environment: Environment, completion: Completion) -> dict[str, Any]:
    answer = environment.step(completion)
    if isinstance(answer, Verdict):
        return {"verdict": asdict(answer)}
    if not isinstance(answer, Observation):
        raise TypeError(f"step returned {type(answer).__name__}, neither an Observation nor a Verdict")
    # A lone surrogate cannot be encoded by any tokenizer.
    text = shortened(answer.text, MAX_OBSERVATION_CHARS).encode(errors="replace").decode()
    return {"observation": {"text": text, "role": answer.role, "reward": answer.reward}}


def decode(message: bytes) -> Start | Observation | Verdict | Fault:
    """What an answer says; a `Fault` where it says nothing that can be read."""
    try:
        ((kind, body),) = json.loads(message).items()
        if kind == "start":
            return Start(messages=tuple(body["messages"]), tools=tuple(body["tools"]))
        if kind == "observation":
            return Observation(**body)
        if kind == "verdict":
            del body["steps"]  # of a process's verifier, counted in one completion's characters
            return Verdict(Outcome(body.pop("outcome")), **body)
        return Fault(str(body))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        return Fault(f"answered nonsense: {error}")
