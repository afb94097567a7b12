"""GRPO and PPO as stages of the loop: what they need checked, what they hold, and what a run of them says.

The algorithms are `grpo.py` and `ppo.py` on `policy_gradient.py`, which knows no run folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel

from r1zero.algorithms.rewards import Rewarder, check_verifiers
from r1zero.config import GRPOConfig, PPOConfig, RLConfig
from r1zero.data import datasets
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval import benchmarks
from r1zero.eval.decontaminate import require_clean
from r1zero.models.logprobs import require_neutral_sampling
from r1zero.models.policy import Policy, add_lora, compute_dtype, load_model
from r1zero.models.reward_model import find_reward_model
from r1zero.rollout import engine_name, make_engine
from r1zero.runs.folder import RunFolder
from r1zero.runs.health import Health
from r1zero.runs.tracking import processes
from r1zero.training.groups import ScoredGroup, completion_rows, verifier_pool
from r1zero.training.held_out import HeldOut
from r1zero.training.inputs import Base, accelerator_of, load_base, longest_prompt, within_limit
from r1zero.training.loop import set_threads, train
from r1zero.training.policy_gradient import PolicyGradient
from r1zero.training.stage import Prepared, Stage
from r1zero.verifiers import VerifierSpec, resolve

C = TypeVar("C", GRPOConfig, PPOConfig)

Make = Callable[..., PolicyGradient[Any]]
"""`(config, inputs, **parts)` -> the stage's algorithm with its models, from where the run began."""


@dataclass(frozen=True, kw_only=True)
class Inputs(Base):
    """What a run needs from outside, checked."""

    problems: list[Problem]
    held_out: list[Problem]
    skipped: int
    """Training prompts over the limit, left out as the config says."""
    notes: tuple[str, ...]
    """What else was left out of the training data, or stands in it twice; what was looked for and not found."""
    reward_models: tuple[Path, ...]
    """Checkpoints of `reward.models`."""


def train_on_policy(config: C, make: Make, *, resume: bool) -> Path:
    """A run of the algorithm that `make` makes: see `loop.train`."""
    return train(config, partial(_prepared, make=make), resume=resume)


