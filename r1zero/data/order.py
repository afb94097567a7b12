"""Which problems come next: an endless stream of shuffled passes over the data, without state of its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from r1zero.errors import UserError

CYCLE = 1000
"""Places over which the shares of several sources come out exactly."""


def take(num_problems: int, start: int, count: int, seed: int) -> list[int]:
    """Indices `start .. start + count - 1` of the stream: pass e is a shuffle of all problems by (seed, e).

    A function of its arguments alone, so a resumed run needs to know no more than how many it has consumed.
    """
    indices: list[int] = []
    while len(indices) < count:
        epoch, offset = divmod(start + len(indices), num_problems)
        indices += _order(num_problems, epoch, seed)[offset : offset + count - len(indices)]
    return indices


def mix(sizes: Sequence[int], weights: Sequence[float], start: int, count: int, seed: int) -> list[tuple[int, int]]:
    """(source, index in it) at `start .. start + count - 1` of a stream in which sources have the shares `weights`.

    Each source is a stream of its own passes, as of `take`; at any place the numbers taken are within one of the
    shares. Within the places asked for the order is shuffled, so that no process gets one source only. A function of
    its arguments alone.
    """
    cycle, before = _cycle(tuple(weights))
    if count == 0:
        return []
    rounds, offset = divmod(start, CYCLE)
    whole = before[CYCLE]
    taken = Counter({s: rounds * whole[s] + before[offset][s] for s in range(len(sizes))})
    places = []
    for position in range(start, start + count):
        source = cycle[position % CYCLE]
        places.append((source, take(sizes[source], taken[source], 1, _own_seed(seed, source))[0]))
        taken[source] += 1
    random.Random(f"{seed}/{start}").shuffle(places)
    return places


def _own_seed(seed: int, source: int) -> int:
    return random.Random(f"{seed}/source {source}").getrandbits(31)


@lru_cache(maxsize=4)
def _cycle(weights: tuple[float, ...]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Which source stands at each of `CYCLE` places, spread evenly, and how many of each stand before each place.

    Raises UserError for a weight too small to come up once.
    """
    total = sum(weights)
    counts = [0] * len(weights)
    order: list[int] = []
    before = [tuple(counts)]
    for place in range(1, CYCLE + 1):
        # The source furthest behind its share; of equals the first.
        behind = [round(weight / total * place - count, 9) for weight, count in zip(weights, counts, strict=True)]
        source = behind.index(max(behind))
        order.append(source)
        counts[source] += 1
        before.append(tuple(counts))
    if min(counts) == 0:
        raise UserError(f"data.sources: source {counts.index(0) + 1} has less than 1/{CYCLE} of the weight: raise it")
    return tuple(order), tuple(before)


@lru_cache(maxsize=32)  # every step of a pass asks for the same one
def _order(num_problems: int, epoch: int, seed: int) -> tuple[int, ...]:
    order = list(range(num_problems))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return tuple(order)
