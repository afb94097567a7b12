"""What SFT and DPO set up alike: the policy, the held-out problems, the engine that answers them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from r1zero import models, prompts
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import DPOConfig, RewardModelConfig, SFTConfig
from r1zero.data import datasets
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.models.policy import Row, add_lora, compute_dtype, load_model, load_tokenizer
from r1zero.prompts import Template
from r1zero.rollout import engine_name, make_engine
from r1zero.runs.folder import RunFolder
from r1zero.runs.tracking import make_accelerator
from r1zero.training.answers import Answerer
from r1zero.training.loop import within_limit
from r1zero.verifiers import VerifierPool, VerifierSpec, resolve


@dataclass(frozen=True, kw_only=True)
class Base:
    """The model a run starts from, and its words."""

    path: Path
    tokenizer: PreTrainedTokenizerBase
    template: Template


def load_base(config: SFTConfig | DPOConfig | RewardModelConfig) -> Base:
    """Check and find model, tokenizer and template. Writes nothing into the run's folder."""
    template = prompts.load(config.template)
    path = models.resolve(config.model.path)
    return Base(path=path, tokenizer=load_tokenizer(path), template=template)


def load_questions(config: SFTConfig | DPOConfig, base: Base) -> list[Problem]:
    """The held-out problems of `config.eval`, checked with their verifiers; none where there is no source."""
    if not config.eval.data.source:
        return []
    for term in config.reward.terms:
        resolve(VerifierSpec(name=term.verifier, options=term.options))
    engine_name(config.engine)
    problems = datasets.load_problems(config.eval.data)
    return within_limit(problems, config.eval.data, base.template, base.tokenizer)[0]


def check_questions(questions: Sequence[Problem], base: Base, rows: Sequence[Row]) -> None:
    """Raises UserError where a held-out problem's prompt is among the training rows."""
    seen = {row.prompt_ids for row in rows}
    shared = [p for p in questions if tuple(base.template.encode(p.prompt, base.tokenizer)) in seen]
    if shared:
        raise UserError(
            f"{len(shared)} held-out problems are also training prompts (first: {shared[0].prompt[:80]!r}): "
            "evaluation sets are never trained on; choose another eval.data"
        )


def accelerator_of(config: SFTConfig | DPOConfig | RewardModelConfig, folder: RunFolder) -> Accelerator:
    """The run's accelerator in the model's compute type. Raises UserError for more than one process."""
    dtype = compute_dtype(config.model)
    accelerator = make_accelerator(config.run, folder, "bf16" if dtype == torch.bfloat16 else "no")
    if accelerator.num_processes > 1:
        raise UserError(f"stage {config.stage} runs on one process, and {accelerator.num_processes} were started")
    return accelerator


def load_policy(config: SFTConfig | DPOConfig, base: Base, checkpoint: Path | None) -> PreTrainedModel:
    """The model to train: the checkpoint's weights, or the base's; with LoRA the base and fresh adapters."""
    if not config.model.lora_rank:
        return load_model(checkpoint or base.path, config.model)
    model = load_model(base.path, config.model)
    torch.manual_seed(config.run.seed)  # the adapters' random halves
    add_lora(model, config.model)
    return model


@contextmanager
def answering(
    config: SFTConfig | DPOConfig, base: Base, questions: Sequence[Problem], model: PreTrainedModel, weights: Path
) -> Iterator[Answerer | None]:
    """What answers the held-out problems, None where there are none; its engine and verifiers end with the block."""
    if not questions:
        yield None
        return
    with ExitStack() as stack:
        memory_bytes = int(config.reward.memory_gib * 2**30)
        pool = stack.enter_context(
            VerifierPool(config.reward.workers or None, config.reward.deadline_seconds, memory_bytes)
        )
        longest = max(len(base.template.encode(p.prompt, base.tokenizer)) for p in questions)
        engine = make_engine(
            config.engine,
            str(weights),
            compute_dtype=compute_dtype(config.model),
            max_context=longest + (config.eval.max_tokens or config.sampling.max_tokens),
            model=model,
            tokenizer=base.tokenizer,
        )
        stack.callback(engine.close)
        yield Answerer(
            config,
            questions,
            engine=engine,
            tokenizer=base.tokenizer,
            template=base.template,
            rewarder=Rewarder(config.reward, pool),
        )
