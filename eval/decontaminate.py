"""Contamination: which training problems share a run of words with a benchmark's.

The rule of DeepSeek-R1 (arXiv 2501.12948, data decontamination): any common 10-gram of words. A problem shorter than
that counts when its whole text stands in the other. Words are compared without case, LaTeX commands and punctuation,
so that `$x+1$` and `\\( x + 1 \\)` are the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from r1zero.data.records import Problem
from r1zero.errors import UserError

DEFAULT_NGRAM = 10
SHORTEST = 5
"""A text of fewer words than this is no evidence: "Compute 2+2." stands in many."""
# Spacing, sizing and delimiters: how a formula looks, not what it says.
_LOOKS = re.compile(
    r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|q?quad|text|mathrm|mathbf|textbf|textit|mbox)\b|\\[,;:! ]"
)
_WORD = re.compile(r"\\?[^\W\d_]+|\d+")


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A training problem and a benchmark problem with words in common."""

    train_id: str
    benchmark_id: str
    benchmark: str
    shared: str
    """The longest common run of words."""
    num_words: int
    """Its length."""
    coverage: float
    """Share of the benchmark problem's n-grams that the training problem holds: near 1 it is the same problem, near 0
    it is a common turn of phrase."""
    train_prompt: str
    benchmark_prompt: str


def words(text: str) -> list[str]:
    """The words, commands and numbers of a problem's text, in lower case."""
    return _WORD.findall(_LOOKS.sub(" ", text).replace("dfrac", "frac").replace("tfrac", "frac").casefold())


def find_overlaps(train: Sequence[Problem], benchmark: Sequence[Problem], *, ngram: int = DEFAULT_NGRAM) -> list[Hit]:
    """Every pair that shares `ngram` words in a row (or, for a shorter benchmark problem, all its words), the most
    alike first. Time is linear in the words of both."""
    if ngram < 1:
        raise ValueError(f"ngram must be 1 or more words, got {ngram}")
    index: dict[tuple[str, ...], set[int]] = {}
    texts = [words(problem.prompt) for problem in benchmark]
    short: dict[int, set[int]] = {}
    for number, text in enumerate(texts):
        size = min(ngram, len(text))
        if size < min(SHORTEST, ngram):
            continue
        if size < ngram:
            short.setdefault(size, set()).add(number)
        for gram in _grams(text, size):
            index.setdefault(gram, set()).add(number)
    hits = []
    for problem in train:
        text = words(problem.prompt)
        found: set[int] = set()
        for size in {ngram, *short}:
            for gram in _grams(text, size):
                found |= index.get(gram, set())
        for number in found:
            hits.append(_hit(problem, text, benchmark[number], texts[number], ngram))
    return sorted(hits, key=lambda hit: (-hit.coverage, -hit.num_words, hit.train_id, hit.benchmark_id))


def _grams(text: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(text[i : i + size]) for i in range(len(text) - size + 1))


def _hit(train: Problem, train_words: Sequence[str], benchmark: Problem, its_words: Sequence[str], ngram: int) -> Hit:
    size = min(ngram, len(its_words))
    mine = set(_grams(train_words, size))
    grams = list(_grams(its_words, size))
    shared = _longest_common_run(train_words, its_words)
    return Hit(
        train_id=train.id,
        benchmark_id=benchmark.id,
        benchmark=benchmark.source,
        shared=" ".join(shared),
        num_words=len(shared),
        coverage=sum(gram in mine for gram in grams) / len(grams),
        train_prompt=train.prompt,
        benchmark_prompt=benchmark.prompt,
    )


def _longest_common_run(a: Sequence[str], b: Sequence[str]) -> list[str]:
    best, end = 0, 0
    previous = [0] * (len(b) + 1)
    for word in a:
        current = [0] * (len(b) + 1)
        for j, other in enumerate(b, start=1):
            if word == other:
                current[j] = previous[j - 1] + 1
                if current[j] > best:
                    best, end = current[j], j
        previous = current
    return list(b[end - best : end])


def require_clean(train: Sequence[Problem], benchmark: Sequence[Problem], *, min_coverage: float = 0.0) -> None:
    """Raise UserError when the training set touches a benchmark: what a recipe runs before its first step.

    min_coverage: let pass what shares less of a benchmark problem than this (0: any common 10-gram refuses).
    """
    hits = [hit for hit in find_overlaps(train, benchmark) if hit.coverage >= min_coverage]
    if hits:
        first = hits[0]
        raise UserError(
            f"{len({h.train_id for h in hits})} training problems share {DEFAULT_NGRAM} words in a row with "
            f"{len({h.benchmark_id for h in hits})} evaluation problems (first: {first.train_id} and "
            f"{first.benchmark_id}: {first.shared[:80]!r}): see `r1zero eval decontaminate`, and filter the data"
        )
