"""A lab: named variants times seeds through the ordinary stages, then a table, a plot and a verdict on the claim.

    for each seed:
        for each variant:
            run its recipe with its settings (one that is finished is not run again)      `run_variants`
    read each run's measures; mean and 95% interval over the seeds                        `measure`, `Interval`
    judge each effect by the interval of its difference                                   `judge`

A user's own lab is a YAML file like `recipes/lab-*.yaml`. The variants of one claim differ in the setting it is about
and in nothing else; differences are taken seed by seed, so that what a seed brings to both sides falls out.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState

from r1zero.config import LabConfig, LabVariant, StageConfig, recipe
from r1zero.config.stage_links import substituted
from r1zero.errors import UserError, unknown_name
from r1zero.pipelines import stages
from r1zero.pipelines.lab_results import LabRun, Report
from r1zero.runs.folder import RunFolder, write_atomically
from r1zero.runs.tracking import say

WEIGHTS_CHANGE = "weights/change"
Metrics = list[dict[str, Any]]
"""The lines of a metrics.jsonl."""


def train_lab(config: LabConfig, *, resume: bool = False) -> Path:
    """Run what is left of the lab and report; returns its folder.

    `resume` goes on where it stopped, inside the variant under way. Raises UserError for every mistake in the lab's own
    file or a variant's settings before anything is run; what a variant's stage finds wrong later ends the lab there.
    """
    folder = RunFolder(config.run.root, config.run.name)
    if folder.exists and not resume:
        raise UserError(
            f"{folder.path} holds a lab already: add --resume to go on with it, give --run.name another name, "
            f"or delete the folder"
        )
    if resume and not folder.exists:
        raise UserError(f"nothing to resume: {folder.path} holds no lab")
    for variant in config.variants:
        config_of(config, variant, config.seeds[0], folder.path, _not_yet(config, variant))
    if config.panels:
        from r1zero.pipelines import lab_plot  # it says what to install before hours have been spent

        lab_plot.require_matplotlib()
    folder.open()
    try:
        folder.write_config(config)
        runs = run_variants(config, folder.path)
        report = Report.of(config, runs)
        write_atomically(folder.path / "results.json", json.dumps(report.plain(), indent=1) + "\n")
        write_atomically(folder.path / "table.txt", report.text() + "\n")
        print(report.text())
        if config.panels:
            print(f"plot: {lab_plot.draw(config, runs, folder.path / 'plot.png')}")
    finally:
        folder.close()
    return folder.path


# -- runs ------------------------------------------------------------------------------------------------------------


def run_variants(config: LabConfig, root: Path) -> list[LabRun]:
    """Every variant with every seed, in the order of the seeds; a finished one is only read."""
    runs: list[LabRun] = []
    count, began = len(config.seeds) * len(config.variants), time.monotonic()
    for seed in config.seeds:
        checkpoints: dict[str, Path] = {}
        for variant in config.variants:
            stage = config_of(config, variant, seed, root, _place(checkpoints, seed, root))
            folder = RunFolder(stage.run.root, stage.run.name)
            say(
                f"\nlab {config.run.name}, run {len(runs) + 1} of {count}: {variant.name}, seed {seed}",
                style="bold cyan",
            )
            # accelerate keeps the first run's compute type for the whole process, and the next may have another.
            AcceleratorState._reset_state(True)
            with redirect_stdout(sys.stderr):  # stdout is for the lab's own result
                checkpoint = stages.run(stage, resume=folder.exists)
            checkpoints[variant.name] = checkpoint
            runs.append(
                LabRun(variant=variant.name, seed=seed, config=stage, checkpoint=checkpoint, metrics=folder.metrics())
            )
    say(f"\nlab {config.run.name}: {count} runs, {time.monotonic() - began:.0f} s this time")
    return runs


def config_of(
    config: LabConfig, variant: LabVariant, seed: int, root: Path, place: Callable[[str, str], str]
) -> StageConfig:
    """The checked settings of one run: its recipe, the lab's settings, its own, the seed and the folder.

    `place(name, file)` gives what `stage:NAME` and `stage:NAME/FILE` stand for: those of another variant's run.
    """
    name = variant.recipe or config.recipe
    settings = recipe.merged(config.settings, variant.settings)
    own: dict[str, Any] = {"run": {"name": _run_name(variant.name, seed), "root": str(root), "seed": seed}}
    try:
        if "data" in recipe.merged(recipe.read(name), settings):
            own["data"] = {"seed": seed}
        return recipe.load(name, settings=substituted(recipe.merged(settings, own), place))
    except UserError as error:
        raise UserError(f"variant {variant.name!r}: {error}") from error


def _run_name(variant: str, seed: int) -> str:
    return f"{variant}-seed-{seed}"


def _place(checkpoints: Mapping[str, Path], seed: int, root: Path) -> Callable[[str, str], str]:
    return lambda name, file: str(root / _run_name(name, seed) / file if file else checkpoints[name])


def _not_yet(config: LabConfig, variant: LabVariant) -> Callable[[str, str], str]:
    """Stands in for checkpoints before there are any; refuses those that there will not be in time."""
    names = [v.name for v in config.variants]
    earlier = names[: names.index(variant.name)]

    def place(name: str, file: str) -> str:
        if name not in earlier:
            raise unknown_name("variant listed earlier", name, earlier)
        return f"{name}/{file}"

    return place


# -- measures --------------------------------------------------------------------------------------------------------
