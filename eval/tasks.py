"""From what `r1zero eval` was asked for to the benchmarks it runs: problems, sampling, k, seed and template of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from r1zero import prompts
from r1zero.config import EngineConfig, PolicyConfig
from r1zero.data.datasets import fingerprint, load_problems
from r1zero.errors import UserError
from r1zero.eval import benchmarks, protocols
from r1zero.eval.benchmarks import Loaded
from r1zero.eval.harness import DEFAULT_BATCH, EvalTemplate
from r1zero.eval.voting import DEFAULT_DRAWS
from r1zero.rollout.base import Sampling
from r1zero.rollout.openai import EndpointConfig
from r1zero.verifiers import VerifierSpec

HELD_OUT = "held-out"


@dataclass(frozen=True, kw_only=True)
class EvalSettings:
    """What `r1zero eval` was asked for; None or empty: the run's, the protocol's or the benchmark's own."""

    checkpoint: str
    """A model folder, a run folder (its latest checkpoint), a hub id, or a name of `r1zero.models`; for an endpoint
    the folder or hub id of the tokenizer, or empty in chat mode."""
    suite: tuple[str, ...] = ()
    out: str = ""
    protocol: str = "r1"
    template: str = ""
    """A template's name or file, or `best`."""
    k: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    limit: int = 0
    size: int = 500
    """Problems of a generated source."""
    seed: int | None = None
    data_dir: str = ""
    verifier: str = ""
    engine: EngineConfig | None = None
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    batch: int = DEFAULT_BATCH
    draws: int = DEFAULT_DRAWS
    workers: int = 0
    deadline_seconds: float = 30.0
    endpoint: EndpointConfig | None = None
    """Sample from an OpenAI-compatible endpoint instead of an engine of ours."""
    shard: tuple[int, int] | None = None
    """(i, n): draw only every n-th batch from the i-th on, into the same folder; the run without it takes all in."""
    template_slice: int = 32
    """Problems on which `--template best` tries each template."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One benchmark, ready to run."""

    loaded: Loaded
    sampling: Sampling
    k: int
    seed: int
    template: EvalTemplate | None = None
    """None: to be found by trying."""
    max_tokens_asked: int = 0
    """What the protocol or the user asked for, where the model has no positions for it and fewer are sampled."""

    @property
    def num_samples(self) -> int:
        return len(self.loaded.problems) * self.k


def held_out(settings: EvalSettings, run: PolicyConfig | None, tokenizer: Any) -> list[Task]:
    """The run's own held-out problems, sampled and graded as the run did."""
    if run is None or not run.eval.data.source:
        raise UserError(
            "say which benchmarks: --suite math500,aime2024 (without it, a training run's checkpoint is scored on the "
            f"run's held-out problems; {settings.checkpoint or 'an endpoint'} is none)"
        )
    template = prompts.load(settings.template or run.template)
    # As in training: a prompt over the limit is no part of the held-out set.
    problems = [
        problem
        for problem in load_problems(run.eval.data)
        if len(template.encode(problem.prompt, tokenizer)) <= run.eval.data.max_prompt_tokens
    ]
    problems = problems[: settings.limit] if settings.limit else problems
    if settings.verifier:
        problems = [replace(problem, verifier="") for problem in problems]
    first = run.reward.terms[0]
    loaded = Loaded(
        name=HELD_OUT,
        problems=tuple(problems),
        verifier=VerifierSpec(
            name=settings.verifier or first.verifier, options={} if settings.verifier else first.options
        ),
        fingerprint=fingerprint(problems),
        source=run.eval.data.source,
        settings={"limit": settings.limit},
    )
    sampling = Sampling(
        max_tokens=run.eval.max_tokens or run.sampling.max_tokens,
        temperature=run.eval.temperature,
        top_p=run.eval.top_p,
    )
    seed = run.eval.seed if settings.seed is None else settings.seed
    k = run.eval.samples if settings.k is None else settings.k
    return [Task(loaded=loaded, sampling=_overridden(sampling, settings), k=k, seed=seed)]


def suite(settings: EvalSettings) -> list[Task]:
    protocol = protocols.get(settings.protocol)
    sampling = Sampling(
        max_tokens=protocol.max_tokens, temperature=protocol.temperature, top_p=protocol.top_p, top_k=0, min_p=0.0
    )
    seed = 0 if settings.seed is None else settings.seed
    tasks = []
    for name in settings.suite:
        verifier = VerifierSpec(name=settings.verifier) if settings.verifier else None
        loaded = benchmarks.load(
            name, data_dir=settings.data_dir, limit=settings.limit, seed=seed, size=settings.size, verifier=verifier
        )
        k = protocol.samples_of(loaded) if settings.k is None else settings.k
        tasks.append(Task(loaded=loaded, sampling=_overridden(sampling, settings), k=k, seed=seed))
    return tasks


def _overridden(sampling: Sampling, settings: EvalSettings) -> Sampling:
    asked = {key: getattr(settings, key) for key in ("temperature", "top_p", "top_k", "min_p", "max_tokens")}
    return replace(sampling, **{key: value for key, value in asked.items() if value is not None})
