"""What a pipeline measures of every checkpoint, and the table it ends in.

`python -m r1zero.pipelines.measures STAGE.MEASURE.task.json …` measures in a process of its own; the figures go to
STAGE.MEASURE.json and every sample to the folder STAGE.MEASURE beside them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from r1zero import prompts
from r1zero.config import MeasureConfig, ModelConfig, recipe
from r1zero.data import datasets
from r1zero.errors import UserError
from r1zero.eval.harness import batch_seed
from r1zero.eval.statistics import clustered_mean
from r1zero.models.policy import load_tokenizer
from r1zero.runs.folder import RunFolder, write_atomically
from r1zero.runs.tracking import say
from r1zero.training.groups import ScoredGroup, check_judges, completion_rows, group_sampler
from r1zero.training.inputs import within_limit
from r1zero.training.rejection import RESULT_FILE

BATCH = 1024
"""Samples in one call of the engine."""
FIGURES = {
    "held_out/nll": "held-out loss",
    "held_out/accuracy": "held-out accuracy",
    "eval/win_rate": "win rate",
    "reward/mean": "training reward",
    "policy/kl": "KL",
}
"""What of a stage's last metrics stands in the table."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as each task file says."""
    here = str(Path.cwd())
    if here not in sys.path:  # a measure may name a verifier in a module there, as a recipe may
        sys.path.append(here)
    try:
        for path in map(Path, sys.argv[1:] if argv is None else argv):
            task = json.loads(path.read_text(encoding="utf-8"))
            target = path.with_name(path.name.removesuffix(".task.json") + ".json")
            config = recipe.checked(MeasureConfig, task["measure"], (), f"measure {target.stem}")
            figures = measure(config, Path(task["model"]), RunFolder(path.parent, target.stem), task["threads"])
            write_atomically(target, json.dumps({"of": task, "figures": figures}, indent=1) + "\n")
    except UserError as error:
        print(f"r1zero: {error}", file=sys.stderr)
        return 2
    return 0


