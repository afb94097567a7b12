"""Openings and n-grams that became common during training, and what the reward gives to the completions with them.

A policy that has found a blind spot of its reward says one thing again and again. What rose is compared between a run's
first steps (few: a blind spot can be found within five) and its last; the lift is within a step, so that a reward that
rises for all lifts nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

REFLECTION = (
    "wait",
    "hmm",
    "however",
    "alternatively",
    "let me check",
    "let's check",
    "recheck",
    "mistake",
    "actually",
)
"""What a policy says that looks at its own work again (R1-Zero's "wait": arXiv 2501.12948, figure 3 and appendix)."""
REFLECTS = re.compile(r"\b(?:" + "|".join(map(re.escape, REFLECTION)) + r")\b")
_TOKEN = re.compile(r"</?[A-Za-z_]+>|[^\W\d_]+(?:['’][^\W\d_]+)*|\d+|([^\w\s])\1*|_+")
"""A tag, a word, a number, or one mark however often repeated; three or more of it count as three."""
_MOST_TOKENS = 300
_MOST_CHARACTERS = 4_000
_LONGEST_OPENING = 8
_LEAST_Z = 3.5
"""Standard errors that a share has to rise by: of some thousand n-grams that did not change, chance shows none."""
_COMMON = 0.5
"""A token that half of the early completions have anyway says nothing more of an opening."""

_Gram = tuple[str, ...]
_Members = dict[_Gram, set[int]]
"""Which texts have each, by their place in the list."""


@dataclass(frozen=True, slots=True)
class Text:
    """A completion with what it earned over its step's mean."""

    text: str
    lift: float | None
    """Reward less the mean reward of its step; None where it has no reward."""


@dataclass(frozen=True, kw_only=True)
class Riser:
    """Something that is said more often than it was."""

    text: str
    kind: str
    """`opening` or `n-gram`."""
    early: float
    late: float
    """Share of the completions with it, in the first and in the last steps."""
    lift: float | None
    """Mean reward, less its step's, of late completions with it, less that of those without; None where all or none
    have it."""

    @property
    def rise(self) -> float:
        return self.late - self.early


def reflections(texts: Iterable[str]) -> Counter[str]:
    """How many of `texts` hold each of REFLECTION."""
    count: Counter[str] = Counter()
    for text in texts:
        count.update(set(REFLECTS.findall(text.lower())))
    return count


def risers(early: Sequence[Text], late: Sequence[Text], *, most: int = 12, least_rise: float = 0.02) -> list[Riser]:
    """Openings and n-grams (up to three tokens) whose share rose by `least_rise` or more
    and by more than chance would have it, the largest rise first; at
    the same rise openings come first, then what is shorter. What stands in the very same completions as one above it
    is left out."""
    if not early or not late:
        return []
    before, after = _tokens(early), _tokens(late)
    counted = (("opening", *_openings(before, after)), ("n-gram", _grams(before), _grams(after)))
    found: list[tuple[Riser, set[int]]] = []
    for kind, sooner, later in counted:
        for gram, members in later.items():
            share = len(sooner.get(gram, ())) / len(early)
            riser = Riser(text=_written(gram), kind=kind, early=share, late=len(members) / len(late), lift=None)
            if riser.rise >= least_rise and riser.rise >= _LEAST_Z * _error(riser, len(early), len(late)):
                found.append((riser, members))
    found.sort(key=lambda one: (-round(one[0].rise, 3), one[0].kind == "n-gram", len(one[0].text), one[0].text))
    kept: list[tuple[Riser, set[int]]] = []
    for riser, members in found:
        if len(kept) == most:
            break
        if all(len(members & other) < 0.95 * len(members | other) for _, other in kept):
            kept.append((riser, members))
    return [_with_lift(riser, members, late) for riser, members in kept]


def _error(riser: Riser, early: int, late: int) -> float:
    """Standard error of the difference of the two shares, had nothing changed between them."""
    share = (riser.early * early + riser.late * late) / (early + late)
    return math.sqrt(share * (1 - share) * (1 / early + 1 / late))


def _with_lift(riser: Riser, members: set[int], late: Sequence[Text]) -> Riser:
    with_it = [lift for i, one in enumerate(late) if (lift := one.lift) is not None and i in members]
    without = [lift for i, one in enumerate(late) if (lift := one.lift) is not None and i not in members]
    lift = sum(with_it) / len(with_it) - sum(without) / len(without) if with_it and without else None
    return replace(riser, lift=lift)


def _tokens(texts: Sequence[Text]) -> list[list[str]]:
    """The first tokens of each text, repeated marks cut to three."""
    found = []
    for one in texts:
        tokens = (match.group() for match in islice(_TOKEN.finditer(one.text[:_MOST_CHARACTERS]), _MOST_TOKENS))
        found.append([token[:3] if len(set(token)) == 1 and not token[0].isalnum() else token for token in tokens])
    return found


def _openings(early: Sequence[Sequence[str]], late: Sequence[Sequence[str]]) -> tuple[_Members, _Members]:
    """Which texts begin with each opening. One is a token, and goes on as long as nearly all late texts that begin so
    go on so, by a token that is not common anyway: "Great question!", but not the tag that follows in every text."""
    counts = Counter(token for tokens in early for token in set(tokens))
    common = {token for token, seen in counts.items() if seen >= _COMMON * len(early)}
    openings = []
    for first in dict.fromkeys(tokens[0] for tokens in late if tokens):
        opening: _Gram = (first,)
        most = len(_beginning(late, opening))
        while len(opening) < _LONGEST_OPENING:
            members = _beginning(late, opening)
            after = Counter(late[i][len(opening)] for i in members if len(late[i]) > len(opening))
            token, count = max(after.items(), key=lambda one: one[1], default=("", 0))
            if count < 0.9 * most or token in common or not token:
                break
            opening = (*opening, token)
        openings.append(opening)
    return {one: _beginning(early, one) for one in openings}, {one: _beginning(late, one) for one in openings}


def _beginning(texts: Sequence[Sequence[str]], opening: _Gram) -> set[int]:
    return {i for i, tokens in enumerate(texts) if tuple(tokens[: len(opening)]) == opening}


def _grams(texts: Sequence[Sequence[str]]) -> _Members:
    """Which texts hold each n-gram of up to three tokens; those in at least one in 50."""
    found: dict[_Gram, set[int]] = defaultdict(set)
    for i, tokens in enumerate(texts):
        for n in (1, 2, 3):
            for gram in zip(*(tokens[k:] for k in range(n)), strict=False):
                found[gram].add(i)
    least = max(2, len(texts) // 50)
    return {gram: members for gram, members in found.items() if len(members) >= least}


def _written(gram: _Gram) -> str:
    """The tokens as one reads them: a blank between words and numbers, none around marks and tags."""
    text = ""
    for token in gram:
        text += (" " if text and text[-1].isalnum() and token[0].isalnum() else "") + token
    return text
