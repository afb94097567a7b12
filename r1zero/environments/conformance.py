"""What any environment must stand, built-in or plugin: it is run as training runs it, in its own killable process.

Starts from the environment's own example (`@environment(name, example=Example(...))`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Verdict
from r1zero.environments.base import MAX_OBSERVATION_CHARS, Observation, Start
from r1zero.environments.host import EnvironmentHost
from r1zero.environments.registry import EnvironmentSpec, Example, Registered, get
from r1zero.environments.worker import Fault
from r1zero.verifiers.running.conformance import HOSTILE, Check
from r1zero.verifiers.running.worker import describe_exception

DEADLINE_SECONDS = 10.0


def check(name: str) -> list[Check]:
    """Run the suite on environment `name`. Raises UserError for a name that is none."""
    registered = get(name)
    documented = bool((registered.factory.__doc__ or "").strip())
    checks = [Check("says in its docstring what counts as correct", documented, "" if documented else "no docstring")]
    try:
        json.dumps(dict(registered.options))
        checks.append(Check("options can be written in a recipe", True))
    except TypeError as error:
        checks.append(Check("options can be written in a recipe", False, str(error)))
    if registered.example is None:
        note = f"no example: @environment({name!r}, example=Example(problem=..., says=(...))), one that is correct"
        return [*checks, Check("accepts its own example", False, note)]
    with EnvironmentHost(EnvironmentSpec(name=name), workers=2, deadline_seconds=DEADLINE_SECONDS) as host:
        return [*checks, *_running(registered, registered.example, host)]


def _running(registered: Registered, example: Example, host: EnvironmentHost) -> Iterator[Check]:
    first = episode(host, example.problem, example.says)
    last = first[-1]
    good = isinstance(last, Verdict) and last.correct
    yield Check("accepts its own example", good, "" if good else f"the last answer is {last}")
    again = [_comparable(answer) for answer in episode(host, example.problem, example.says)]
    same = again == [_comparable(answer) for answer in first]
    yield Check("answers the same again", same, "" if same else f"{first}, then {again}")
    threaded = [_comparable(answer) for answer in _in_a_thread(registered, example)]
    same = threaded == [_comparable(answer) for answer in first]
    yield Check("works off the main thread", same, "" if same else f"{first}, then {threaded}")
    for kind, texts in HOSTILE.items():
        fault = ""
        for text in texts:
            answer = episode(host, example.problem, [text])[-1]
            if isinstance(answer, Fault) or (isinstance(answer, Verdict) and answer.correct):
                fault = fault or f"{text[:40]!r} ({len(text)} characters): {answer}"
            if isinstance(answer, Observation) and len(answer.text) > MAX_OBSERVATION_CHARS + 100:
                fault = fault or f"{text[:40]!r}: an observation of {len(answer.text)} characters"
        yield Check(f"stands {kind}", not fault, fault)


def episode(host: EnvironmentHost, problem: Problem, says: Sequence[str]) -> list[Any]:
    """What an environment answers: its `Start`, then an answer a turn, up to a verdict or a fault."""
    live = host.open(problem)
    answers: list[Any] = [live.start().result()]
    for text in says:
        if not isinstance(answers[-1], Start | Observation):
            break
        answers.append(live.step(completion(text)).result())
    live.close()
    return answers


def completion(text: str) -> Completion:
    """`text` as if a policy had said it."""
    return Completion(token_ids=(0,), text=text, logprobs=(0.0,), finish_reason="stop")


def _in_a_thread(registered: Registered, example: Example) -> list[Any]:
    """The example's answers off the main thread, where an environment that needs signals (SIGALRM) fails."""
    answers: list[Any] = []

    def call() -> None:
        try:
            made = registered.factory()
            schemas = tuple(getattr(made, "tool_schemas", ()))
            answers.append(Start(messages=tuple(made.start(example.problem)), tools=schemas))
            answers.extend(made.step(completion(text)) for text in example.says)
        except Exception as error:  # noqa: BLE001  shown in the report
            answers.append(Fault(describe_exception(error)))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return answers


def _comparable(answer: Any) -> Any:
    """An answer without its times."""
    return (answer.outcome, answer.score, answer.extracted) if isinstance(answer, Verdict) else answer
