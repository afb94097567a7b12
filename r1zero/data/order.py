"""Which problems come next: an endless stream of shuffled passes over the data, without state of its own."""

from __future__ import annotations

import random
from functools import lru_cache


def take(num_problems: int, start: int, count: int, seed: int) -> list[int]:
    """Indices `start .. start + count - 1` of the stream: pass e is a shuffle of all problems by (seed, e).

    A function of its arguments alone, so a resumed run needs to know no more than how many it has consumed.
    """
    indices: list[int] = []
    while len(indices) < count:
        epoch, offset = divmod(start + len(indices), num_problems)
        indices += _order(num_problems, epoch, seed)[offset : offset + count - len(indices)]
    return indices


@lru_cache(maxsize=2)  # every step of a pass asks for the same one
def _order(num_problems: int, epoch: int, seed: int) -> tuple[int, ...]:
    order = list(range(num_problems))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return tuple(order)
