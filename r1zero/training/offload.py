"""What a step does not need just now gives its device memory up: the reference and the optimizer's state wait in the
host's memory while vLLM samples on the same GPU, and come back for as long as they are used."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from r1zero.config import EngineConfig

Thing = nn.Module | torch.optim.Optimizer


class Idle:
    """Moves modules and optimizer states between `device`, where they work, and `host`, where they wait.

    Values do not change on the way. `host` None: everything stays where it is.
    """

    def __init__(self, device: torch.device, host: torch.device | None) -> None:
        self.device = device
        self.host = host

    @classmethod
    def of(cls, config: EngineConfig, engine: str, device: torch.device) -> Idle:
        """As `engine.offload` says; unset: where `engine` samples on the trainer's own GPU in memory of its own."""
        wanted = engine == "vllm" if config.offload is None else config.offload
        return cls(device, torch.device("cpu") if wanted and device.type != "cpu" else None)

    def put(self, *things: Thing) -> None:
        """These are not needed for now."""
        if self.host is not None:
            for thing in things:
                _move(thing, self.host)

    @contextmanager
    def back(self, *things: Thing) -> Iterator[None]:
        """These are on the device within."""
        if self.host is not None:
            for thing in things:
                _move(thing, self.device)
        try:
            yield
        finally:
            self.put(*things)

    def trim(self) -> None:
        """What malloc keeps of memory freed on a CPU goes back, before something else asks for as much.

        SmolLM2-135M beside vLLM, 4 x 8 x 64 tokens: peak 6.1 GB in place of 6.6, for 0.2 s of a step of 34 CPU seconds.
        """
        if self.device.type == "cpu" and sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own
            if trim is not None:
                trim(0)

    def release(self) -> None:
        """What torch keeps of freed device memory goes back, so that an engine that wakes can have it."""
        if self.host is not None and self.device.type == "cuda":
            torch.cuda.empty_cache()


def _move(thing: Thing, device: torch.device) -> None:
    if isinstance(thing, nn.Module):
        thing.to(device)
        return
    for state in thing.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor):
                state[name] = value.to(device)
