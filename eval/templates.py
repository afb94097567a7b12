"""Which template a model is asked under: the run's own, a sound default, or `best`, found by trying.

A base model's score depends on its template more than on many RL runs (33.0 to 61.8 on MATH-500 for one model, arXiv
2503.20783 table 1), so `best` scores every template that fits the tokenizer on a small slice and reports them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1zero import prompts
from r1zero.errors import UserError
from r1zero.eval.harness import EvalTemplate
from r1zero.eval.result import EvalResult
from r1zero.prompts import Template

UNBOXED = ("code", "instructions")
"""Kinds of benchmark whose answer is the whole text: nothing is asked to stand in a box."""
BEST = "best"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One template's score on the slice, or why it could not be tried."""

    template: str
    num_problems: int = 0
    pass_at_1: float | None = None
    ci95: tuple[float, float] | None = None
    unparseable: float | None = None
    truncated: float | None = None
    skipped: str = ""


def default_template(tokenizer: Any, kind: str) -> str:
    """For a model of no run of ours: its own chat template (with a box for the answer in maths), else R1-Zero's."""
    if not getattr(tokenizer, "chat_template", None):
        return "plain" if kind in UNBOXED else "r1zero"
    return "chat" if kind in UNBOXED else "boxed_chat"


def candidates(tokenizer: Any) -> tuple[list[Template], list[Trial]]:
    """The shipped templates that this tokenizer can take, and those it cannot with the reason."""
    fit, unfit = [], []
    for name in prompts.names():
        template = prompts.load(name)
        try:
            template.encode("1+1", tokenizer)
            template.stop_token_ids(tokenizer)
        except UserError as error:
            unfit.append(Trial(template=name, skipped=str(error)))
        else:
            fit.append(template)
    return fit, unfit


def choose(templates: Sequence[Template], score: Callable[[Template], EvalResult]) -> tuple[Template, list[Trial]]:
    """The template with the highest score, the first of equals, and every trial."""
    if not templates:
        raise UserError("--template best: no template fits this tokenizer: name a file with --template")
    trials = []
    for template in templates:
        result = score(template)
        trials.append(
            Trial(
                template=template.name,
                num_problems=result.num_problems,
                pass_at_1=result.pass_at_1,
                ci95=result.ci95,
                unparseable=result.unparseable,
                truncated=result.truncated,
            )
        )
    scores = [math.nan if trial.pass_at_1 is None else trial.pass_at_1 for trial in trials]
    if all(math.isnan(score) for score in scores):
        raise UserError("--template best: not one answer could be graded under any template: try the verifier alone")
    best = max(range(len(trials)), key=lambda i: -1.0 if math.isnan(scores[i]) else scores[i])
    return templates[best], trials


def template_facts(template: EvalTemplate, tokenizer: Any) -> Mapping[str, Any]:
    """What the manifest keeps: name, hash of the file, hash of the prompt as the tokenizer renders it."""
    inner = template if isinstance(template, Template) else getattr(template, "template", None)
    assert isinstance(inner, Template)
    rendered = inner.rendered_fingerprint(tokenizer) if isinstance(template, Template) else "by the endpoint"
    return {"name": inner.name, "fingerprint": inner.fingerprint, "rendered": rendered}
