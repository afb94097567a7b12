"""Is the reward still worth what it pays for? A run's reward against a verifier that it is not paid by.

The gold is the first reward term of weight 0: looked at, not paid for. Where there is none, the held-out score stands
for it in the curves, and the first term, the answer's, in the lists. Source of the over-optimisation curve (reward
against KL): arXiv 2210.10760.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from r1zero.errors import UserError
from r1zero.report.folders import Run
from r1zero.report.rollouts import Digest
from r1zero.report.words import Riser, risers
from r1zero.verifiers.registry import get


@dataclass(frozen=True, kw_only=True)
class Judges:
    """Which terms of a run stand for what; each name may be empty."""

    gold: str
    """Term whose verdict is compared with the reward, completion by completion."""
    gold_metric: str
    """Metric that is set against the training reward."""
    format_term: str


@dataclass(frozen=True, kw_only=True)
class Pair:
    """How often two verifiers say the same."""

    a: str
    b: str
    only_a: float
    only_b: float
    """Share of the completions that one calls correct and the other does not."""
    both: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Hacking:
    judges: Judges
    risers: list[Riser]
    compared: tuple[int, int]
    """Completions early and late among which risers were looked for."""
    pairs: list[Pair]
    overrated: list[dict[str, Any]]
    """Completions the reward likes and the gold does not, the best paid (over its step's mean) first."""
    kl: str
    """Metric of the distance from the reference; empty where it was not measured."""


def judges(run: Run, gold: str = "") -> Judges:
    """`gold`, where given, names the term to trust. Raises UserError when this run has no such term."""
    terms = run.terms
    unpaid = [term["key"] for term in terms if term.get("weight") == 0]
    paid = len(terms) - len(unpaid) + len(run.config.get("reward", {}).get("models", []))
    if gold and terms and gold not in [term["key"] for term in terms]:
        raise UserError(f"--gold {gold}: {run.name} has the terms {', '.join(term['key'] for term in terms)}")
    metrics = {key for row in run.rows for key in row}
    trusted = gold or next(iter(unpaid), "")
    held_out = next((key for key in ("eval/pass@1", "eval/score") if key in metrics), "")
    measured = f"reward/{trusted}/score" if trusted else ""
    return Judges(
        gold=trusted or (terms[0]["key"] if terms and paid > 1 else ""),
        gold_metric=measured if measured in metrics else held_out,
        format_term=next((term["key"] for term in terms if _judges_format(term["verifier"])), ""),
    )


def _judges_format(verifier: str) -> bool:
    """False for a verifier that is not installed here: a report is read on other machines too."""
    if ":" in verifier:  # another's module is not imported to draw a page
        return False
    try:
        return get(verifier).judges == "format"
    except UserError:
        return False


def hacking(run: Run, read: Digest, who: Judges) -> Hacking:
    """Everything of the page that is not a curve of metrics.jsonl."""
    names = list(dict.fromkeys((a, b) for a, b, _, _ in read.agreement))
    pairs = []
    for a, b in names:
        counts = {(x, y): read.agreement[a, b, x, y] for x in (False, True) for y in (False, True)}
        total = sum(counts.values())
        shares = {key: count / total for key, count in counts.items()}
        pairs.append(
            Pair(a=a, b=b, only_a=shares[True, False], only_b=shares[False, True], both=shares[True, True], count=total)
        )
    metrics = {key for row in run.rows for key in row}
    return Hacking(
        judges=who,
        risers=risers(read.early, read.late),
        compared=(len(read.early), len(read.late)),
        pairs=pairs,
        overrated=[{**sample, "lift": lift} for lift, _, sample in sorted(read.overrated, key=lambda one: -one[0])],
        kl=next((key for key in ("policy/kl_completion", "policy/kl", "eval/kl") if key in metrics), ""),
    )
