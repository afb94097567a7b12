from typing import Any

import pytest
import torch
from torch import nn

from r1zero.config import EngineConfig
from r1zero.training.offload import Idle

CPU, META = torch.device("cpu"), torch.device("meta")


def stepped() -> tuple[nn.Linear, torch.optim.AdamW]:
    module = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return module, optimizer


def devices(optimizer: torch.optim.Optimizer) -> set[str]:
    return {value.device.type for state in optimizer.state.values() for value in state.values()}


def test_a_module_and_every_tensor_of_an_optimizer_wait_on_the_host() -> None:
    # No other device is to be had in a test; "meta" has no values, but shows what was moved.
    module, optimizer = stepped()
    assert [len(state) for state in optimizer.state.values()] == [3, 3]  # step and both moments
    Idle(CPU, META).put(module, optimizer)
    assert {p.device.type for p in module.parameters()} == {"meta"}
    assert devices(optimizer) == {"meta"}


def test_they_are_on_the_device_within_and_wait_again_after_an_error_too() -> None:
    module, optimizer = stepped()
    seen: list[Any] = []

    def work() -> None:
        with Idle(META, CPU).back(module, optimizer):
            seen.extend([next(module.parameters()).device.type, devices(optimizer)])
            module.to_empty(device="cpu")  # values do not come back from "meta"
            optimizer.state.clear()
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert seen == ["meta", {"meta"}]
    assert next(module.parameters()).device.type == "cpu"


@pytest.mark.parametrize(
    ("offload", "engine", "device", "moves"),
    [
        (None, "vllm", "cuda", True),
        (None, "transformers", "cuda", False),
        (None, "vllm-server", "cuda", False),
        (True, "transformers", "cuda", True),
        (False, "vllm", "cuda", False),
        (None, "vllm", "cpu", False),
        (True, "vllm", "cpu", False),
    ],
)
def test_by_default_only_a_gpu_shared_with_vllm_is_cleared(
    offload: bool | None, engine: str, device: str, moves: bool
) -> None:
    assert (Idle.of(EngineConfig(offload=offload), engine, torch.device(device)).host is not None) == moves
