"""`exact` and `f1`: short answers in words, compared as SQuAD's official script does (arXiv 1606.05250)."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.extract import extract

_RULES = ("boxed", "answer_tag", "marker", "whole")
_MAX_CHARS = 10_000
# Punctuation goes, but not what makes a number another one: the point of 3.5 and the sign of -5.
_PUNCTUATION = re.compile(r"(?<!\d)(?!\.\d)[^\w\s-]|[^\w\s-](?!\d)|,(?=\d{3}(?!\d))|(?<=\w)-|-(?!\d)|_")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_EXAMPLE = Sample(completion="<think>On the Seine.</think> <answer>The city of Paris.</answer>", answer="city of Paris")


@register("exact", example=_EXAMPLE)
def exact(completion: str, answer: str, problem: Problem) -> Verdict:
    """Correct when the answer in the completion is one of the gold answers, after SQuAD's normalising.

    Gold: `answer`, or the problem's `answers` (a list, or SQuAD's `{"text": [...]}`). Normalising takes away case,
    punctuation, the articles a, an and the, and blank space; the point and the sign of a number stay, where SQuAD drops
    them (3.5 is not 35). The answer: the last box, the answer tag, "the answer is ...", or a short text as a whole.
    It does not stop a guess among few answers, and knows no synonyms.
    """
    return _judge(completion, answer, problem, threshold=None, partial_credit=False)


@register("f1", example=_EXAMPLE)
def f1(
    completion: str, answer: str, problem: Problem, *, threshold: float = 1.0, partial_credit: bool = True
) -> Verdict:
    """Correct when the words of the answer and of a gold answer overlap with an F1 of at least `threshold`.

    Golds, normalising and where the answer is read: as in `exact`. The F1 is of words as a multiset, the best over the
    golds; partial_credit: the score of a wrong answer is its F1, else 0. Word order does not count, so that it cannot
    tell "dog bites man" from "man bites dog", and pays for each word guessed.
    """
    return _judge(completion, answer, problem, threshold=threshold, partial_credit=partial_credit)


def _judge(completion: str, answer: str, problem: Problem, *, threshold: float | None, partial_credit: bool) -> Verdict:
    """threshold: of F1; None: the same words in the same order."""
    golds = [words for text in gold_answers(answer, problem.data.get("answers")) if (words := normal_words(text))]
    if not golds:
        return Verdict(Outcome.ERROR, reason="no gold answer: `answer`, or `answers` in the problem's data")
    found = extract(completion, _RULES)
    if found.text is None:
        return Verdict(Outcome.UNPARSEABLE, reason=found.reason)
    words = normal_words(found.text[:_MAX_CHARS])
    if not words:
        return Verdict(Outcome.UNPARSEABLE, reason="an empty answer", extracted=found.text[:200])
    share = max(overlap(words, gold) for gold in golds)
    held = words in golds if threshold is None else share >= threshold
    score = 1.0 if held else share if partial_credit else 0.0
    reason = f"F1 {share:.3f} with {' '.join(golds[0])[:100]!r}"
    return Verdict(Outcome.CORRECT if held else Outcome.WRONG, score=score, reason=reason, extracted=found.text[:200])


def gold_answers(answer: str, answers: Any) -> list[str]:
    """Every gold text: `answer`, and those of a field `answers`."""
    if isinstance(answers, str) and answers.lstrip()[:1] in ("[", "{"):
        try:
            answers = json.loads(answers)
        except ValueError:
            answers = [answers]
    if isinstance(answers, dict):
        answers = answers.get("text")
    return [text for text in [answer, *(answers if isinstance(answers, list | tuple) else [])] if isinstance(text, str)]


def normal_words(text: str) -> list[str]:
    """The words of a text as they are compared."""
    return _ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower())).split()


def overlap(mine: list[str], gold: list[str]) -> float:
    """F1 of two multisets of words, 0 to 1: 2 * common / (all words of both)."""
    common = (Counter(mine) & Counter(gold)).total()
    return 2 * common / (len(mine) + len(gold))
