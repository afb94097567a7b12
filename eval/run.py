"""One evaluation from its settings to its folder: `r1zero eval CHECKPOINT`.

Without a suite, a training run's checkpoint is scored on that run's held-out problems, under the very settings the run
used, so that the two numbers can be laid side by side.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from r1zero.config import PolicyConfig
from r1zero.errors import UserError
from r1zero.eval import protocols, templates
from r1zero.eval.folder import EvalFolder, append
from r1zero.eval.harness import EvalTemplate, check_sampling, draw, evaluate
from r1zero.eval.manifest import Manifest, benchmark_facts, model_fingerprint
from r1zero.eval.model import Model, run_of
from r1zero.eval.output import figures, markdown
from r1zero.eval.result import EvalResult, summarise
from r1zero.eval.samples import EvalSample
from r1zero.eval.tasks import EvalSettings, Task, held_out, suite
from r1zero.eval.templates import Trial
from r1zero.eval.voting import with_votes
from r1zero.prompts import Template
from r1zero.runs.checkpoint import resolve_checkpoint
from r1zero.runs.folder import machine
from r1zero.verifiers import VerifierPool, resolve

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What an evaluation leaves."""

    folder: Path
    label: str
    results: tuple[EvalResult, ...]
    trials: tuple[Trial, ...]


def run_eval(
    settings: EvalSettings, *, say: Say = print, on_progress: Callable[[str, int, int], None] | None = None
) -> Finished:
    """Score a checkpoint and write its folder; goes on with the folder of a killed run of the same settings.

    on_progress: called with (benchmark, graded, total). Raises UserError for every mistake that is the user's to mend.
    """
    if settings.checkpoint:
        settings = replace(settings, checkpoint=resolve_checkpoint(settings.checkpoint))
    run = None if settings.endpoint else run_of(settings.checkpoint)
    model = Model(settings, run)
    tasks = suite(settings) if settings.suite else held_out(settings, run, model.tokenizer)
    names = [task.loaded.name for task in tasks]
    if len(set(names)) != len(names):
        raise UserError(f"--suite names a benchmark twice: {', '.join(names)}")
    for task in tasks:
        check_sampling(task.sampling, task.k)
        resolve(task.loaded.verifier)
    with model, VerifierPool(settings.workers or None, settings.deadline_seconds) as pool:
        tasks, trials = _with_templates(settings, run, model, tasks, pool, say)
        manifest = _manifest(settings, model, tasks)
        label = _label(settings)
        folder = EvalFolder(Path(settings.out) if settings.out else _default_folder(label, tasks, manifest))
        folder.open(manifest, shard=settings.shard)
        try:
            say(f"folder: {folder.path}")
            if settings.shard is not None:
                for task in tasks:
                    _draw(settings, model, folder, task, tasks, pool, say, on_progress)
                return Finished(folder=folder.path, label=label, results=(), trials=tuple(trials))
            results = [_score(settings, model, folder, task, tasks, pool, say, on_progress) for task in tasks]
            scores = {result.name: figures(result) for result in results}
            folder.write_results(
                {"benchmarks": scores, "template_trials": trials, "manifest": manifest},
                markdown(results, label, _conditions(tasks, model)),
            )
        finally:
            folder.close()
    return Finished(folder=folder.path, label=label, results=tuple(results), trials=tuple(trials))


def _score(
    settings: EvalSettings,
    model: Model,
    folder: EvalFolder,
    task: Task,
    tasks: Sequence[Task],
    pool: VerifierPool,
    say: Say,
    on_progress: Callable[[str, int, int], None] | None,
) -> EvalResult:
    samples = _draw(settings, model, folder, task, tasks, pool, say, on_progress)
    loaded = task.loaded
    result = summarise(loaded.problems, samples, task.k, name=loaded.name)
    folder.finish(loaded.name, result.samples)
    return with_votes(result, pool, loaded.verifier, seed=task.seed, draws=settings.draws)


def _draw(
    settings: EvalSettings,
    model: Model,
    folder: EvalFolder,
    task: Task,
    tasks: Sequence[Task],
    pool: VerifierPool,
    say: Say,
    on_progress: Callable[[str, int, int], None] | None,
) -> list[EvalSample]:
    """The task's samples (of a shard, its share), those that are there already and those still to be drawn."""
    loaded, template = task.loaded, task.template
    assert template is not None
    done = folder.start(loaded.name, loaded.problems, settings.shard)
    say(f"{loaded.name}: {_describe(task, model)}" + (f"; {len(done)} samples are there already" if done else ""))
    if len(done) == task.num_samples:
        return done
    with folder.append_to(loaded.name, settings.shard) as file:
        return draw(
            loaded.problems,
            engine=model.engine(tasks),
            tokenizer=model.tokenizer,
            template=template,
            sampling=task.sampling,
            k=task.k,
            pool=pool,
            verifier=loaded.verifier,
            seed=task.seed,
            on_progress=None if on_progress is None else lambda n, of: on_progress(loaded.name, n, of),
            done=done,
            on_sample=lambda sample: append(file, sample),
            batch=settings.batch,
            shard=settings.shard or (0, 1),
        )


