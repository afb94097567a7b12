"""The conformance suite behind `r1zero verifiers check NAME`: what any verifier must stand, built-in or plugin.

It starts from the verifier's own example (`@register(name, example=Sample(...))`) and runs everything in a pool, as
training does, so that a verifier that hangs or crashes is found out here and not in a run.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, Verifier, VerifierSpec, get
from r1zero.verifiers.running.pool import VerifierPool
from r1zero.verifiers.running.worker import describe_exception

DEADLINE_SECONDS = 10.0
_SELF = "r1zero.verifiers.running.conformance"
_MEGABYTE = 1_000_000
_WORKERS = 2
_OTHER_GOLD = "735219.5"

HOSTILE = {
    "empty text": ["", " ", "\n" * 100],
    "1 MB text": ["word " * (_MEGABYTE // 5), "9" * _MEGABYTE, "<think>" * (_MEGABYTE // 7), "{" * _MEGABYTE],
    "unicode": ["\ud800\udfff lone", "‮﷽한🏳️‍🌈 <answer>٣٫٥</answer>", "\\boxed{½ × ∞}", "Z" + "\u0301" * 10_000],
    "null bytes": ["\x00", "<answer>\x00</answer>", "\\boxed{1\x002}", "\x00" * 1000],
    "unterminated text": ["\\boxed{", "\\boxed{\\frac{1}{", "<answer>", "<think>", "```python\n", "$", "\\[", "("],
    "costly answers": [
        form.format(text)
        for text in ("9^{9^{9^{9}}}", "10!!!!", "1e999999999", "(" * 20_000, "\\sqrt{" * 5000, "7" * 90_000)
        for form in ("\\boxed{{{}}}", "<think>a</think><answer>{}</answer>")
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One line of the report."""

    name: str
    passed: bool
    note: str = ""
    """Why it failed, and what to do."""


def hang(completion: str) -> Verdict:
    """Never ends: shows that the pool's deadline holds beside the verifier under test."""
    threading.Event().wait()
    return Verdict(Outcome.ERROR)


def in_a_thread(
    completion: str,
    answer: str,
    problem: Problem,
    prompt: str,
    finish_reason: FinishReason,
    num_tokens: int,
    *,
    name: str = "",
) -> Verdict:
    """The verdict of verifier `name`, called off the main thread: one that needs signals (SIGALRM) fails there."""
    sample = Sample(
        completion=completion,
        answer=answer,
        problem=problem,
        prompt=prompt,
        finish_reason=finish_reason,
        num_tokens=num_tokens,
    )
    verdicts: list[Verdict] = []

    def call() -> None:
        try:
            verdicts.append(get(name)(sample))
        except Exception as error:  # noqa: BLE001  shown in the report
            verdicts.append(Verdict(Outcome.ERROR, reason=describe_exception(error)))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return verdicts[0]


def check(name: str) -> list[Check]:
    """Run the suite on verifier `name`, a registered one or `package.module:function`. Raises UserError for a name that
    is neither."""
    verifier = get(name)
    spec = VerifierSpec(name=name)
    checks = [*_static_checks(verifier)]
    if verifier.example is None:
        note = f"no example: @register({name!r}, example=Sample(completion=..., answer=...)), one that is correct"
        return [*checks, Check("accepts its own example", False, note)]
    with VerifierPool(workers=_WORKERS, deadline_seconds=DEADLINE_SECONDS) as pool:
        try:
            checks.extend(_running_checks(verifier, verifier.example, spec, pool))
        except UserError as error:
            checks.append(Check("runs in a worker", False, str(error)))
    return checks


def _static_checks(verifier: Verifier) -> Iterator[Check]:
    documented = bool((verifier.function.__doc__ or "").strip())
    yield Check("says in its docstring what counts as correct", documented, "" if documented else "no docstring")
    try:
        json.dumps(dict(verifier.options))
        yield Check("options can be written in a recipe", True)
    except TypeError as error:
        yield Check("options can be written in a recipe", False, f"{error}: numbers, text, lists and mappings only")


