"""The held-out problems of GRPO and PPO: sampled and scored as `r1zero eval` does it, and what the run says of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from transformers import PreTrainedTokenizerBase

from r1zero.config import RLConfig
from r1zero.data.records import Completion, Problem
from r1zero.eval.harness import evaluate
from r1zero.eval.result import EvalResult
from r1zero.models.policy import Row
from r1zero.prompts import Template
from r1zero.rollout.base import Engine, OnCompletion, Sampling
from r1zero.runs.tracking import readable, say
from r1zero.training.stage import before_after
from r1zero.verifiers import VerifierPool, VerifierSpec


class HeldOut:
    """Scores the policy of now on a fixed set of problems."""

    def __init__(
        self,
        config: RLConfig,
        problems: Sequence[Problem],
        *,
        engine: Engine,
        tokenizer: PreTrainedTokenizerBase,
        template: Template,
        pool: VerifierPool,
    ) -> None:
        self.config = config
        self.problems = problems
        self.engine = engine
        self.tokenizer = tokenizer
        self.template = template
        self.pool = pool
        self.first: EvalResult | None = None
        """The evaluation before the first step, where this process made it."""
        self.last: EvalResult | None = None

    def evaluate(self, step: int) -> tuple[EvalResult, dict[str, float], list[tuple[Row, bool]]]:
        """The problems' result at `step`, its figures, and each sampled row with whether it was cut off."""
        settings = self.config.eval
        began = time.perf_counter()
        term = self.config.reward.terms[0]
        engine = _Remembering(self.engine)
        result = evaluate(
            self.problems,
            engine=cast(Engine, engine),
            tokenizer=self.tokenizer,
            template=self.template,
            sampling=eval_sampling(self.config),
            k=settings.samples,
            pool=self.pool,
            verifier=VerifierSpec(name=term.verifier, options=term.options),
            seed=settings.seed,
        )
        low, high = result.ci95
        say(
            f"held-out pass@1 at step {step}: {result.pass_at_1:.1%} (95% interval {low:.1%} to {high:.1%}; "
            f"{result.num_problems} problems x {result.k}, temperature {settings.temperature:g}, "
            f"cut {result.truncated:.1%}, unparseable {result.unparseable:.1%}, error {result.error:.1%}) "
            f"in {time.perf_counter() - began:.1f} s",
            style="bold",
        )
        if step == 0:
            self.first = result
        self.last = result
        return result, _figures(result), engine.sampled

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        """pass@1 with its interval before and after, what else changed, and three answers to read."""
        lines = [f"{'held-out pass@1':<18}{'value':>8}  95% interval"]
        for name, row in (("before", before), ("after", after)):
            if "eval/pass@1" in row:
                low, high = row["eval/ci95_low"], row["eval/ci95_high"]
                lines.append(f"{name:<18}{row['eval/pass@1']:>8.1%}  {low:.1%} to {high:.1%}")
        more = result_table(self.config, before, after).rstrip("\n")
        return "\n".join([*lines, *([more] if more else []), *self._samples()])

    def _samples(self) -> list[str]:
        lines = []
        before = {s.key: s for s in self.first.samples} if self.first else {}
        for sample in self.last.samples[:3] if self.last else ():
            lines.append(f"\nproblem {sample.problem_id}: {readable(sample.prompt)}   gold: {sample.answer}")
            for name, shown in (("before", before.get(sample.key)), ("after", sample)):
                if shown is not None:
                    lines.append(f"  {name}: {readable(shown.completion)} -> {shown.outcome} ({shown.reason})")
        return lines


def result_table(config: RLConfig, before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """What besides pass@1 changed on the held-out problems: rewards, distance, length; empty where it says no more.

    The score of the first term is the true reward of a run that trains on a reward model and measures a judge.
    """
    shown = {f"score of {config.reward.terms[0].key}": "eval/score"} if config.reward.models else {}
    shown |= {f"score of {term.name}": f"eval/{term.name}/score" for term in config.reward.models}
    shown |= {
        "KL to the reference, nats a completion": "eval/kl_completion",
        "KL to the reference, nats a token": "eval/kl",
        "reference's perplexity": "eval/ref_perplexity",
    }
    rows = [
        (name, f"{before[key]:.3f}", f"{after[key]:.3f}")
        for name, key in shown.items()
        if key in before and key in after
    ]
    if not rows:
        return ""
    rows.append(("tokens an answer", f"{before['eval/tokens']:.1f}", f"{after['eval/tokens']:.1f}"))
    return before_after("held-out answers", rows) + "\n"


class _Remembering:
    """An engine that keeps the tokens it sampled, for what looks at them besides the verifiers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.sampled: list[tuple[Row, bool]] = []
        """Each row, and whether it was cut off."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, n: int, on_completion: OnCompletion | None = None
    ) -> list[tuple[Completion, ...]]:
        groups = self._engine.generate(prompts, sampling, n, on_completion)
        for prompt, group in zip(prompts, groups, strict=True):
            for completion in group:
                row = Row(prompt_ids=tuple(prompt), completion_ids=completion.token_ids)
                self.sampled.append((row, completion.truncated))
        return groups


def eval_sampling(config: RLConfig) -> Sampling:
    """How held-out problems are sampled; stop tokens and seed are the harness's to set."""
    settings = config.eval
    return Sampling(
        max_tokens=settings.max_tokens or config.sampling.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
    )


def _figures(result: EvalResult) -> dict[str, float]:
    """`eval/score` is the first term's mean score: of a verifier that only says right or wrong, its pass@1."""
    figures = {
        "eval/pass@1": result.pass_at_1,
        "eval/ci95_low": result.ci95[0],
        "eval/ci95_high": result.ci95[1],
        "eval/truncated": result.truncated,
        "eval/unparseable": result.unparseable,
        "eval/error": result.error,
        "eval/tokens": result.tokens_per_answer,
    }
    scores = [sample.score for sample in result.samples if sample.score is not None]
    return figures | ({"eval/score": sum(scores) / len(scores)} if scores else {})