def _with_templates(
    settings: EvalSettings,
    run: PolicyConfig | None,
    model: Model,
    tasks: Sequence[Task],
    pool: VerifierPool,
    say: Say,
) -> tuple[list[Task], list[Trial]]:
    """Each task with its template; with `best`, the trials that found it (all on the first task's problems)."""
    if settings.template != templates.BEST:
        chosen = [replace(t, template=model.template(settings, run, t.loaded.kind)) for t in tasks]
        return [_capped(t, model, [t.template], say) for t in chosen if t.template is not None], []
    if settings.endpoint is not None and settings.endpoint.mode == "chat":
        raise UserError("--template best needs the tokenizer's prompts: use --endpoint-mode completions")
    fit, skipped = templates.candidates(model.tokenizer)
    tasks = [_capped(task, model, fit, say) for task in tasks]
    task = tasks[0]
    part = task.loaded.problems[: settings.template_slice]
    model.engine([replace(t, template=template) for t in tasks for template in fit])

    def score(template: Template) -> EvalResult:
        result = evaluate(
            part,
            engine=model.engine(()),
            tokenizer=model.tokenizer,
            template=template,
            sampling=task.sampling,
            k=1,
            pool=pool,
            verifier=task.loaded.verifier,
            seed=task.seed,
            name=template.name,
        )
        say(f"template {template.name}: {result.pass_at_1:.1%} of {len(part)}, unparseable {result.unparseable:.1%}")
        return result

    best, trials = templates.choose(fit, score)
    say(f"best template: {best.name}")
    return [replace(t, template=best) for t in tasks], [*trials, *skipped]


def _capped(task: Task, model: Model, candidates: Sequence[EvalTemplate], say: Say) -> Task:
    capped = model.within_positions(task, candidates)
    if capped.max_tokens_asked:
        say(
            f"{task.loaded.name}: {capped.sampling.max_tokens} tokens an answer instead of {capped.max_tokens_asked}: "
            "the model has no positions for more"
        )
    return capped


# What is written down


def _manifest(settings: EvalSettings, model: Model, tasks: Sequence[Task]) -> Manifest:
    facts = {}
    for task in tasks:
        assert task.template is not None
        about = templates.template_facts(task.template, model.tokenizer)
        facts[task.loaded.name] = {**benchmark_facts(task.loaded, task.sampling, task.k, about), "seed": task.seed}
        if task.max_tokens_asked:
            facts[task.loaded.name]["max_tokens_asked"] = task.max_tokens_asked
    protocol = protocols.get(settings.protocol)
    return {
        "checkpoint": settings.checkpoint or (settings.endpoint.model if settings.endpoint else ""),
        "model_fingerprint": model_fingerprint(model.path) if model.path else "",
        "engine": model.facts,
        "protocol": {"name": protocol.name, "source": protocol.source} if settings.suite else {"name": "the run's own"},
        "benchmarks": facts,
        "batch": settings.batch,
        "cons_draws": settings.draws,
        "machine": machine(),
    }


def _label(settings: EvalSettings) -> str:
    if settings.endpoint is not None:
        return settings.endpoint.model.replace("/", "-")
    path = Path(settings.checkpoint)
    run = f"{path.parent.parent.name}-" if path.parent.name == "checkpoints" else ""
    return (run + path.name).replace(":", "-")


def _default_folder(label: str, tasks: Sequence[Task], manifest: Manifest) -> Path:
    """Named after what is measured and a hash of the settings: the same command resumes, another starts anew."""
    facts = {key: value for key, value in manifest.items() if key not in ("machine", "checkpoint")}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:8]
    suite = "-".join(task.loaded.name for task in tasks)
    return Path("runs") / "evals" / f"{label}-{suite[:60]}-{digest}"


def _describe(task: Task, model: Model) -> str:
    assert task.template is not None
    s = task.sampling
    name = templates.template_facts(task.template, model.tokenizer)["name"]
    return (
        f"{len(task.loaded.problems)} problems x {task.k}, template {name}, temperature {s.temperature:g}, "
        f"top-p {s.top_p:g}, at most {s.max_tokens} tokens, verifier {task.loaded.verifier.name}, "
        f"from {task.loaded.source}"
    )


def _conditions(tasks: Sequence[Task], model: Model) -> dict[str, str]:
    first = tasks[0]
    assert first.template is not None
    names = {
        str(templates.template_facts(t.template, model.tokenizer)["name"]) for t in tasks if t.template is not None
    }
    return {
        "template": "/".join(sorted(names)),
        "temperature": f"{first.sampling.temperature:g}",
        "top-p": f"{first.sampling.top_p:g}",
        "limit": f"{first.sampling.max_tokens} tokens"
        + (f" (of {first.max_tokens_asked}: the model's positions)" if first.max_tokens_asked else ""),
        "verifier": "/".join(sorted({t.loaded.verifier.name for t in tasks})),
        "engine": str(model.facts["name"]),
    }
