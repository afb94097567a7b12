"""The checkpoint under test: its folder, the run it came from, its tokenizer, its template, its engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from r1zero import models, prompts
from r1zero.config import EngineConfig, ModelConfig, PolicyConfig, RewardModelConfig, recipe
from r1zero.errors import UserError
from r1zero.eval import templates
from r1zero.eval.harness import EvalTemplate
from r1zero.eval.tasks import EvalSettings, Task
from r1zero.models.policy import compute_dtype, load_tokenizer
from r1zero.rollout import engine_name, make_engine
from r1zero.rollout.base import Engine
from r1zero.rollout.openai import ChatTemplate, OpenAIEngine


def run_of(checkpoint: str) -> PolicyConfig | None:
    """The config of the training run that a checkpoint (runs/NAME/checkpoints/step-N) or run folder belongs to."""
    path = Path(checkpoint)
    for folder in (path, path.parent.parent):
        if (folder / "config.yaml").is_file() and (folder / "checkpoints").is_dir():
            config = recipe.load(str(folder / "config.yaml"))
            if isinstance(config, RewardModelConfig):
                raise UserError(f"{checkpoint} is a reward model's: it scores answers and gives none")
            return config if isinstance(config, PolicyConfig) else None
    return None


class Model:
    """The checkpoint's folder, tokenizer and engine; the engine starts when a sample is first needed."""

    def __init__(self, settings: EvalSettings, run: PolicyConfig | None) -> None:
        self._engine: Engine | None = None
        self._endpoint = settings.endpoint
        self._config = settings.engine or (run.engine if run else EngineConfig(gpu_memory_utilization=0.9))
        own = run.model if run else ModelConfig()
        self._dtype = compute_dtype(ModelConfig(dtype=settings.dtype) if settings.dtype != "auto" else own)
        chat = self._endpoint is not None and self._endpoint.mode == "chat"
        if self._endpoint is not None and not chat and not settings.checkpoint:
            raise UserError("--endpoint-mode completions sends token ids: name the model's folder or hub id as well")
        self.path = None if chat else models.resolve(settings.checkpoint)
        self.tokenizer = None if self.path is None else load_tokenizer(self.path)
        if self._endpoint is not None:
            self.facts: dict[str, Any] = {
                "name": "openai",
                "url": self._endpoint.url,
                "model": self._endpoint.model,
                "mode": self._endpoint.mode,
            }
        else:
            self.facts = {"name": engine_name(self._config), "dtype": str(self._dtype).removeprefix("torch.")}

    def template(self, settings: EvalSettings, run: PolicyConfig | None, kind: str) -> EvalTemplate:
        """The one asked for, else the run's, else the default for the model."""
        if self.tokenizer is None:
            template = prompts.load(settings.template or ("chat" if kind in templates.UNBOXED else "boxed_chat"))
            if template.kind != "chat":
                raise UserError(
                    f"template {template.name!r} is a text; a chat endpoint needs a chat template such as boxed_chat"
                )
            return ChatTemplate(template)
        default = run.template if run else templates.default_template(self.tokenizer, kind)
        return prompts.load(settings.template or default)

    def engine(self, tasks: Sequence[Task]) -> Engine:
        """Started on the first call, with room for the longest prompt and the longest answer of `tasks`."""
        if self._engine is None:
            if self._endpoint is not None:
                self._engine = OpenAIEngine(self._endpoint)
                return self._engine
            context, prompt_tokens, longest = max(self._context(task) for task in tasks)
            try:
                self._engine = make_engine(
                    self._config,
                    str(self.path),
                    compute_dtype=self._dtype,
                    max_context=context,
                    tokenizer=self.tokenizer,
                )
            except UserError as error:
                raise UserError(f"{error} (longest prompt: {prompt_tokens} tokens, of {longest!r})") from error
        return self._engine

    def within_positions(self, task: Task, candidates: Sequence[EvalTemplate]) -> Task:
        """`task` with its tokens cut to what the model has positions for after the longest prompt of `candidates`.

        An endpoint's limits are its own. Raises UserError where a prompt leaves no room at all.
        """
        limit = None if self._endpoint is not None else self._positions()
        if limit is None:
            return task
        most, _, name = max(self._context(replace(task, template=template)) for template in candidates)
        if most <= limit:
            return task
        room = limit - (most - task.sampling.max_tokens)
        if room < 1:
            raise UserError(
                f"the prompt of {name!r} takes all {limit} positions of the model: choose a shorter template"
            )
        return replace(
            task,
            sampling=replace(task.sampling, max_tokens=room),
            max_tokens_asked=task.sampling.max_tokens,
        )

    def _positions(self) -> int | None:
        """Tokens of prompt and answer together that the model, or a set engine.max_context, has room for."""
        try:
            config = AutoConfig.from_pretrained(str(self.path))
        except (OSError, ValueError, KeyError):
            return None  # the engine says what is wrong with the folder
        limits = [getattr(config, "max_position_embeddings", None), self._config.max_context or None]
        return min((limit for limit in limits if limit is not None), default=None)

    def _context(self, task: Task) -> tuple[int, int, str]:
        """Tokens of the longest prompt with the longest answer, of that prompt, and the id of its problem."""
        template = task.template
        assert template is not None
        lengths = ((len(template.encode(p.prompt, self.tokenizer)), p.id) for p in task.loaded.problems)
        most, name = max(lengths)
        return most + task.sampling.max_tokens, most, name

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        if self._engine is not None:
            self._engine.close()
