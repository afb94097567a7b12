"""`r1zero report PATH...`: from folders to one HTML page."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import yaml
from markupsafe import Markup

from r1zero.errors import UserError
from r1zero.report import evals
from r1zero.report.alarms import alarms
from r1zero.report.curves import MOST_VALUES, curves, is_phase, panels, phases
from r1zero.report.folders import Evaluation, Run, find
from r1zero.report.hacking import hacking, judges
from r1zero.report.rollouts import QUANTILES, WORDS_A_STEP, digest
from r1zero.report.samples import chosen_steps
from r1zero.report.words import REFLECTION

SAMPLE_BYTES = 1_500_000
"""Of completions in a page of runs: with the metrics and the scripts it stays under 5 MB."""
_SCRIPTS = ("text.js", "charts.js", "curves.js", "samples.js", "questions.js", "main.js")


def build(paths: Sequence[Path], *, gold: str = "", refresh_seconds: int = 0) -> str:
    """The page of the runs and evaluations in `paths`.

    gold: name of the reward term to trust on the reward-hacking page; empty: the first of weight 0.
    refresh_seconds: for a served page of a run that goes on; 0: never.
    Raises UserError for a path with nothing to show and for files that cannot be read.
    """
    found = find(paths)
    if gold and not any(gold in [term["key"] for term in run.terms] for run in found.runs):
        raise UserError(f"--gold {gold}: no run here has a reward term of that name")
    runs = [_run(run, i, len(found.runs), gold) for i, run in enumerate(found.runs)]
    comparison = list(evals.side_by_side(*found.evaluations)) if len(found.evaluations) == 2 else []
    questions = comparison or [
        {"name": f"{one.name} · {entry['name']}", **{k: v for k, v in entry.items() if k != "name"}}
        for one in found.evaluations
        for entry in evals.single(one)
    ]
    data = {
        "runs": [run["data"] for run in runs],
        "panels": panels([run["curves"] for run in runs]),
        "quantiles": QUANTILES,
        "samples": [sample for run in runs for sample in run["samples"]],
        "overrated": [sample for run in runs if run["hacking"] for sample in run["hacking"].overrated],
        "questions": [
            {"name": one["name"], "questions": one["questions"], "sides": 2 if comparison else 1} for one in questions
        ],
    }
    return page(
        "report.html.jinja",
        title=_title(paths),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        runs=runs,
        evaluations=found.evaluations,
        tables=found.tables,
        comparison=comparison,
        questions=questions,
        lineage=_lineage(found.runs),
        refresh_seconds=refresh_seconds,
        reflection=REFLECTION,
        words_a_step=WORDS_A_STEP,
        script=Markup("\n".join(_text(name) for name in _SCRIPTS)),
        data=embedded(data),
    )


def page(template: str, **values: Any) -> str:
    """A template of `page/` filled in, with the style."""
    return _environment().get_template(template).render(style=Markup(_text("style.css")), **values)


def _run(run: Run, index: int, count: int, gold: str) -> dict[str, Any]:
    """Everything of one run: for the template, and under `data` for the script."""
    who = judges(run, gold)
    read = digest(run, index, gold=who.gold, format_term=who.format_term, budget=SAMPLE_BYTES // count)
    columns = curves(run, MOST_VALUES // count)
    steps = [step for step, _ in run.files("rollouts")]
    has_page = bool(read.steps)
    return {
        "run": run,
        "index": index,
        "curves": columns,
        "samples": read.samples,
        "hacking": hacking(run, read, who) if has_page else None,
        "alarms": alarms(run),
        "phases": sorted(phases(run.rows).items(), key=lambda one: -one[1]),
        "scores": evals.step_scores(run),
        "completions": read.completions,
        "kept": sum(sample["kind"] == "train" for sample in read.samples),
        "kept_steps": len(chosen_steps(steps)),
        "steps_read": len(steps),
        "data": {
            "name": run.name,
            "experiment": run.experiment,
            "seed": run.seed,
            "steps": columns.steps,
            "columns": columns.columns,
            "phases": [key for key in columns.columns if is_phase(key)],
            "terms": [term["key"] for term in run.terms],
            "digest": {
                "steps": read.steps,
                "lengths": read.lengths,
                "words": {word: [one.get(word, 0.0) for one in read.words] for word in REFLECTION},
                "length_reward": read.length_reward,
                "format_reward": read.format_reward,
            },
            "gold_metric": who.gold_metric,
            "kl": next((key for key in ("policy/kl_completion", "policy/kl") if key in columns.columns), ""),
        },
    }


def write(paths: Sequence[Path], out: Path, *, gold: str = "") -> int:
    """Write the page to `out`; returns its bytes. Raises UserError where it cannot be written."""
    data = build(paths, gold=gold).encode()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(out.name + ".tmp")
        temporary.write_bytes(data)
        temporary.rename(out)
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): choose another with -o") from error
    return len(data)


def embedded(data: Any) -> Markup:
    """JSON that can stand in a `<script>`: nothing in it can end the element or begin a comment. Lone halves of UTF-16
    pairs stay escapes."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(re.sub("[\ud800-\udfff\u2028\u2029\ufeff\ufffe\uffff]", lambda m: f"\\u{ord(m.group()):04x}", text))


