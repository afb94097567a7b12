"""How many tokens go through the model together, and what happens where they are too many: half as many, again.

What was accumulated before memory ran out is thrown away, as a backward pass that breaks off leaves half of itself in
the gradient. So the whole minibatch is done again, and its gradient is that of any other split, but for rounding.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from r1zero.errors import UserError
from r1zero.runs.tracking import say

T = TypeVar("T")

_SAYS = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc")
"""What torch's other errors say of a lack of memory: on a CPU it has no class of its own."""


class MicroBudget:
    """Tokens of a micro-batch: `optimizer.micro_batch_tokens`, until memory does not suffice."""

    def __init__(self, tokens: int, processes: int) -> None:
        self.tokens = tokens
        self.processes = processes

    def fitting(self, run: Callable[[], T], forget: Callable[[], None]) -> T:
        """What `run` returns, which heeds `tokens`; halved for good, after `forget`, as often as memory runs out.

        Raises UserError where a single token would be left. Of several processes the others wait in the exchange of
        gradients for the one that has no memory left: that ends the run, with the setting that mends it.
        """
        while True:
            try:
                return run()
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                why = str(error).partition("\n")[0][:200]
            # Not within `except`: the error's traceback holds every tensor of the pass.
            half = self.tokens // 2
            if half < 1 or self.processes > 1:
                raise UserError(
                    f"out of memory in a micro-batch of {self.tokens} tokens ({why}): set optimizer.micro_batch_tokens "
                    f"to {max(1, half)}, or see `r1zero plan` for what else takes less; then go on with --resume"
                )
            forget()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            say(
                f"out of memory in a micro-batch of {self.tokens} tokens: done again with {half}, and so from here on; "
                f"set optimizer.micro_batch_tokens to {half} to begin with it",
                style="bold yellow",
            )
            self.tokens = half


def is_out_of_memory(error: BaseException) -> bool:
    """True for what torch and Python raise where memory does not suffice, on a GPU or a CPU."""
    said = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in said for words in _SAYS)
