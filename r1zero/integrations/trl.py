"""TRL: `GRPOTrainer(reward_funcs=[trl_reward("math")], …)`, `RLOOTrainer` alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from r1zero.errors import UserError
from r1zero.integrations.scores import scores, text_of


class RewardFunction(Protocol):
    """What TRL calls: one reward a completion, None where there is none."""

    __name__: str

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """(N,) rewards."""
        ...


def trl_reward(
    verifier: str = "math",
    *,
    answer_column: str = "answer",
    data_columns: Sequence[str] = (),
    deadline_seconds: float = 10.0,
    **options: Any,
) -> RewardFunction:
    """A reward function for TRL's `reward_funcs`; its metrics are called after the verifier.

    answer_column: the dataset's column with the gold answer; data_columns: what the verifier needs besides, such
    as `tests`; options: the verifier's. `error` and `timeout` give None, which TRL leaves out of the reward (a warning
    where every function of a completion says None). Raises UserError where the dataset lacks a column.
    """

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        for name in (answer_column, *data_columns):
            if name not in columns:
                raise UserError(f"trl_reward: the dataset has no column {name!r} (it has {', '.join(sorted(columns))})")
        data: list[Mapping[str, Any]] = [
            {name: columns[name][i] for name in data_columns} for i in range(len(completions))
        ]
        answers = [str(answer) for answer in columns[answer_column]]
        texts = [text_of(completion) for completion in completions]
        return scores(texts, answers, verifier, data, deadline_seconds=deadline_seconds, **options)

    reward.__name__ = verifier.rpartition(":")[2]
    return reward
