"""verl: `custom_reward_function.path=my_reward.py`, and in that file `compute_score = verl_score("math")`.

Written against the call in verl's reward managers, `compute_score(data_source=…, solution_str=…, ground_truth=…,
extra_info=…)` with further keywords, which takes a number or a dict with `score`; not run under verl itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from r1zero.data.verdict import Verdict
from r1zero.integrations.scores import score_of
from r1zero.verifiers.running.shared import verify


def verl_score(
    verifier: str = "math", *, no_reward: float = 0.0, deadline_seconds: float = 10.0, **options: Any
) -> Callable[..., dict[str, Any]]:
    """A `compute_score` for verl: `{"score": …, "acc": …, "outcome": …}`; what it holds besides the score is logged.

    no_reward: the score where the verdict is `error` or `timeout`. verl knows no missing reward; `outcome` tells such a
    0 from that of a wrong answer. `extra_info` reaches the verifier as the problem's data.
    """

    def compute_score(
        data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **_: Any
    ) -> dict[str, Any]:
        verdict: Verdict = verify(
            solution_str,
            str(ground_truth),
            verifier,
            problem=extra_info or {},
            deadline_seconds=deadline_seconds,
            **options,
        )
        score = score_of(verdict)
        return {
            "score": no_reward if score is None else score,
            "acc": float(verdict.correct),
            "outcome": str(verdict.outcome),
        }

    return compute_score
