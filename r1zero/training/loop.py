"""A run of GRPO or PPO from its config to its last checkpoint: what stands around the algorithm.

Everything that can be wrong with the input is looked at before the run's folder is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PreTrainedTokenizerBase

from r1zero import models, prompts
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import DataConfig, GRPOConfig, PPOConfig, RLConfig
from r1zero.data import datasets
from r1zero.data.records import Completion, Problem
from r1zero.errors import UserError
from r1zero.eval import benchmarks
from r1zero.eval.decontaminate import require_clean
from r1zero.eval.harness import evaluate
from r1zero.eval.result import EvalResult
from r1zero.models.logprobs import require_neutral_sampling
from r1zero.models.policy import Policy, Row, add_lora, compute_dtype, load_model, load_tokenizer
from r1zero.models.reward_model import find_reward_model
from r1zero.prompts import Template
from r1zero.rollout import engine_name, make_engine
from r1zero.rollout.base import Engine, OnCompletion, Sampling
from r1zero.runs.checkpoint import load_trainer_state, prune, save_checkpoint
from r1zero.runs.folder import RunFolder
from r1zero.runs.health import Health
from r1zero.runs.tracking import Tracker, make_accelerator, processes, say
from r1zero.training.groups import ScoredGroup, completion_rows
from r1zero.training.grpo import GRPO
from r1zero.training.policy_gradient import PolicyGradient
from r1zero.training.ppo import PPO
from r1zero.training.ppo_models import load_models, load_scorers
from r1zero.training.session import before_after, complete, find_run, step_of, stop_requests
from r1zero.verifiers import VerifierPool, VerifierSpec, resolve


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run needs from outside, checked."""

    model_path: Path
    tokenizer: PreTrainedTokenizerBase
    template: Template
    problems: list[Problem]
    held_out: list[Problem]
    skipped: int
    """Training prompts over the limit, left out as the config says."""
    reward_models: tuple[Path, ...]
    """Checkpoints of `reward.models`."""


def train_grpo(config: GRPOConfig, *, resume: bool = False) -> Path:
    """A run of GRPO or its family: see `train`."""
    return train(config, resume=resume)


def train_ppo(config: PPOConfig, *, resume: bool = False) -> Path:
    """A run of PPO: see `train`."""
    return train(config, resume=resume)


def train(config: GRPOConfig | PPOConfig, *, resume: bool = False) -> Path:
    """Run `config` to its last step; returns the last checkpoint. `resume` goes on from the latest one.

    Under torchrun or `accelerate launch` every process calls this; the first one holds the folder and writes.
    Raises UserError for every mistake that is the user's to mend. Ctrl-C and SIGTERM end the run after the step under
    way, with a checkpoint.
    """
    everyone = processes()
    if config.algorithm.prompts_per_step % everyone.num_processes:
        raise UserError(
            f"algorithm.prompts_per_step={config.algorithm.prompts_per_step} cannot be split over "
            f"{everyone.num_processes} processes: make it a multiple"
        )
    folder, checkpoint = find_run(config, resume=resume)
    inputs = prepare(config)
    if checkpoint is not None and complete(folder, checkpoint, config.run.steps):
        return checkpoint
    everyone.wait_for_everyone()  # all have looked at the folder; from here on it changes
    if everyone.is_main_process:
        folder.open()
    try:
        memory_bytes = int(config.reward.memory_gib * 2**30)
        with VerifierPool(config.reward.workers or None, config.reward.deadline_seconds, memory_bytes) as pool:
            return _train(config, inputs, folder, checkpoint, pool)
    finally:
        folder.close()


