"""What every test module begins with."""

from collections.abc import Iterator

import pytest
from accelerate.state import AcceleratorState


@pytest.fixture(autouse=True, scope="module")
def _no_accelerator_of_another_module() -> Iterator[None]:
    """accelerate keeps the first compute type of a process; the next module may want another."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)