def measure(config: MeasureConfig, model: Path, folder: RunFolder, threads: int) -> dict[str, Any]:
    """The figures of one model on one set; every sample goes to `folder`."""
    template, tokenizer = prompts.load(config.template), load_tokenizer(model)
    check_judges(config.reward, config.engine, tokenizer)
    problems, skipped = within_limit(datasets.load_problems(config.data), config.data, template, tokenizer)
    size = max(BATCH // config.samples, 1)
    groups: list[ScoredGroup] = []
    with group_sampler(
        path=model,
        model=ModelConfig(path=str(model), dtype=config.dtype),
        tokenizer=tokenizer,
        template=template,
        engine=config.engine,
        reward=config.reward,
        max_context=max(len(template.encode(p.prompt, tokenizer)) for p in problems) + config.sampling.max_tokens,
        threads=threads,
    ) as sampler:
        for number, start in enumerate(range(0, len(problems), size)):
            sampling = sampler.sampling(config.sampling, batch_seed(config.seed, number))
            groups += sampler.draw(problems[start : start + size], sampling, config.samples)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.save_rollouts(0, completion_rows(groups, template, tokenizer))
    result = summarised(groups)
    result |= {
        "problems": len(problems),
        "skipped": skipped,
        "samples": config.samples,
        "data_fingerprint": datasets.fingerprint(problems),
        "template_fingerprint": template.fingerprint,
    }
    say(", ".join(f"{name} {_shown(score)}" for name, score in result["scores"].items()), style="bold")
    return result


def summarised(groups: Sequence[ScoredGroup]) -> dict[str, Any]:
    """Mean score of each reward term and model with its 95% interval over problems, mean length, share cut off.

    A verdict of `error` or `timeout` says nothing and is left out; `unknown` counts them.
    """
    rewards = [group.rewards for group in groups]
    scores: dict[str, Any] = {}
    for name in rewards[0][0].parts:
        verdicts = [[reward.parts[name] for reward in group] for group in rewards]
        known = [[v.score for v in group if v.outcome not in ("error", "timeout")] for group in verdicts]
        unknown = sum(len(group) for group in verdicts) - sum(len(group) for group in known)
        scores[name] = _mean([[s for s in group if s is not None] for group in known]) | {"unknown": unknown}
    for name in rewards[0][0].scores:
        scores[name] = _mean([[reward.scores[name] for reward in group] for group in rewards]) | {"unknown": 0}
    completions = [completion for group in groups for completion in group.completions]
    return {
        "scores": scores,
        "tokens": fmean(c.num_tokens for c in completions),
        "truncated": sum(c.truncated for c in completions) / len(completions),
    }


def _mean(groups: Sequence[Sequence[float]]) -> dict[str, float | None]:
    """Mean over problems of the mean over samples, with its interval: Wilson's for scores in 0 .. 1 (`share`: shown as
    a percentage), else normal."""
    means = [fmean(group) for group in groups if group]
    if not means:
        return {"mean": None, "low": None, "high": None, "share": False}
    if all(0 <= score <= 1 for group in groups for score in group):
        found = clustered_mean(means, sum(map(len, groups)) / len(means))
        return {"mean": found.mean, "low": found.ci95[0], "high": found.ci95[1], "share": True}
    half = 1.96 * stdev(means) / math.sqrt(len(means)) if len(means) > 1 else math.inf
    return {"mean": fmean(means), "low": fmean(means) - half, "high": fmean(means) + half, "share": False}


# -- table -----------------------------------------------------------------------------------------------------------


def figures_of(folder: RunFolder) -> str:
    """What matters of a stage besides its measures, from its own files."""
    if (folder.path / RESULT_FILE).exists():
        result = json.loads((folder.path / RESULT_FILE).read_text(encoding="utf-8"))
        pairs = f", {result['pairs']} pairs" if "pairs" in result else ""
        return f"{result['samples']} samples, {result['kept']} kept{pairs}"
    last: dict[str, float] = {}
    for row in folder.metrics():
        last |= {name: row[name] for name in FIGURES if name in row}
    return ", ".join(f"{FIGURES[name]} {last[name]:.3g}" for name in FIGURES if name in last)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A row a stage, a column a measured score, then where each score was best and where it ended."""
    columns = list(dict.fromkeys(column for row in rows for column in _scores(row)))
    names = [measure for row in rows for measure in row["measures"]]
    several = len(set(names)) > 1

    def title(column: tuple[str, str]) -> str:
        return f"{column[0]}: {column[1]}" if several else column[1]

    head = ["stage", *(title(column) for column in columns), *(["tokens"] if columns else []), "figures"]
    lines = [head]
    for row in rows:
        scores = _scores(row)
        tokens = [f"{fmean(m['tokens'] for m in row['measures'].values()):.1f}" if row["measures"] else ""]
        cells = [_shown(scores[column]) if column in scores else "" for column in columns]
        lines.append([row["stage"], *cells, *(tokens if columns else []), row["figures"]])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    for column in columns:
        known = [(row["stage"], _scores(row)[column]) for row in rows if column in _scores(row)]
        known = [(stage, score) for stage, score in known if score["mean"] is not None]
        if known:
            stage, best = max(known, key=lambda pair: float(pair[1]["mean"]))
            begun, most, last = (_number(score["mean"], score) for score in (known[0][1], best, known[-1][1]))
            text.append(f"{title(column)}: begun at {begun}, best after {stage} {most}, at the end {last}")
    return "\n".join(text)


def _scores(row: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    return {
        (measure, name): score
        for measure, figures in row["measures"].items()
        for name, score in figures["scores"].items()
    }


def _shown(score: Mapping[str, Any]) -> str:
    if score["mean"] is None:
        return "unknown"
    unknown = f", {score['unknown']} unknown" if score["unknown"] else ""
    low, high = (_number(score[end], score) for end in ("low", "high"))
    return f"{_number(score['mean'], score)} ({low} to {high}{unknown})"


def _number(value: float, score: Mapping[str, Any]) -> str:
    return f"{value:.1%}" if score["share"] else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
