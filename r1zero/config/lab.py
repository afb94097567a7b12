"""A lab: a claim of the field, the runs that put it to the test, what is measured of them, and what should be seen."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from r1zero.config.sections import require


@dataclass(frozen=True, kw_only=True)
class LabVariant:
    """One run of a lab, made once for each seed."""

    name: str
    """Its name in the table, the plot and the folder."""
    recipe: str = ""
    """The recipe it is; empty: the lab's."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What it has otherwise than its recipe and the lab's `settings`, as in a recipe. `stage:NAME` stands for the last
    checkpoint of the variant NAME, listed earlier, of the same seed, `stage:NAME/FILE` for a file its run wrote."""
    shown: bool = True
    """False: it prepares for another (a reward model), and is left out of table and plot."""


@dataclass(frozen=True, kw_only=True)
class LabMeasure:
    """One number of a run: a column of the table."""

    name: str
    metric: str
    """A key of metrics.jsonl, or `weights/change`: the L2 distance of the last checkpoint from where the run began."""
    at: Literal["last", "first", "change", "mean", "min", "max"] = "last"
    """Over the steps that have the metric; change: last less first."""
    where: str = ""
    """Another metric: only the steps count in which it is above `above` and at most `at_most`."""
    above: float = -math.inf
    at_most: float = math.inf


@dataclass(frozen=True, kw_only=True)
class LabEffect:
    """What the claim says of one measure, and by which its truth is judged."""

    says: str
    """The sentence, as it is printed beside seen or not seen."""
    measure: str
    """Name of a measure."""
    variant: str
    """Name of the variant whose measure it is."""
    against: str = ""
    """Name of the variant it is compared with, seed by seed; empty: with `value`."""
    value: float = 0.0
    expect: Literal["higher", "lower", "same"] = "higher"
    """Seen where the 95% interval of the difference lies above 0, below 0, or within -`within` .. `within`."""
    within: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LabPanel:
    """One plot of the figure."""

    y: list[str]
    """Metrics, each with its own kind of line; every shown variant has its own colour."""
    x: str = "step"
    """step: mean over seeds with its 95% interval; another metric: each seed by itself."""
    kind: Literal["line", "points"] = "line"
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class LabFolderConfig:
    """Where a lab keeps its runs."""

    name: str = ""
    """Folder under `root`; empty: the recipe's name."""
    root: str = "runs"


@dataclass(frozen=True, kw_only=True)
class LabConfig:
    """A claim put to the test by real runs: `r1zero train RECIPE` with `stage: lab`."""

    stage: Literal["lab"] = "lab"
    claim: str = ""
    """What is put to the test, in a sentence."""
    recipe: str = ""
    """The recipe of the variants that name none."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Laid on every variant's recipe, under its own settings."""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    """Every variant is run once with each, as run.seed and, where the stage has training data, data.seed."""
    variants: list[LabVariant] = field(default_factory=list)
    measures: list[LabMeasure] = field(default_factory=list)
    effects: list[LabEffect] = field(default_factory=list)
    panels: list[LabPanel] = field(default_factory=list)
    run: LabFolderConfig = field(default_factory=LabFolderConfig)

    @property
    def shown(self) -> list[LabVariant]:
        return [variant for variant in self.variants if variant.shown]

    def __post_init__(self) -> None:
        variants, measures = [v.name for v in self.variants], [m.name for m in self.measures]
        require(len(self.shown) > 0, "a lab needs variants to run")
        require(
            len(self.seeds) > 0 and len(set(self.seeds)) == len(self.seeds), f"seeds: {self.seeds} are not distinct"
        )
        require(len(set(variants)) == len(variants), f"two variants are called the same: {variants}")
        require(len(set(measures)) == len(measures), f"two measures are called the same: {measures}")
        for variant in self.variants:
            require(bool(variant.recipe or self.recipe), f"variant {variant.name!r} has no recipe, nor has the lab")
            require("/" not in variant.name, f"variant {variant.name!r}: a name becomes a folder and holds no /")
        for effect in self.effects:
            require(effect.measure in measures, f"effect of {effect.measure!r}, which is no measure of {measures}")
            for name in (effect.variant, effect.against):
                require(not name or name in variants, f"effect on {name!r}, which is no variant of {variants}")
        for panel in self.panels:
            require(len(panel.y) > 0, "a panel needs at least one metric in y")
