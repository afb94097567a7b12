"""How good a reward model is on held-out rankings: right how often, sure how rightly, and how much of it is length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from r1zero.data.preferences import Ranking
from r1zero.eval.statistics import clustered_mean

BINS = 10
"""Bins of confidence from 1/2 to 1 in the calibration error."""


def report(scores: Sequence[Sequence[float]], rankings: Sequence[Ranking]) -> dict[str, float]:
    """Figures of scores (K each, best response first) on rankings.

    `accuracy` (mean over a prompt's pairs, those of all its rankings, then over prompts; a tie is half) with its 95%
    interval over prompts; `nll`; `calibration_error`: |accuracy - mean confidence sigma(|difference|)| over bins of
    confidence, weighted by their pairs; `longer_wins`: accuracy of preferring the longer response;
    `accuracy_chosen_longer`, `…_shorter`: the model's on the pairs where that is so; `length_correlation` of score and
    tokens; `score_mean`, `score_std`. What has no pair is left out.
    """
    lengths = [[len(row.completion_ids) for row in r.rows] for r in rankings]
    by_prompt = _differences(scores, rankings)
    longer_by_prompt = _differences(lengths, rankings)
    difference = np.array([d for group in by_prompt for d in group])
    longer = np.array([d for group in longer_by_prompt for d in group])
    right = _right(difference)
    means = [float(_right(np.array(group)).mean()) for group in by_prompt]
    mean = clustered_mean(means, len(difference) / len(means))
    flat_scores = np.array([s for group in scores for s in group])
    flat_lengths = np.array([n for group in lengths for n in group])
    figures = {
        "accuracy": mean.mean,
        "accuracy_low": mean.ci95[0],
        "accuracy_high": mean.ci95[1],
        "nll": float(np.logaddexp(0, -difference).mean()),
        "calibration_error": calibration_error(difference),
        "longer_wins": float(np.mean([_right(np.array(group)).mean() for group in longer_by_prompt])),
        "score_mean": float(flat_scores.mean()),
        "score_std": float(flat_scores.std()),
    }
    for name, chosen in (("accuracy_chosen_longer", longer > 0), ("accuracy_chosen_shorter", longer < 0)):
        if chosen.any():
            figures[name] = float(right[chosen].mean())
    if flat_scores.std() > 0 and flat_lengths.std() > 0:
        figures["length_correlation"] = float(np.corrcoef(flat_scores, flat_lengths)[0, 1])
    return figures


def _differences(values: Sequence[Sequence[float]], rankings: Sequence[Ranking]) -> list[list[float]]:
    """For each prompt the value of the better minus that of the worse response, of all pairs of all its rankings."""
    found: dict[tuple[int, ...], list[float]] = {}
    for v, ranking in zip(values, rankings, strict=True):
        pairs = combinations(range(len(v)), 2)
        found.setdefault(ranking.rows[0].prompt_ids, []).extend(v[i] - v[j] for i, j in pairs)
    return list(found.values())


def calibration_error(difference: np.ndarray[Any, np.dtype[Any]]) -> float:
    """Expected calibration error of sigma(|d|) as the probability that the sign of d is right."""
    confidence = 1 / (1 + np.exp(-np.abs(difference)))
    right = _right(difference)
    places = np.minimum(((confidence - 0.5) * 2 * BINS).astype(int), BINS - 1)
    error = 0.0
    for place in range(BINS):
        inside = places == place
        if inside.any():
            error += float(inside.mean() * abs(right[inside].mean() - confidence[inside].mean()))
    return error


def _right(difference: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
    right: np.ndarray[Any, np.dtype[Any]] = (difference > 0) + 0.5 * (difference == 0)
    return right