def prepare(config: RLConfig) -> Inputs:
    """Load and check model, template, verifiers and data. Writes nothing."""
    for term in config.reward.terms:
        resolve(VerifierSpec(name=term.verifier, options=term.options))
    sampling = config.sampling
    require_neutral_sampling(top_p=sampling.top_p, top_k=sampling.top_k, min_p=sampling.min_p)
    engine_name(config.engine)
    template = prompts.load(config.template)
    problems = datasets.load_problems(config.data)
    held_out = datasets.load_problems(config.eval.data) if config.eval.data.source else []
    shared = datasets.overlap(problems, held_out)
    if shared:
        raise UserError(
            f"{len(shared)} held-out problems are also training problems (first: {shared[0][:80]!r}): "
            "evaluation sets are never trained on; choose another eval.data or filter data"
        )
    for name in config.eval.decontaminate:
        require_clean(problems, benchmarks.load(name, data_dir=config.eval.data_dir).problems)
    model_path = models.resolve(config.model.path)
    tokenizer = load_tokenizer(model_path)
    kept, skipped = within_limit(problems, config.data, template, tokenizer)
    held_out, _ = within_limit(held_out, config.eval.data, template, tokenizer)
    return Inputs(
        model_path=model_path,
        tokenizer=tokenizer,
        template=template,
        problems=kept,
        held_out=held_out,
        skipped=skipped,
        reward_models=tuple(find_reward_model(term.path, tokenizer) for term in config.reward.models),
    )


def within_limit(
    problems: Sequence[Problem], data: DataConfig, template: Template, tokenizer: PreTrainedTokenizerBase
) -> tuple[list[Problem], int]:
    """The problems whose prompt fits, and how many do not; raises UserError where the config says to refuse."""
    kept, longest, over = [], 0, []
    for problem in problems:
        size = len(template.encode(problem.prompt, tokenizer))
        if size <= data.max_prompt_tokens:
            kept.append(problem)
        else:
            over.append(problem.id)
            longest = max(longest, size)
    if over and data.too_long == "error":
        raise UserError(
            f"{len(over)} of {len(problems)} prompts of {data.source} are over max_prompt_tokens="
            f"{data.max_prompt_tokens} (first: {over[0]!r}; longest: {longest} tokens): raise the limit, or set "
            "too_long to skip"
        )
    if problems and not kept:
        raise UserError(f"every prompt of {data.source} is over max_prompt_tokens={data.max_prompt_tokens}")
    return kept, len(over)


def _train(
    config: GRPOConfig | PPOConfig, inputs: Inputs, folder: RunFolder, checkpoint: Path | None, pool: VerifierPool
) -> Path:
    transformers.utils.logging.disable_progress_bar()
    dtype = compute_dtype(config.model)
    accelerator = make_accelerator(config.run, folder, "bf16" if dtype == torch.bfloat16 else "no")
    torch.manual_seed(config.run.seed)
    start = step_of(checkpoint) if checkpoint else 0
    lora = config.model.lora_rank > 0
    model = load_model(inputs.model_path if lora else checkpoint or inputs.model_path, config.model)
    if lora:
        add_lora(model, config.model)
    longest = max(len(inputs.template.encode(p.prompt, inputs.tokenizer)) for p in [*inputs.problems, *inputs.held_out])
    limit = max([config.sampling.max_tokens, config.eval.max_tokens, *(s.max_tokens for s in config.length_switches)])
    engine = make_engine(
        config.engine,
        str(checkpoint or inputs.model_path),
        compute_dtype=dtype,
        max_context=longest + limit,
        model=model,
        tokenizer=inputs.tokenizer,
    )
    if accelerator.device.type == "cpu":
        torch.set_num_threads(config.run.threads or os.cpu_count() or 1)
    try:
        algorithm = _algorithm(
            config,
            inputs,
            accelerator=accelerator,
            policy=Policy(model, trained=True),
            tokenizer=inputs.tokenizer,
            template=inputs.template,
            problems=inputs.problems,
            engine=engine,
            rewarder=Rewarder(config.reward, pool),
        )
        best = _restore(algorithm, checkpoint) if checkpoint else None
        run = _Run(config, inputs, folder, algorithm, pool, start, best)
        return run.go()
    finally:
        engine.close()


def _algorithm(config: GRPOConfig | PPOConfig, inputs: Inputs, **parts: Any) -> PolicyGradient[Any]:
    """The stage's algorithm with its models, from where the run began: `load_state` brings what has moved since."""
    base, accelerator = inputs.model_path, parts["accelerator"]
    if isinstance(config, PPOConfig):
        found = load_models(config, parts["policy"], base, inputs.reward_models, accelerator)
        return PPO(config, value=found.value, reference=found.reference, scorers=found.scorers, **parts)
    return GRPO(
        config,
        reference=Policy(load_model(base, config.model)) if config.algorithm.beta > 0 else None,
        scorers=load_scorers(config, inputs.reward_models, accelerator),
        **parts,
    )


