"""Everything that can be wrong with a pipeline, looked at before its first stage: references, models, data, judges.

What an earlier stage will have made cannot be looked at yet. A checkpoint is stood in for by the model the chain began
with, whose tokenizer it has; data and reward models that a stage will write are left to that stage's own checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from r1zero import models, prompts
from r1zero.config import (
    DPOConfig,
    GRPOConfig,
    MeasureConfig,
    PipelineConfig,
    PPOConfig,
    RejectionSamplingConfig,
    RewardModelConfig,
    SFTConfig,
    StageConfig,
    recipe,
)
from r1zero.config.stage_links import PREFIX, references, substituted
from r1zero.data import datasets, preferences
from r1zero.data.records import Problem
from r1zero.errors import UserError, unknown_name
from r1zero.models.policy import Row, load_tokenizer
from r1zero.runs.folder import plain
from r1zero.training import on_policy, rejection
from r1zero.training.groups import check_judges
from r1zero.training.inputs import Base, check_questions, load_base, load_questions, within_limit


def references_checked(config: PipelineConfig) -> None:
    """Raises UserError for a reference to what that stage does not make."""
    for name, settings in config.stages.items():
        for key, stage, file in references(settings):
            problem = _misuse(config.stages[stage], settings, key, file)
            if problem:
                raise UserError(f"stage {name}: {key} {PREFIX}{stage}{'/' * bool(file)}{file}: {problem}")
    for name, measure in config.measures.items():
        for key, stage, file in references(plain(measure)):
            if file or config.stages.get(stage, {}).get("stage") != "reward_model":
                raise UserError(
                    f"measure {name}: {key} {PREFIX}{stage}: in a measure, this is for a reward_model stage of "
                    f"{', '.join(config.stages)}, in reward.models"
                )


def _misuse(source: Mapping[str, Any], settings: Mapping[str, Any], key: str, file: str) -> str:
    """Why what `key` of a stage's settings refers to is not for that; empty where it is."""
    if file:
        made = rejection.PRODUCTS[: 1 + bool(source["pairs"]["per_problem"])] if "pairs" in source else ()
        return "" if file in made else str(unknown_name(f"file of a {source['stage']} stage", file, made))
    if key.startswith("reward.models."):
        return "" if source["stage"] == "reward_model" else "is no reward_model stage, so it cannot be a reward"
    if key != "model.path":
        return "a checkpoint is for model.path and reward.models; a file is stage:NAME/FILE"
    if source["stage"] == "reward_model" and settings["stage"] != "reward_model":
        return "is a reward model, which answers no prompt"
    return ""


def first_model(config: PipelineConfig, name: str = "") -> str:
    """model.path at the beginning of the chain that leads to stage `name`; of the first stage where none is named."""
    path: str = config.stages[name or next(iter(config.stages))]["model"]["path"]
    return first_model(config, path.removeprefix(PREFIX)) if path.startswith(PREFIX) else path


def check_stages(config: PipelineConfig) -> None:
    """Raises UserError, with the stage's name before it, for what a stage or a measure would find wrong later."""
    measured = {name: _problems_of(name, measure) for name, measure in config.measures.items()}
    tokenizer = load_tokenizer(models.resolve(first_model(config)))
    for name, measure in config.measures.items():
        with_models = replace(measure.reward, models=_known_models(measure.reward.models))
        try:
            template = prompts.load(measure.template)
            within_limit(measured[name], measure.data, template, tokenizer)
            check_judges(with_models, measure.engine, tokenizer)
        except UserError as error:
            raise UserError(f"measure {name}: {error}") from error
    for name, settings in config.stages.items():
        try:
            _check_stage(_stand_in(config, name, settings), measured)
        except UserError as error:
            raise UserError(f"stage {name}: {error}") from error


def _problems_of(name: str, measure: MeasureConfig) -> list[Problem]:
    try:
        return datasets.load_problems(measure.data)
    except UserError as error:
        raise UserError(f"measure {name}: {error}") from error


def _stand_in(config: PipelineConfig, name: str, settings: Mapping[str, Any]) -> StageConfig:
    """The stage as it can be checked now: the chain's first model, no data or reward model that is yet to be made."""

    def place(stage: str, file: str) -> str:
        return PREFIX + stage if file else first_model(config, stage)

    known = {key: value for key, value in settings.items() if key != "recipe"}
    if "reward" in known:
        kept = [model for model in known["reward"]["models"] if not model["path"].startswith(PREFIX)]
        # PPO's value model needs a reward model to begin with, and that is the stage's to see later.
        value = {"value": {**known["value"], "init": "policy"}} if "value" in known and not kept else {}
        known = {**known, **value, "reward": {**known["reward"], "models": kept}, **_unshared(known)}
    return recipe.from_settings(substituted(known, place), (), f"stage {name}")


def _unshared(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"shared_backbone": False} if "shared_backbone" in settings else {}


def _known_models(terms: Sequence[Any]) -> list[Any]:
    return [term for term in terms if not term.path.startswith(PREFIX)]


def _made_later(source: str) -> bool:
    return not source or source.startswith(PREFIX)


def _check_stage(stage: StageConfig, measured: Mapping[str, Sequence[Problem]]) -> None:
    match stage:
        case GRPOConfig() | PPOConfig():
            _check_overlap(on_policy.prepare(stage).problems, measured)
        case RejectionSamplingConfig():
            known = replace(stage, extra=replace(stage.extra, source="")) if _made_later(stage.extra.source) else stage
            inputs = rejection.prepare(known)
            texts = [row["prompt"] for row in inputs.extra if isinstance(row.get("prompt"), str)]
            _check_overlap([*inputs.problems, *(Problem(id=text, prompt=text) for text in texts)], measured)
        case SFTConfig() | DPOConfig() | RewardModelConfig():
            base = load_base(stage.model.path, stage.template)
            rows = _rows(stage, stage.data, base)
            preferences.refuse_overlap(rows, _rows(stage, stage.held_out, base))
            if not isinstance(stage, RewardModelConfig):
                check_questions(load_questions(stage, base), base, rows)
                for problems in measured.values():
                    check_questions(problems, base, rows)


def _rows(stage: SFTConfig | DPOConfig | RewardModelConfig, data: Any, base: Base) -> list[Row]:
    """The training or held-out rows of a stage, checked; none where they are yet to be made."""
    if _made_later(data.source):
        if not data.source and data is stage.data:
            raise UserError("data.source is empty")
        return []
    if isinstance(stage, SFTConfig):
        return [e.row for e in preferences.load_demonstrations(data, base.template, base.tokenizer).items]
    if isinstance(stage, DPOConfig) and stage.loss == "kto":
        return [thumb.row for thumb in preferences.load_thumbs(data, base.template, base.tokenizer).items]
    return [row for r in preferences.load_rankings(data, base.template, base.tokenizer).items for row in r.rows]


def _check_overlap(problems: Sequence[Problem], measured: Mapping[str, Sequence[Problem]]) -> None:
    for name, held_out in measured.items():
        shared = datasets.overlap(problems, held_out)
        if shared:
            raise UserError(
                f"{len(shared)} of its problems are measured on by {name} (first: {shared[0][:80]!r}): what is "
                "measured is never trained on"
            )
