"""A pipeline: stages one after another, each from an earlier one's checkpoint, every checkpoint measured alike.

    check every stage's settings, references, models and data                    `pipeline_check`
    measure the model it begins with
    for each stage:
        put checkpoints and files of earlier stages into its settings            `resolved`
        train it: `r1zero train STAGE.yaml --resume-or-start`
        measure its checkpoint                                                   `measures`
        write down that it is done                                               progress.json
    one table; lineage of the last checkpoint

Stages and measures run in processes of their own, by the same command line a user would type. What a stage leaves
behind in a process (an engine's device memory, accelerate's singletons, threads, seeds) cannot reach the next one; one
that the system kills for memory is a line that says so; and a stage's numbers are those of the same stage run by hand.
The price is the imports, some seconds a stage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from r1zero import lineage, models, recipe
from r1zero.checkpoint import latest_checkpoint
from r1zero.config import PipelineConfig, RejectionSamplingConfig, RewardModelConfig, StageConfig
from r1zero.config.pipeline import START
from r1zero.errors import UserError
from r1zero.launch import Launch
from r1zero.launch import launch as launch_process
from r1zero.measures import figures_of, table
from r1zero.pipeline_check import check_stages, first_model, references_checked, substituted
from r1zero.run import RunFolder, plain, write_atomically
from r1zero.tracking import say
from r1zero.train.session import find_run


def train_pipeline(config: PipelineConfig, *, resume: bool = False, launch: Launch = launch_process) -> Path:
    """Run what is left of the pipeline and report; returns the last stage's checkpoint.

    `resume` goes on in the stage under way. Raises UserError for every mistake in any stage's settings or files before
    the first one starts. `launch` is for tests.
    """
    folder = RunFolder(config.run.root, config.run.name)
    if folder.exists and not resume:
        raise UserError(
            f"{folder.path} holds a run already: add --resume to go on with it, give --run.name another name, "
            f"or delete the folder"
        )
    if resume and not folder.exists:
        raise UserError(f"nothing to resume: {folder.path} holds no run")
    references_checked(config)
    for name in config.stages:
        if RunFolder(folder.path, name).exists:  # with the settings it was begun with?
            find_run(resolved(config, name), resume=True)
    folder.open()
    try:
        progress = _progress(folder)
        if any(name not in progress for name in config.stages):
            say(f"pipeline {config.run.name}: checking {len(config.stages)} stages and their files")
            check_stages(config)
        folder.write_config(config)
        folder.write_manifest({"stage": config.stage, "stages": list(config.stages)})
        _run_stages(config, folder, progress, launch)
        return _finish(config, folder, progress)
    finally:
        folder.close()


def _run_stages(config: PipelineConfig, folder: RunFolder, progress: dict[str, Any], launch: Launch) -> None:
    _measure(config, folder, START, models.resolve(first_model(config)), launch)
    for number, (name, settings) in enumerate(config.stages.items(), 1):
        stage = resolved(config, name)
        if name not in progress:
            began = time.monotonic()
            say(f"\npipeline {config.run.name}, stage {number} of {len(config.stages)}: {name}", style="bold cyan")
            path = folder.path / f"{name}.yaml"
            header = f"# stage {name} of pipeline {config.run.name}" + f", recipe {settings['recipe']}" * bool(
                settings["recipe"]
            )
            write_atomically(path, f"{header}\n{yaml.safe_dump(plain(stage), sort_keys=False, allow_unicode=True)}")
            launch("r1zero.cli", ["train", str(path), "--resume-or-start"])
            progress[name] = {"checkpoint": str(checkpoint_of(stage)), "seconds": round(time.monotonic() - began, 1)}
            write_atomically(folder.path / "progress.json", json.dumps(progress, indent=1) + "\n")
        if answers(stage):
            _measure(config, folder, name, Path(progress[name]["checkpoint"]), launch)


def _measure(config: PipelineConfig, folder: RunFolder, name: str, model: Path, launch: Launch) -> None:
    """Measure `model` as stage `name`'s, unless that has been done under the same settings."""
    target = folder.path / "measures" / f"{name}.json"
    wanted = {"model": str(model), "threads": config.run.threads, "measures": plain(config.measures)}
    if not config.measures or (target.exists() and json.loads(target.read_text(encoding="utf-8"))["of"] == wanted):
        return
    target.parent.mkdir(exist_ok=True)
    task = target.with_suffix(".task.json")
    write_atomically(task, json.dumps(wanted, indent=1) + "\n")
    say(f"\npipeline {config.run.name}: measuring {name}", style="bold cyan")
    launch("r1zero.measures", [str(task), str(target)])


def _finish(config: PipelineConfig, folder: RunFolder, progress: Mapping[str, Any]) -> Path:
    """Table, results and lineage, from what the stages left on disk."""
    rows = []
    for name in [START, *config.stages]:
        path = folder.path / "measures" / f"{name}.json"
        row: dict[str, Any] = {"stage": name, "kind": "", "measures": {}, "figures": ""}
        if path.exists() and config.measures:
            row["measures"] = json.loads(path.read_text(encoding="utf-8"))["figures"]
        if name != START:
            stage = resolved(config, name)
            row |= {"kind": stage.stage, "figures": figures_of(RunFolder(folder.path, name)), **progress[name]}
            row["recipe"] = config.stages[name]["recipe"]
        rows.append(row)
    text = table(rows)
    last = list(config.stages)[-1]
    checkpoint = Path(progress[last]["checkpoint"])
    traced = lineage.trace(RunFolder(folder.path, last).path)
    recipes = {name: settings["recipe"] for name, settings in config.stages.items()}
    write_atomically(
        folder.path / lineage.FILE,
        json.dumps({"pipeline": config.run.name, "recipes": recipes, **traced}, indent=1, ensure_ascii=False) + "\n",
    )
    write_atomically(folder.path / "results.json", json.dumps(rows, indent=1) + "\n")
    write_atomically(folder.path / "table.txt", text + "\n")
    print(text)
    print(f"checkpoint: {checkpoint}")
    print(f"lineage: {folder.path / lineage.FILE}")
    return checkpoint


# -- stages ----------------------------------------------------------------------------------------------------------


def resolved(config: PipelineConfig, name: str) -> StageConfig:
    """A stage's config with `stage:…` replaced by folders of earlier stages, as far as there are any."""
    root = Path(config.run.root) / config.run.name

    def place(stage: str, file: str) -> str:
        if file:
            return str(root / stage / file)
        earlier = resolved(config, stage)
        # A rejection sampling stage stands for the model it sampled from, be there one yet or not.
        return earlier.model.path if isinstance(earlier, RejectionSamplingConfig) else str(checkpoint_of(earlier))

    settings = {key: value for key, value in config.stages[name].items() if key != "recipe"}
    return recipe.from_settings(substituted(settings, place), (), f"stage {name}")


def checkpoint_of(stage: StageConfig) -> Path:
    """The last checkpoint of a stage's run; of rejection sampling, which trains nothing, the model it sampled from."""
    if isinstance(stage, RejectionSamplingConfig):
        return models.resolve(stage.model.path)
    folder = Path(stage.run.root) / stage.run.name / "checkpoints"
    return latest_checkpoint(folder) or folder


def answers(stage: StageConfig) -> bool:
    """True for a stage that makes a new model that answers prompts."""
    return not isinstance(stage, RejectionSamplingConfig | RewardModelConfig)


def _progress(folder: RunFolder) -> dict[str, Any]:
    path = folder.path / "progress.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found
