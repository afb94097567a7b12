"""OpenRLHF: `--remote_rm_url my_reward.py`, and in that file `reward_func = openrlhf_reward("math")`.

Written against the call in OpenRLHF's source, `reward_func(queries, prompts, labels)`, where a query is the prompt with
the response and the answer is a dict of tensors `rewards` (0 for none), `scores` in [0, 1] for dynamic filtering, and
`extra_logs`; not run under OpenRLHF itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from r1zero.integrations.scores import scores


def openrlhf_reward(
    verifier: str = "math", *, no_reward: float = 0.0, deadline_seconds: float = 10.0, **options: Any
) -> Callable[..., dict[str, Any]]:
    """A `reward_func` for OpenRLHF.

    no_reward: the reward where the verdict is `error` or `timeout`; OpenRLHF knows no missing one, and the log
    `no_reward` says which they were.
    """

    def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
        import torch

        texts = [query.removeprefix(prompt) for query, prompt in zip(queries, prompts, strict=True)]
        answers = [str(label) for label in labels]
        found = scores(texts, answers, verifier, deadline_seconds=deadline_seconds, **options)
        rewards = torch.tensor([no_reward if score is None else score for score in found])  # (N,)
        missing = torch.tensor([float(score is None) for score in found])  # (N,)
        return {"rewards": rewards, "scores": rewards.clamp(0, 1), "extra_logs": {"no_reward": missing}}

    return reward_func
