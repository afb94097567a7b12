"""r1zero: reasoning models by reinforcement learning from verifiable rewards.

problem -> prompt -> rollout -> completion -> verdict -> reward -> advantage -> loss -> step -> checkpoint -> eval

    import r1zero

    r1zero.verify("so it is \\boxed{1/2}", "0.5").correct
    run = r1zero.train("tiny-cpu", {"run.steps": 20})
    run.metrics(), run.rollouts(20), run.checkpoint("best")
    r1zero.evaluate(run, k=4)

Nothing is imported before it is used: `import r1zero` loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r1zero.data.records import Problem
    from r1zero.data.verdict import Outcome, Verdict
    from r1zero.errors import UserError
    from r1zero.eval.front import Comparison, Result, compare, evaluate
    from r1zero.pipelines.front import Run, load_run, train
    from r1zero.verifiers.running.shared import verify, verify_many

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "Outcome",
    "Problem",
    "Result",
    "Run",
    "UserError",
    "Verdict",
    "compare",
    "evaluate",
    "load_run",
    "train",
    "verify",
    "verify_many",
]

_HOMES = {
    "r1zero.data.records": ("Problem",),
    "r1zero.data.verdict": ("Outcome", "Verdict"),
    "r1zero.errors": ("UserError",),
    "r1zero.eval.front": ("Comparison", "Result", "compare", "evaluate"),
    "r1zero.pipelines.front": ("Run", "load_run", "train"),
    "r1zero.verifiers.running.shared": ("verify", "verify_many"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'r1zero' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
