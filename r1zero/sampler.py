"""Which problems come next: an endless stream of shuffled passes over the data, without state of its own."""

from __future__ import annotations

import random


def take(num_problems: int, start: int, count: int, seed: int) -> list[int]:
    """Indices `start .. start + count - 1` of the stream: pass e is a shuffle of all problems by (seed, e).

    A function of its arguments alone, so a resumed run needs to know no more than how many it has consumed.
    """
    indices: list[int] = []
    while len(indices) < count:
        epoch, offset = divmod(start + len(indices), num_problems)
        order = list(range(num_problems))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        indices += order[offset : offset + count - len(indices)]
    return indices
