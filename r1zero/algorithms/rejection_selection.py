"""Which of a problem's sampled completions are kept: demonstrations for SFT, pairs for preference stages. Pure.

Every completion is accounted for: kept, or dropped for one named reason. A verifier that failed or ran out of time has
said nothing, so what it was asked about is neither right nor wrong and goes into neither set.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from r1zero.config import PairsConfig, RewardConfig, SelectionConfig
from r1zero.data.verdict import Outcome


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One completion with what was said of it."""

    index: int
    """Its place among the problem's samples."""
    text: str
    """The whole response, what the template writes of the assistant's turn included."""
    num_tokens: int
    truncated: bool
    reward: float | None
    """None where the reward's policies drop it."""
    outcomes: Mapping[str, Outcome]
    """Each reward term's, by its name."""
    unfit: str = ""
    """Why the text cannot be trained on (it holds a control token's text); empty: it can."""


Pair = tuple[Candidate, Candidate]
"""Chosen, rejected."""


def unusable(candidate: Candidate, reward: RewardConfig, required: Sequence[str]) -> str:
    """Why a completion can be in neither set, in a word; empty where it can.

    `truncated`: it lacks its end, and training adds one; `error`, `timeout`: of a term that counts or is required;
    `policy`: dropped by reward.on_*; `unfit`.
    """
    if candidate.truncated:
        return "truncated"
    asked = [term.key for term in reward.terms if term.weight != 0 or term.key in required]
    for outcome in (Outcome.ERROR, Outcome.TIMEOUT):
        if any(candidate.outcomes[name] is outcome for name in asked):
            return str(outcome)
    if candidate.reward is None:
        return "policy"
    return "unfit" if candidate.unfit else ""


def required_terms(select: SelectionConfig, reward: RewardConfig) -> list[str]:
    """The terms whose verdict must be `correct`."""
    return [reward.terms[0].key] if select.require is None else select.require


def choose(
    candidates: Sequence[Candidate], select: SelectionConfig, reward: RewardConfig
) -> tuple[list[Candidate], Counter[str]]:
    """The demonstrations of one problem, best first, and how many others were dropped for which reason.

    Besides `unusable`'s: `not_correct`, `low_reward`, `too_easy` (the whole problem), `duplicate`, `over_cap`.
    """
    required = required_terms(select, reward)
    dropped: Counter[str] = Counter()
    usable, good = 0, []
    for candidate in candidates:
        reason = unusable(candidate, reward, required)
        if not reason:
            usable += 1
            if not all(candidate.outcomes[name] is Outcome.CORRECT for name in required):
                reason = "not_correct"
        if reason:
            dropped[reason] += 1
        else:
            good.append(candidate)
    if required and usable and len(good) / usable > select.max_accuracy:
        dropped["too_easy"] += len(good)
        return [], dropped
    kept: list[Candidate] = []
    seen: set[str] = set()
    for candidate in sorted(good, key=_best_first):
        text = " ".join(candidate.text.split())
        if select.min_reward is not None and _reward(candidate) < select.min_reward:
            dropped["low_reward"] += 1
        elif select.deduplicate and text in seen:
            dropped["duplicate"] += 1
        elif select.per_problem and len(kept) == select.per_problem:
            dropped["over_cap"] += 1
        else:
            kept.append(candidate)
        seen.add(text)
    return kept, dropped


def make_pairs(candidates: Sequence[Candidate], pairs: PairsConfig, reward: RewardConfig) -> tuple[list[Pair], str]:
    """Pairs of one problem's completions, of the widest gap first, and why there is none where there is none.

    The reasons: `unusable` (fewer than two different usable completions), `gap`, `length`.
    """
    distinct: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: c.index):
        if not unusable(candidate, reward, ()):
            distinct.setdefault(" ".join(candidate.text.split()), candidate)
    if len(distinct) < 2:
        return [], "unusable"
    ranked = sorted(distinct.values(), key=_best_first)
    apart = [(a, b) for a, b in combinations(ranked, 2) if 0 < _gap(a, b) >= pairs.min_gap]
    if not apart:
        return [], "gap"
    alike = [pair for pair in apart if _length_ratio(pair) <= (pairs.max_length_ratio or float("inf"))]
    if not alike:
        return [], "length"
    found: list[Pair] = []
    used: set[int] = set()
    # sorted() keeps the order of equals: the better chosen one first.
    for chosen, rejected in sorted(alike, key=lambda pair: -_gap(*pair)):
        if len(found) < pairs.per_problem and not {chosen.index, rejected.index} & used:
            found.append((chosen, rejected))
            used |= {chosen.index, rejected.index}
    return found, ""


def balanced(pairs: Sequence[Pair], seed: int) -> list[bool]:
    """Which pairs to keep so that the chosen one is longer (in tokens) as often as it is shorter; ties all stay."""
    longer = [i for i, (chosen, rejected) in enumerate(pairs) if chosen.num_tokens > rejected.num_tokens]
    shorter = [i for i, (chosen, rejected) in enumerate(pairs) if chosen.num_tokens < rejected.num_tokens]
    more, fewer = (longer, shorter) if len(longer) > len(shorter) else (shorter, longer)
    left_out = set(random.Random(f"balance {seed}").sample(more, len(more) - len(fewer)))
    return [i not in left_out for i in range(len(pairs))]


def _best_first(candidate: Candidate) -> tuple[float, int]:
    return -_reward(candidate), candidate.index


def _reward(candidate: Candidate) -> float:
    assert candidate.reward is not None  # a usable one has one
    return candidate.reward


def _gap(chosen: Candidate, rejected: Candidate) -> float:
    return _reward(chosen) - _reward(rejected)


def _length_ratio(pair: Pair) -> float:
    lengths = sorted(candidate.num_tokens for candidate in pair)
    return lengths[1] / max(lengths[0], 1)
