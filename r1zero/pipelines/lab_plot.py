"""The figure of a lab: curves of its runs' metrics, over steps or against one another, as a PNG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r1zero.config import LabConfig, LabPanel
from r1zero.errors import UserError
from r1zero.pipelines.lab_results import Interval, LabRun

STYLES = ("-", "--", ":", "-.")
MARKS = ("o", "x", "^", "s")
PANEL_INCHES = (5.2, 3.8)


def require_matplotlib() -> None:
    """Raises UserError where it is not installed."""
    try:
        import matplotlib as _  # noqa: F401
    except ImportError as error:
        raise UserError("a lab's plot needs matplotlib: pip install 'r1zero[plots]'") from error


def draw(config: LabConfig, runs: Sequence[LabRun], path: Path) -> Path:
    """Write the lab's panels side by side to `path`; returns it."""
    # Not pyplot: it keeps figures, and a backend, for the whole process.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(config.panels), height + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(config.panels), squeeze=False)[0], config.panels, strict=True):
        _panel(axes, panel, config, runs)
    figure.suptitle(config.claim, fontsize=10, wrap=True)
    temporary = path.with_name("plot.tmp.png")
    figure.savefig(temporary, dpi=130)
    temporary.rename(path)
    return path


def _panel(axes: Any, panel: LabPanel, config: LabConfig, runs: Sequence[LabRun]) -> None:
    for i, variant in enumerate(config.shown):
        own = [run for run in runs if run.variant == variant.name]
        for j, metric in enumerate(panel.y):
            label = variant.name if len(panel.y) == 1 else f"{variant.name}: {metric}"
            look: dict[str, Any] = {"color": f"C{i}", "linestyle": STYLES[j % len(STYLES)]}
            if panel.kind == "points":
                look |= {"linestyle": "none", "marker": MARKS[j % len(MARKS)], "markersize": 3.0, "alpha": 0.5}
            if panel.x == "step" and panel.kind == "line":
                _mean_and_band(axes, own, metric, label, look)
            else:
                _each_seed(axes, own, panel.x, metric, label, look)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y[0] if len(panel.y) == 1 else "")
    axes.set_title(panel.title, fontsize=9)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
    axes.grid(alpha=0.3)


def _mean_and_band(axes: Any, runs: Sequence[LabRun], metric: str, label: str, look: dict[str, Any]) -> None:
    """The mean over seeds, and its 95% interval as a band; a step that a run lacks is the mean of the others."""

    at: dict[int, list[float]] = defaultdict(list)
    for run in runs:
        for row in run.metrics:
            if metric in row:
                at[row["step"]].append(float(row[metric]))
    steps = sorted(at)
    if not steps:
        return
    intervals = [Interval.of(at[step]) for step in steps]
    axes.plot(steps, [i.mean for i in intervals], label=label, **look)
    axes.fill_between(steps, [i.low for i in intervals], [i.high for i in intervals], color=look["color"], alpha=0.15)


def _each_seed(axes: Any, runs: Sequence[LabRun], x: str, metric: str, label: str, look: dict[str, Any]) -> None:
    """Every step's (x, metric) of each seed: a line or points a seed, in the variant's colour."""
    for k, run in enumerate(runs):
        pairs = [(float(row[x]), float(row[metric])) for row in run.metrics if x in row and metric in row]
        if pairs:
            axes.plot(*zip(*pairs, strict=True), label=label if k == 0 else None, linewidth=1.0, **look)
