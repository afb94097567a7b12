"""From graded samples to the figures of one benchmark: `summarise` checks that none is missing, counts and rates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.samples import EvalSample
from r1zero.eval.statistics import Mean, clustered_mean, pass_at_k
from r1zero.verifiers import Outcome

GROUPED_BY = ("level", "subject")


@dataclass(frozen=True, kw_only=True)
class EvalResult:
    """One benchmark's score with what is needed to believe it."""

    name: str
    num_problems: int
    k: int
    """Samples of each problem."""
    pass_at_1: float
    """avg@k: the mean over problems of the share of correct samples; nan when nothing could be graded."""
    stderr: float
    """Of pass_at_1, over problems."""
    ci95: tuple[float, float]
    pass_at: Mapping[int, float]
    """Unbiased pass@j for j = 1, 2, 4, ... k, as far as every problem has j graded samples."""
    cons_at: Mapping[int, float]
    """Majority vote over j samples; empty where it was not asked for or the answers cannot be compared."""
    truncated: float
    """Share of samples cut at the token limit, whatever they scored."""
    unparseable: float
    """Share in which no answer was found (not counting those cut off before one)."""
    timeout: float
    """Share whose verification was killed at the deadline; counted as not correct."""
    error: float
    """Share that could not be graded for a reason of ours. Never counted as wrong: see `bounds`."""
    bounds: tuple[float, float]
    """pass_at_1 if every ungraded sample were wrong, and if every one were right."""
    tokens_per_answer: float
    tokens_per_correct: float
    """Mean tokens of the correct samples; nan without any."""
    groups: Mapping[str, Mapping[str, Mean]]
    """pass_at_1 by level and by subject, where the problems have them."""
    samples: tuple[EvalSample, ...] = field(repr=False)
    """All of them, ordered by problem, then index."""
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """True when every sample was graded."""
        return self.error == 0.0


def check_ids(problems: Sequence[Problem]) -> None:
    """Raise UserError when two problems share an id: their samples could not be told apart."""
    twice = [name for name, count in Counter(problem.id for problem in problems).items() if count > 1]
    if twice:
        raise UserError(f"two problems have the id {twice[0]!r}: give each its own")


def by_problem(problems: Sequence[Problem], samples: Sequence[EvalSample], k: int) -> list[list[EvalSample]]:
    """Samples of each problem in index order. Raises UserError when one is missing, doubled or belongs to no problem:
    a smaller denominator is another number (published pass@1 scores have been halved that way)."""
    check_ids(problems)
    known = {problem.id for problem in problems}
    seen: dict[tuple[str, int], EvalSample] = {}
    for sample in samples:
        if sample.problem_id not in known:
            raise UserError(f"sample of {sample.problem_id!r}, which is no problem of this benchmark: the data changed")
        if sample.key in seen:
            raise UserError(f"sample {sample.index} of {sample.problem_id!r} stands twice in the samples")
        seen[sample.key] = sample
    missing = [(p.id, j) for p in problems for j in range(k) if (p.id, j) not in seen]
    if missing:
        raise UserError(
            f"{len(missing)} of {len(problems) * k} samples are missing (first: sample {missing[0][1]} of "
            f"{missing[0][0]!r}): run the same command again to resume"
        )
    return [[seen[p.id, j] for j in range(k)] for p in problems]


def summarise(
    problems: Sequence[Problem], samples: Sequence[EvalSample], k: int, *, name: str = "", seconds: float = 0.0
) -> EvalResult:
    """The figures of `samples`, k for each of `problems`; cons@k is added by `voting.with_votes`."""
    if not problems:
        raise UserError(f"{name or 'the benchmark'} has no problems")
    groups = by_problem(problems, samples, k)
    graded = [[s for s in group if s.outcome is not Outcome.ERROR] for group in groups]
    flat = [s for group in groups for s in group]
    means = [_share_correct(group) for group in graded if group]
    overall = (
        clustered_mean(means, k) if means else Mean(mean=math.nan, stderr=math.nan, ci95=(0.0, 1.0), num_questions=0)
    )
    num_correct = [sum(s.correct for s in group) for group in groups]
    num_errors = [len(group) - len(ok) for group, ok in zip(groups, graded, strict=True)]
    fewest = min(len(ok) for ok in graded)
    correct = [s for s in flat if s.correct]
    total = len(flat)
    return EvalResult(
        name=name,
        num_problems=len(problems),
        k=k,
        pass_at_1=overall.mean,
        stderr=overall.stderr,
        ci95=overall.ci95,
        pass_at={
            j: sum(pass_at_k(len(ok), c, j) for ok, c in zip(graded, num_correct, strict=True)) / len(problems)
            for j in powers_of_two(k)
            if j <= fewest
        },
        cons_at={},
        truncated=sum(s.truncated for s in flat) / total,
        unparseable=sum(s.outcome is Outcome.UNPARSEABLE for s in flat) / total,
        timeout=sum(s.outcome is Outcome.TIMEOUT for s in flat) / total,
        error=sum(num_errors) / total,
        bounds=(len(correct) / total, (len(correct) + sum(num_errors)) / total),
        tokens_per_answer=_mean_tokens([s for s in flat if not s.failed]),
        tokens_per_correct=_mean_tokens(correct),
        groups=_grouped(problems, graded, k),
        samples=tuple(flat),
        seconds=seconds,
    )


def powers_of_two(k: int) -> list[int]:
    """1, 2, 4, ... up to k, and k itself."""
    return sorted({2**i for i in range(k.bit_length())} | {k})


def _share_correct(samples: Sequence[EvalSample]) -> float:
    return sum(s.correct for s in samples) / len(samples)


def _mean_tokens(samples: Sequence[EvalSample]) -> float:
    return sum(s.num_tokens for s in samples) / len(samples) if samples else math.nan


def _grouped(problems: Sequence[Problem], graded: Sequence[Sequence[EvalSample]], k: int) -> dict[str, dict[str, Mean]]:
    groups: dict[str, dict[str, Mean]] = {}
    for key in GROUPED_BY:
        means: dict[str, list[float]] = {}
        for problem, samples in zip(problems, graded, strict=True):
            if key in problem.data and samples:
                means.setdefault(str(problem.data[key]), []).append(_share_correct(samples))
        if means:
            groups[key] = {value: clustered_mean(means[value], k) for value in sorted(means)}
    return groups
