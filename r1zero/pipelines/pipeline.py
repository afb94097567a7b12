"""A pipeline: stages one after another, each from an earlier one's checkpoint, every checkpoint measured alike.

    check every stage's settings, references, models and data                    `pipeline_check`
    measure the model it begins with
    for each stage:
        put checkpoints and files of earlier stages into its settings            `resolved`
        train it: `r1zero train STAGE.yaml --resume-or-start`
        write down that it is done                                               progress.json
        measure its checkpoint                                                   `measures`
    one table; lineage of the last checkpoint

Stages and measures run in processes of their own, by the same command line a user would type. What a stage leaves
behind in a process (an engine's device memory, accelerate's singletons, threads, seeds) cannot reach the next one; one
that the system kills for memory is a line that says so; and a stage's numbers are those of the same stage run by hand.
The price is the imports, some seconds a stage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from r1zero import models
from r1zero.config import MeasureConfig, PipelineConfig, RejectionSamplingConfig, RewardModelConfig, StageConfig, recipe
from r1zero.config.pipeline import START
from r1zero.config.stage_links import references, substituted
from r1zero.errors import UserError
from r1zero.pipelines import lineage
from r1zero.pipelines.check import check_stages, first_model, references_checked
from r1zero.pipelines.child import Launch
from r1zero.pipelines.child import launch as launch_process
from r1zero.pipelines.measures import figures_of, table
from r1zero.runs.checkpoint import latest_checkpoint
from r1zero.runs.folder import RunFolder, plain, write_atomically
from r1zero.runs.resume import find_run
from r1zero.runs.tracking import say


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
    now = {name: measure for name, measure in config.measures.items() if not list(references(plain(measure)))}
    late = {name: measure for name, measure in config.measures.items() if name not in now}
    measured = {START: models.resolve(first_model(config))}
    _measure(config, folder, START, measured[START], now, launch)
    for number, (name, settings) in enumerate(config.stages.items(), 1):
        stage = resolved(config, name)
        if name not in progress:
            began = time.monotonic()
            say(f"\npipeline {config.run.name}, stage {number} of {len(config.stages)}: {name}", style="bold cyan")
            path = folder.path / f"{name}.yaml"
            header = f"# stage {name} of pipeline {config.run.name}"
            header += f", recipe {settings['recipe']}" if settings["recipe"] else ""
            write_atomically(path, f"{header}\n{yaml.safe_dump(plain(stage), sort_keys=False, allow_unicode=True)}")
            launch("r1zero", ["train", str(path), "--resume-or-start"])
            progress[name] = {"checkpoint": str(checkpoint_of(stage)), "seconds": round(time.monotonic() - began, 1)}
            write_atomically(folder.path / "progress.json", json.dumps(progress, indent=1) + "\n")
        if answers(stage):
            measured[name] = Path(progress[name]["checkpoint"])
            _measure(config, folder, name, measured[name], now, launch)
    for name, model in measured.items():
        _measure(config, folder, name, model, late, launch)


def _measure(
    config: PipelineConfig,
    folder: RunFolder,
    name: str,
    model: Path,
    measures: Mapping[str, MeasureConfig],
    launch: Launch,
) -> None:
    """Measure `model` as stage `name`'s, but for what has been measured of it under the same settings."""
    wanted = {
        key: {
            "model": str(model),
            "threads": config.run.threads,
            "measure": substituted(plain(measure), _place(config)),
        }
        for key, measure in measures.items()
    }
    open_ = [key for key in wanted if _measured(folder, name, key).get("of") != wanted[key]]
    if not open_:
        return
    (folder.path / "measures").mkdir(exist_ok=True)
    tasks = []
    for key in open_:
        tasks.append(_measure_file(folder, name, key).with_suffix(".task.json"))
        write_atomically(tasks[-1], json.dumps(wanted[key], indent=1) + "\n")
    say(f"\npipeline {config.run.name}: measuring {name}", style="bold cyan")
    launch("r1zero.pipelines.measures", list(map(str, tasks)))


def _measure_file(folder: RunFolder, name: str, measure: str) -> Path:
    return folder.path / "measures" / f"{name}.{measure}.json"


def _measured(folder: RunFolder, name: str, measure: str) -> dict[str, Any]:
    path = _measure_file(folder, name, measure)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _finish(config: PipelineConfig, folder: RunFolder, progress: Mapping[str, Any]) -> Path:
    """Table, results and lineage, from what the stages left on disk."""
    rows = []
    for name in [START, *config.stages]:
        row: dict[str, Any] = {"stage": name, "kind": "", "figures": ""}
        found = {key: _measured(folder, name, key).get("figures") for key in config.measures}
        row["measures"] = {key: figures for key, figures in found.items() if figures}
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
    """A stage's config with `stage:…` replaced by folders of earlier stages, be they there yet or not."""
    settings = {key: value for key, value in config.stages[name].items() if key != "recipe"}
    return recipe.from_settings(substituted(settings, _place(config)), (), f"stage {name}")


def _place(config: PipelineConfig) -> Callable[[str, str], str]:
    """What `substituted` puts for a reference."""

    def place(stage: str, file: str) -> str:
        if file:
            return str(Path(config.run.root) / config.run.name / stage / file)
        earlier = resolved(config, stage)
        # A rejection sampling stage stands for the model it sampled from.
        return earlier.model.path if isinstance(earlier, RejectionSamplingConfig) else str(checkpoint_of(earlier))

    return place


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