def visible(text: object) -> str:
    """Text with its control characters and direction marks written as their names, as `text.js` does."""
    return "".join(
        _named(c) if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs") else c for c in str(text)
    )


def _named(character: str) -> str:
    return f"‹U+{ord(character):04X}›"


def command(run: Run) -> str:
    """What repeats the run, as a line for a shell; empty where the manifest does not say."""
    argv = run.manifest.get("command")
    if not isinstance(argv, Sequence) or isinstance(argv, str) or not argv:
        return ""
    return shlex.join(["r1zero", *map(str, argv[1:])])


def worked(run: Run) -> str:
    """One sentence on what became of the run; its held-out score where it has one, else what it was paid."""
    scores = evals.step_scores(run)
    if len(scores) > 1:
        first, last = scores[0], scores[-1]
        apart = (last["ci95_low"] or 0.0) > (first["ci95_high"] or 1.0)
        below = (last["ci95_high"] or 1.0) < (first["ci95_low"] or 0.0)
        says = "more than chance explains" if apart or below else "within what chance explains"
        return (
            f"Held-out pass@1 went from {first['pass@1']:.1%} (step {first['step']}) to {last['pass@1']:.1%} "
            f"(step {last['step']}): {says}."
        )
    for key, what in (
        ("reward/mean", "The training reward"),
        ("held_out/nll", "The held-out loss"),
        ("loss", "The loss"),
    ):
        values = [(row["step"], row[key]) for row in run.rows if isinstance(row.get(key), int | float)]
        if len(values) > 1:
            (a, first_value), (b, last_value) = values[0], values[-1]
            return f"{what} went from {first_value:.3g} (step {a}) to {last_value:.3g} (step {b}); no held-out score."
    return "Too short to say."


def _lineage(runs: Sequence[Run]) -> list[Mapping[str, Any]]:
    """All that led to these runs, parents first, each once."""
    steps: dict[tuple[str, str | None], Mapping[str, Any]] = {}
    for run in runs:
        for step in run.lineage.get("runs", []):
            steps.setdefault((step["run"], step.get("checkpoint")), step)
    return list(steps.values())


def _title(paths: Sequence[Path]) -> str:
    names = [path.resolve().name for path in paths]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("r1zero.report", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else visible("" if value is None else value),
    )
    environment.filters |= {
        "percent": lambda value: "n/a" if value is None else f"{value:.1%}",
        "number": lambda value: "n/a" if value is None else f"{value:.3g}",
        "duration": _duration,
        "yaml": lambda value: yaml.safe_dump(value, sort_keys=False, allow_unicode=True),
        "command": command,
        "raw": lambda value: Markup(markupsafe.escape(value)),
        "worked": worked,
        "parents": _parents,
        "label": _label,
    }
    return environment


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"


def _parents(run: Mapping[str, Any]) -> str:
    """What a run of the lineage was made from."""
    return "; ".join(f"{key}: {parent.get('path', '')}" for key, parent in run.get("parents", {}).items())


def _label(one: Evaluation) -> str:
    return str(one.results["manifest"].get("checkpoint", one.name))


def _text(name: str) -> str:
    return (files("r1zero.report") / "page" / name).read_text(encoding="utf-8")
