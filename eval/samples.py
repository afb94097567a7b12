"""One graded sample, and its life on disk: a line of JSON, appended as it finishes, read again to resume or regrade."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from r1zero.data.records import FinishReason, Problem
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, Verdict


@dataclass(frozen=True, kw_only=True)
class EvalSample:
    """One completion of one problem with its verdict."""

    problem_id: str
    index: int
    """Which of the problem's k samples, from 0."""
    prompt: str
    """As sent, template applied."""
    completion: str
    """The assistant's whole turn: the template's prefill, then the text sampled. What the verifier saw."""
    num_tokens: int
    """Tokens sampled."""
    finish_reason: FinishReason
    outcome: Outcome
    score: float | None
    """The verifier's; None for an `error`."""
    reason: str = ""
    extracted: str | None = None
    """The answer as the verifier read it."""
    seconds: float = 0.0
    """Time in the verifier."""
    answer: str = ""
    """The gold answer."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """The verifier's: results per test and the like."""
    failed: bool = False
    """True when the engine gave no completion at all (an endpoint that stayed down): nothing to grade again."""

    @property
    def key(self) -> tuple[str, int]:
        return self.problem_id, self.index

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    @property
    def truncated(self) -> bool:
        """Cut at the token limit, whatever it scored: the rate that says whether the limit hid skill."""
        return self.finish_reason == "length" and not self.failed

    def verifier_input(self, problem: Problem) -> Sample:
        return Sample(
            completion=self.completion,
            answer=problem.answer,
            problem=problem,
            prompt=self.prompt,
            finish_reason=self.finish_reason,
            num_tokens=self.num_tokens,
        )

    def with_verdict(self, verdict: Verdict) -> EvalSample:
        return replace(
            self,
            outcome=verdict.outcome,
            score=verdict.score,
            reason=verdict.reason,
            extracted=verdict.extracted,
            seconds=verdict.seconds,
            details=verdict.details,
        )


def to_json(sample: EvalSample) -> str:
    """One line, without its newline."""
    return dump(asdict(sample))


def dump(value: Any, *, indent: int | None = None) -> str:
    """JSON that can be read and can be written: half of a UTF-16 pair, which data and endpoints may hold and UTF-8 may
    not, is written as its escape."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
        return text
    return json.dumps(value, indent=indent)


def from_json(line: str) -> EvalSample:
    row = json.loads(line)
    return EvalSample(**{**row, "outcome": Outcome(row["outcome"])})


def write_samples(path: Path, samples: Iterable[EvalSample]) -> None:
    """Write a whole file, to a temporary name and renamed."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(to_json(s) + "\n" for s in samples), encoding="utf-8")
    temporary.rename(path)


def read_samples(path: Path) -> list[EvalSample]:
    """Every complete line; a last line cut by a kill is left out. Raises UserError where there is no such file, and
    for a broken line elsewhere."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error})") from error
    samples = []
    # A complete file ends with a newline, so what follows the last one is empty or half a line.
    for number, line in enumerate(lines[:-1], start=1):
        try:
            samples.append(from_json(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"{path}, line {number} is no sample of an evaluation ({error}): remove the file"
            ) from error
    return samples
