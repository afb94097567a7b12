"""What a stage is to the one loop (`loop.py`): a step, what it measures, and the state that makes it go on.

`Stage` has what a stage may leave unsaid; `EpochStage` is a stage that makes passes over a fixed set of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from accelerate import Accelerator
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero.config import DPOConfig, RewardModelConfig, SFTConfig
from r1zero.runs.folder import RunFolder
from r1zero.training.updater import Updater, batch_of, num_steps

U = TypeVar("U")
C = TypeVar("C", bound=SFTConfig | DPOConfig | RewardModelConfig)


class Stage(ABC):
    """An algorithm as the loop drives it."""

    accelerator: Accelerator
    tokenizer: PreTrainedTokenizerBase

    @property
    @abstractmethod
    def model(self) -> PreTrainedModel:
        """What a checkpoint holds."""

    @abstractmethod
    def step(self, step: int) -> dict[str, float]:
        """One step, counted from 1; its metrics, `time/step` among them."""

    @abstractmethod
    def evaluate(self, step: int) -> dict[str, float]:
        """Figures on held-out data (`held_out/…`, `eval/…`); empty where there is none."""

    def samples(self, step: int) -> Iterable[Mapping[str, Any]] | None:
        """This process's rows of the step just taken, a row a completion; None where the stage samples nothing."""
        return None

    @abstractmethod
    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        """What of a step's metrics the terminal shows."""

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        """Name -> one line on what is going wrong."""
        if metrics["optimizer/skipped"]:
            return {"gradient": "the gradient was not finite: the step was skipped"}
        return {}

    @abstractmethod
    def merit(self, metrics: Mapping[str, float]) -> float | None:
        """How good an evaluation is, higher is better; None where it does not say."""

    @abstractmethod
    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        """The run's result for a reader, from its first evaluation and its last; empty where there is none."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """`(tensors, counters)` that with the weights make the next step what it would have been."""

    @abstractmethod
    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        """Take over what `state` gave."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A stage's run with everything it needs from outside checked. Nothing is written yet."""

    steps: int
    """The last step."""
    manifest: Mapping[str, Any]
    """What another must know to get the same numbers, besides the settings."""
    start: Callable[[RunFolder, Path | None], AbstractContextManager[Stage]]
    """Loads models and engine, from a checkpoint where there is one; they end with the block."""
    eval_every: int
    """Steps between evaluations; 0: at the end alone."""
    notes: Sequence[str] = field(default=())
    """What the user has to know of the data, said at the start."""


class EpochStage(Stage, Generic[C, U]):
    """A stage over a fixed set of units (demonstrations, pairs, rankings), a batch of them a step."""

    def __init__(
        self,
        config: C,
        *,
        accelerator: Accelerator,
        module: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        units: Sequence[U],
        held_out: Sequence[U] = (),
    ) -> None:
        self.config = config
        self.accelerator = accelerator
        self.tokenizer = tokenizer
        self.units = units
        self.held_out = held_out
        steps = num_steps(len(units), config.batch_size, config.epochs, config.run.steps)
        self.updater = Updater(accelerator, module, config.optimizer, steps)

    def batch(self, step: int) -> list[U]:
        """The units of `step`, of all processes."""
        config = self.config
        chosen = batch_of(step, len(self.units), config.batch_size, config.epochs, config.run.steps, config.run.seed)
        return [self.units[i] for i in chosen]

    def own(self, batch: Sequence[U]) -> tuple[list[U], bool]:
        """This process's share of a batch. A process without one gets a unit that counts nothing, and True."""
        share = list(batch[self.accelerator.process_index :: self.accelerator.num_processes])
        return (share, False) if share else ([batch[0]], True)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.updater.state(), {}

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        self.updater.load_state(tensors)


def before_after(title: str, rows: Sequence[tuple[str, str, str]]) -> str:
    """A table of (what, before, after)."""
    width = max(len(title), *(len(name) for name, _, _ in rows))
    lines = [f"{title:<{width}}  {'before':>24}  {'after':>24}"]
    return "\n".join(lines + [f"{name:<{width}}  {before:>24}  {after:>24}" for name, before, after in rows])