def prepare(config: RLConfig) -> Inputs:
    """Load and check model, template, verifiers and data. Writes nothing."""
    for term in config.reward.terms:
        resolve(VerifierSpec(name=term.verifier, options=term.options))
    sampling = config.sampling
    require_neutral_sampling(top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
    engine_name(config.engine)
    data = datasets.load(config.data)
    problems, notes = data.kept, data.said()
    check_verifiers(problems)
    held_out = datasets.load_problems(config.eval.data) if config.eval.data.source else []
    shared = datasets.overlap(problems, held_out)
    if shared:
        raise UserError(
            f"{len(shared)} held-out problems are also training problems (first: {shared[0][:80]!r}): "
            "evaluation sets are never trained on; choose another eval.data or filter data"
        )
    for name in config.eval.decontaminate:
        benchmark = benchmarks.load(name, data_dir=config.eval.data_dir)
        require_clean(problems, benchmark.problems)
        notes.append(f"0 of {len(problems)} training problems share ten words in a row with {benchmark.name}")
    base = load_base(config.model.path, config.template)
    kept, skipped = within_limit(problems, config.data, base.template, base.tokenizer)
    held_out, _ = within_limit(held_out, config.eval.data, base.template, base.tokenizer)
    return Inputs(
        **vars(base),
        problems=kept,
        held_out=held_out,
        skipped=skipped,
        notes=tuple(notes),
        reward_models=tuple(find_reward_model(term.path, base.tokenizer) for term in config.reward.models),
    )


def _prepared(config: C, *, make: Make) -> Prepared:
    world = processes().num_processes
    if config.algorithm.prompts_per_step % world:
        raise UserError(
            f"algorithm.prompts_per_step={config.algorithm.prompts_per_step} cannot be split over "
            f"{world} processes: make it a multiple"
        )
    inputs: Inputs = prepare(config)
    notes: list[str] = list(inputs.notes)
    if inputs.skipped:
        notes.append(f"{inputs.skipped} training prompts over the token limit are left out")
    return Prepared(
        steps=config.run.steps,
        manifest=_manifest(config, inputs),
        start=partial(_started, config, inputs, make),
        eval_every=config.eval.every,
        notes=notes,
    )


@contextmanager
def _started(
    config: GRPOConfig | PPOConfig, inputs: Inputs, make: Make, folder: RunFolder, checkpoint: Path | None
) -> Iterator[Stage]:
    with ExitStack() as stack:
        pool = stack.enter_context(verifier_pool(config.reward))
        accelerator = accelerator_of(config.run, config.model, folder)
        torch.manual_seed(config.run.seed)
        lora = config.model.lora_rank > 0
        model = load_model(inputs.path if lora else checkpoint or inputs.path, config.model)
        if lora:
            add_lora(model, config.model)
        limits = [config.sampling.max_tokens, config.eval.max_tokens, *(s.max_tokens for s in config.length_switches)]
        engine = make_engine(
            config.engine,
            str(checkpoint or inputs.path),
            compute_dtype=compute_dtype(config.model),
            max_context=longest_prompt([*inputs.problems, *inputs.held_out], inputs) + max(limits),
            model=model,
            tokenizer=inputs.tokenizer,
        )
        stack.callback(engine.close)
        set_threads(accelerator, config.run.threads)
        parts = {"tokenizer": inputs.tokenizer, "template": inputs.template, "engine": engine}
        algorithm = make(
            config,
            inputs,
            accelerator=accelerator,
            policy=Policy(model, trained=True),
            problems=inputs.problems,
            rewarder=Rewarder(config.reward, pool),
            **parts,
        )
        held_out = HeldOut(config, inputs.held_out, pool=pool, **parts)
        yield OnPolicyStage(config, algorithm, held_out, folder)


class OnPolicyStage(Stage):
    """A policy-gradient algorithm as the loop drives it."""

    def __init__(self, config: RLConfig, algorithm: PolicyGradient[Any], held_out: HeldOut, folder: RunFolder) -> None:
        self.config = config
        self.algorithm = algorithm
        self.held_out = held_out
        self.folder = folder
        self.accelerator = algorithm.accelerator
        self.tokenizer = algorithm.tokenizer
        self.health: Health | None = None
        """From the first step of this process on, which sees the metrics kept of those before."""
        self.sampled: tuple[list[ScoredGroup], list[list[float]]] = ([], [])
        """The last step's groups on this process and the advantage of each completion."""

    @property
    def model(self) -> PreTrainedModel:
        return self.algorithm.model.model

    def step(self, step: int) -> dict[str, float]:
        metrics, groups, advantages = self.algorithm.step(step)
        self.sampled = (groups, advantages)
        return metrics

    def samples(self, step: int) -> Iterable[Mapping[str, Any]]:
        """With the advantage that each completion was trained on (mean over its tokens)."""
        groups, advantages = self.sampled
        flat = (advantage for own in advantages for advantage in own)
        rows = completion_rows(groups, self.algorithm.template, self.tokenizer)
        return ({"step": step, **row, "advantage": a} for row, a in zip(rows, flat, strict=True))

    def evaluate(self, step: int) -> dict[str, float]:
        if not self.held_out.problems:
            return {}
        result, figures, sampled = self.held_out.evaluate(step)
        if self.accelerator.is_main_process:
            self.folder.save_eval(step, result.samples)
        rows = [row for row, _ in sampled]
        return figures | self.algorithm.held_out_figures(rows, [truncated for _, truncated in sampled])

    def figures(self, metrics: Mapping[str, float]) -> list[str]:
        shown = {
            "reward": ("reward/mean", ".3f"),
            "accuracy": ("reward/accuracy", ".3f"),
            **{key.split("/")[1]: (key, ".3f") for key in metrics if key.endswith("/score") and "eval" not in key},
            "length": ("completion/tokens_mean", ".0f"),
            "cut": ("completion/truncated", ".1%"),
            "flat": ("group/zero_variance", ".0%"),
            "entropy": ("policy/entropy", ".3f"),
            "kl": ("policy/kl", ".4f"),
            "mismatch": ("mismatch/mean_abs", ".1e"),
            "grad": ("optimizer/grad_norm", ".2f"),
        }
        # A step without a training batch has no entropy: what was not measured is left out.
        there = {name: (metrics.get(key, math.nan), form) for name, (key, form) in shown.items()}
        return [f"{name} {format(value, form)}" for name, (value, form) in there.items() if not math.isnan(value)]

    def alarms(self, step: int, metrics: Mapping[str, float]) -> dict[str, str]:
        """What the mismatch guard and the health alarms found."""
        unpaid = [term.key for term in self.config.reward.terms if not term.weight]
        self.health = self.health or Health(self.config.health, self.folder.metrics(), unpaid)
        causes = {f"mismatch ({cause.name})": cause.message for cause in self.algorithm.causes}
        return causes | self.health.check(metrics)

    def merit(self, metrics: Mapping[str, float]) -> float | None:
        return metrics.get("eval/pass@1")

    def table(self, before: Mapping[str, float], after: Mapping[str, float]) -> str:
        return self.held_out.table(before, after) if "eval/pass@1" in after else ""

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.algorithm.state()

    def load_state(self, tensors: dict[str, Any], counters: dict[str, Any]) -> None:
        self.algorithm.load_state(tensors, counters)


def _manifest(config: RLConfig, inputs: Inputs) -> dict[str, Any]:
    return {
        "engine": engine_name(config.engine),
        "template": {
            "name": inputs.template.name,
            "fingerprint": inputs.template.fingerprint,
            # Of the prompt as this tokenizer's chat template makes it, and of the stop tokens.
            "rendered": inputs.template.rendered_fingerprint(inputs.tokenizer),
        },
        "model": str(config.model.path),
        "data": {
            "problems": len(inputs.problems),
            "fingerprint": datasets.fingerprint(inputs.problems),
            "held_out": len(inputs.held_out),
            "held_out_fingerprint": datasets.fingerprint(inputs.held_out),
        },
    }