def _running_checks(verifier: Verifier, example: Sample, spec: VerifierSpec, pool: VerifierPool) -> Iterator[Check]:
    first = pool.submit(spec, example).result()
    yield Check("accepts its own example", first.correct, "" if first.correct else _told(first))
    yield _deterministic(first, pool.verify([(spec, example)] * 20))
    threaded = VerifierSpec(name=f"{_SELF}:in_a_thread", options={"name": spec.name})
    yield _same("works off the main thread", first, pool.submit(threaded, example).result())
    if "answer" in verifier.inputs and example.answer:
        verdict = pool.submit(spec, replace(example, answer=_OTHER_GOLD)).result()
        fault = f"its example is correct against gold {_OTHER_GOLD!r} too" if verdict.correct else ""
        yield Check("refuses its example against another gold", not fault, fault)
    for kind, texts in HOSTILE.items():
        # A costly answer in good form is in good form; a text without any is not.
        may_be_correct = verifier.judges == "shaping" or (verifier.judges == "format" and kind == "costly answers")
        fault = _first_fault(texts, example, spec, pool, may_be_correct)
        yield Check(f"stands {kind}", not fault, fault)
    fault = _runs_code(verifier, example, spec, pool)
    yield Check("evaluates no text of the model's in the worker", not fault, fault)
    yield _after_a_hang(first, example, spec, pool)


def _first_fault(
    texts: Iterable[str], example: Sample, spec: VerifierSpec, pool: VerifierPool, may_be_correct: bool
) -> str:
    """What is wrong with the first verdict that is an error or a timeout, or that wrongly calls a text correct."""
    named = [(text, pool.submit(spec, replace(example, completion=text))) for text in texts]
    for text, future in named:
        verdict = future.result()
        if verdict.outcome in (Outcome.ERROR, Outcome.TIMEOUT) or (verdict.correct and not may_be_correct):
            return f"{text[:40]!r} ({len(text)} characters): {_told(verdict)}"
    return ""


def _runs_code(verifier: Verifier, example: Sample, spec: VerifierSpec, pool: VerifierPool) -> str:
    """Try to have the worker create a file through the text; the name of the form that did it."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "mark"
        for call in (f"open('{mark}','w')", f"__import__('os').mkdir('{mark}')"):
            forms = (call, f"\\boxed{{{call}}}", f"<think>a</think><answer>{call}</answer>", f"[{call}]", f"$({call})$")
            fault = _first_fault(forms, example, spec, pool, may_be_correct=verifier.judges != "answer")
            if mark.exists():
                return f"{call} was run"
            if fault:
                return fault
    return ""


def _after_a_hang(first: Verdict, example: Sample, spec: VerifierSpec, pool: VerifierPool) -> Check:
    """Kill every worker of the pool by a hang, and have fresh ones judge the example again."""
    name = "is the same after a worker was killed"
    hangs = [pool.submit(VerifierSpec(name=f"{_SELF}:hang"), example, deadline_seconds=0.3) for _ in range(_WORKERS)]
    again = [pool.submit(spec, example) for _ in range(_WORKERS)]
    for hung in hangs:
        if hung.result().outcome is not Outcome.TIMEOUT:
            return Check(name, False, _told(hung.result()))
    others = [check for future in again if not (check := _same(name, first, future.result())).passed]
    return others[0] if others else Check(name, True)


def _deterministic(first: Verdict, again: list[Verdict]) -> Check:
    others = [check for verdict in again if not (check := _same("gives the same verdict again", first, verdict)).passed]
    return others[0] if others else Check("gives the same verdict again", True)


def _same(name: str, first: Verdict, other: Verdict) -> Check:
    same = _judgement(first) == _judgement(other)
    return Check(name, same, "" if same else f"{_told(first)}, then {_told(other)}")


def _judgement(verdict: Verdict) -> tuple[Any, ...]:
    return verdict.outcome, verdict.score, verdict.extracted


def _told(verdict: Verdict) -> str:
    score = "" if verdict.score is None else f", score {verdict.score:g}"
    return f"{verdict.outcome}{score}: {verdict.reason[:300]}"