def _restore(algorithm: PolicyGradient[Any], checkpoint: Path) -> tuple[int, float] | None:
    tensors, state = load_trainer_state(checkpoint)
    algorithm.load_state(tensors, state)
    best = state.get("best")
    return (best[0], best[1]) if best else None


class _Run:
    """The loop over steps: evaluation, metrics, checkpoints, interruption."""

    def __init__(
        self,
        config: RLConfig,
        inputs: Inputs,
        folder: RunFolder,
        algorithm: PolicyGradient[Any],
        pool: VerifierPool,
        start: int,
        best: tuple[int, float] | None,
    ) -> None:
        self.config = config
        self.inputs = inputs
        self.folder = folder
        self.algorithm = algorithm
        self.pool = pool
        self.start = start
        self.best = best
        self.main = algorithm.accelerator.is_main_process
        if self.main:
            # Before the first checkpoint too: a run killed there begins anew, and its lines go.
            folder.forget_after(start or -1)
            folder.write_config(config)
            folder.write_manifest(self._manifest())
            folder.checkpoints.mkdir(exist_ok=True)
        self.tracker = Tracker(algorithm.accelerator, folder, config.run, first_step=start + 1)
        self.first_eval: EvalResult | None = None
        self.warned: dict[str, int] = {}
        """The step at which each warning was last said."""
        unpaid = [term.key for term in config.reward.terms if not term.weight]
        self.health = Health(config.health, folder.metrics(), unpaid)

    def go(self) -> Path:
        """Every step that is left; returns the last checkpoint."""
        run = self.config.run
        say(f"run {self.folder.path}: steps {self.start + 1} to {run.steps}, engine {self.algorithm.engine.name}")
        if self.inputs.skipped:
            say(f"{self.inputs.skipped} training prompts over the token limit are left out", style="yellow")
        if self.start == 0 and self.inputs.held_out:
            self.first_eval, figures = self._evaluate(0)
            self.tracker.log(0, figures)
        last_eval = self.first_eval
        checkpoint: Path | None = None
        with stop_requests() as stop:
            for step in range(self.start + 1, run.steps + 1):
                metrics, groups, advantages = self.algorithm.step(step)
                self._warn(step, metrics)
                save = step == run.steps or step % run.checkpoint_every == 0
                every = self.config.eval.every
                if self.inputs.held_out and (step == run.steps or (every and step % every == 0)):
                    last_eval, figures = self._evaluate(step)
                    metrics |= figures
                    if self.best is None or last_eval.pass_at_1 > self.best[1]:
                        self.best = (step, last_eval.pass_at_1)
                        save = True
                # The first process's word: another's engine may have sampled otherwise, or its signal come later.
                save, stopping = broadcast_object_list([save or stop.requested, stop.requested])
                self.tracker.log(step, metrics)
                self.tracker.line(step, metrics)
                if run.save_rollouts:
                    rows = gather_object(list(_rollout_rows(step, groups, advantages, self.inputs)))
                    if self.main:
                        self.folder.save_rollouts(step, rows)
                if save:
                    checkpoint = self._save(step)
                if stopping and step < run.steps:
                    say(f"stopped after step {step}: {checkpoint} can be used as it is; go on with --resume")
                    raise KeyboardInterrupt
        self.tracker.close()
        assert checkpoint is not None
        if self.main:
            self._summary(last_eval, checkpoint)
        return checkpoint

    def _save(self, step: int) -> Path:
        algorithm = self.algorithm
        target = self.folder.checkpoints / f"step-{step}"
        if self.main:
            tensors, state = algorithm.state()
            save_checkpoint(
                self.folder.checkpoints,
                step,
                algorithm.model.model,
                self.inputs.tokenizer,
                tensors=tensors,
                state={**state, "best": self.best},
            )
            prune(self.folder.checkpoints, self.config.run.keep_checkpoints, self.best[0] if self.best else None)
        algorithm.accelerator.wait_for_everyone()
        return target

    def _evaluate(self, step: int) -> tuple[EvalResult, dict[str, float]]:
        """The held-out problems' result, and its figures for the metrics."""
        settings = self.config.eval
        began = time.perf_counter()
        first = self.config.reward.terms[0]
        engine = _Remembering(self.algorithm.engine)
        result = evaluate(
            self.inputs.held_out,
            engine=cast(Engine, engine),
            tokenizer=self.inputs.tokenizer,
            template=self.inputs.template,
            sampling=eval_sampling(self.config),
            k=settings.samples,
            pool=self.pool,
            verifier=VerifierSpec(name=first.verifier, options=first.options),
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
        if self.main:
            self.folder.save_eval(step, result.samples)
        rows = [row for row, _ in engine.sampled]
        more = self.algorithm.held_out_figures(rows, [truncated for _, truncated in engine.sampled])
        return result, _eval_metrics(result) | more

    def _warn(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Say what the mismatch guard and the health alarms found; the same again only every tenth step."""
        found = {f"mismatch ({c.name})": c.message for c in self.algorithm.causes} | self.health.check(metrics)
        for name, message in found.items():
            if step - self.warned.get(name, -10) >= 10:
                self.warned[name] = step
                say(f"warning: {name}: {message}", style="bold yellow")

    def _manifest(self) -> dict[str, Any]:
        inputs = self.inputs
        return {
            "seed": self.config.run.seed,
            "engine": self.algorithm.engine.name,
            "template": {
                "name": inputs.template.name,
                "fingerprint": inputs.template.fingerprint,
                # Of the prompt as this tokenizer's chat template makes it, and of the stop tokens.
                "rendered": inputs.template.rendered_fingerprint(inputs.tokenizer),
            },
            "model": str(self.config.model.path),
            "data": {
                "problems": len(inputs.problems),
                "fingerprint": datasets.fingerprint(inputs.problems),
                "held_out": len(inputs.held_out),
                "held_out_fingerprint": datasets.fingerprint(inputs.held_out),
            },
            "processes": self.algorithm.accelerator.num_processes,
        }

    def _summary(self, last: EvalResult | None, checkpoint: Path) -> None:
        if last is not None:
            # From the file, not from memory: a resumed run measured its beginning in an earlier process.
            scored = [row for row in self.folder.metrics() if "eval/pass@1" in row]
            print(f"{'held-out pass@1':<18}{'value':>8}  95% interval")
            for name, row in (("before", scored[0]), ("after", scored[-1])):
                if name == "after" or row["step"] == 0:
                    low, high = row["eval/ci95_low"], row["eval/ci95_high"]
                    print(f"{name:<18}{row['eval/pass@1']:>8.1%}  {low:.1%} to {high:.1%}")
            print(result_table(self.config, scored[0], scored[-1]), end="")
            self._print_samples(last)
        print(f"checkpoint: {checkpoint}")

    def _print_samples(self, last: EvalResult) -> None:
        before = {s.key: s for s in self.first_eval.samples} if self.first_eval else {}
        for sample in last.samples[:3]:
            print(f"\nproblem {sample.problem_id}: {sample.prompt.strip()!r}, gold {sample.answer}")
            for name, shown in (("before", before.get(sample.key)), ("after", sample)):
                if shown is not None:
                    print(f"  {name}: {shown.completion.strip()!r} -> {shown.outcome} ({shown.reason})")


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


def _eval_metrics(result: EvalResult) -> dict[str, float]:
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


def _rollout_rows(
    step: int, groups: Sequence[ScoredGroup], advantages: Sequence[Sequence[float]], inputs: Inputs
) -> Iterator[dict[str, Any]]:
    """The rows kept on disk, with the advantage that each was trained on (mean over its tokens)."""
    flat = (advantage for own in advantages for advantage in own)
    for row, advantage in zip(completion_rows(groups, inputs.template, inputs.tokenizer), flat, strict=True):
        yield {"step": step, **row, "advantage": advantage}
