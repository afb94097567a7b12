"""`r1zero data show | presets | difficulty`: what a run would train on, before it does. Mounted by `commands.main`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1zero.errors import UserError, at_least

if TYPE_CHECKING:
    from r1zero.config import DataConfig
    from r1zero.data.records import Problem
    from r1zero.verifiers import VerifierSpec

EXAMPLES = """\
examples:
  r1zero data show problems.jsonl --verifier math             three problems as the model and the verifier see them
  r1zero data show preset:gsm8k --model Qwen/Qwen2.5-0.5B-Instruct --template boxed_chat
  r1zero data show my-recipe.yaml --decontaminate math500,aime2024   a recipe's data, template and verifiers
  r1zero data presets                                         public sets by name
  r1zero data difficulty MODEL problems.jsonl --out rated.jsonl --k 8
  r1zero data difficulty runs/try --out rated.jsonl           from the run's own rollouts; no GPU
"""
SHOWN = 1500
"""Characters of one text on the screen."""


def add_parser(commands: Any) -> None:
    """Add `data` to the subparsers `commands` of an argparse parser; `arguments.run(arguments)` runs it."""
    parser = commands.add_parser(
        "data",
        help="look at data: as the model and the verifier see it, how hard it is",
        description="Problems before a run: what is read, what is left out, who judges them, how hard they are.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="a few problems, and what was left out")
    show.add_argument("source", help="a data file, hub id, preset:NAME, generated source; or a recipe")
    _reading(show)
    show.add_argument("--template", default="", help="prompt template (default: the recipe's, else r1zero)")
    show.add_argument("--model", default="", help="whose chat template goes around the prompt (default: the recipe's)")
    show.add_argument("--count", type=at_least(1), default=3, metavar="N", help="problems to show (default: 3)")
    show.add_argument("--decontaminate", default="", metavar="NAMES", help="benchmarks to look for in it; commas")
    show.add_argument("--data-dir", default="", help="folder with local copies of the benchmarks; else the hub")
    show.set_defaults(run=show_data)

    actions.add_parser("presets", help="public sets by name").set_defaults(run=list_presets)

    difficulty = actions.add_parser("difficulty", help="the share of right answers to each problem")
    difficulty.add_argument("model", help="who answers; or a run folder, whose rollouts are counted")
    difficulty.add_argument("source", nargs="?", default="", help="a data file, hub id or preset:NAME")
    _reading(difficulty)
    difficulty.add_argument("--out", type=Path, required=True, metavar="FILE", help=".jsonl with solve_rate")
    difficulty.add_argument("--k", type=at_least(1), default=8, help="answers a problem (default: 8)")
    difficulty.add_argument("--template", default="", help="default: the run's own, else by the tokenizer")
    difficulty.add_argument("--max-tokens", type=at_least(1), default=2048, help="of one answer (default: 2048)")
    difficulty.add_argument("--temperature", type=float, default=1.0, help="default: 1, as in training")
    difficulty.add_argument("--engine", default="", help="auto, vllm, transformers (default: the run's, else auto)")
    difficulty.set_defaults(run=measure_difficulty)


def _reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", default="", help="the hub data set's configuration")
    parser.add_argument("--split", default="", help="default: train")
    parser.add_argument("--prompt-field", default="", help="field with the question (default: problem)")
    parser.add_argument("--answer-field", default=None, help="field with the answer (default: answer); '' for none")
    parser.add_argument("--folder", default="", help="folder with local copies of hub data sets, as OWNER/NAME")
    parser.add_argument("--verifier", default="", help="who judges (default: the rows', the preset's, the recipe's)")
    parser.add_argument("--limit", type=at_least(0), default=0, help="only so many problems, drawn with seed 0")


def show_data(arguments: argparse.Namespace) -> int:
    """Print problems as the model and the verifier get them, and what was left out; exit code 1 for contamination."""
    from r1zero import models, prompts
    from r1zero.algorithms.rewards import check_verifiers
    from r1zero.data import datasets, presets
    from r1zero.models.policy import load_tokenizer

    _import_from_here()
    config, template_name, verifier, model = _settings(arguments)
    template = prompts.load(arguments.template or template_name)
    if template.kind == "chat" and not model:
        raise UserError(f"template {template.name!r} is a chat's: name its model with --model, or another one")
    tokenizer = load_tokenizer(models.resolve(model)) if model else None
    loaded = datasets.load(config)
    check_verifiers(loaded.kept)
    for number, problem in enumerate(_spread(loaded.kept, arguments.count), 1):
        _print_problem(number, problem, template.render(problem.prompt, tokenizer), verifier)
    print(f"\n{len(loaded.kept)} problems")
    for source, count in Counter(problem.source for problem in loaded.kept).items():
        print(f"  {count:>8} from {source}")
    for name, count in Counter((p.verifier or _name(verifier)) for p in loaded.kept).items():
        print(f"  {count:>8} judged by {name}")
    for source in [config.source, *(source.source for source in config.sources)]:
        if source.startswith(presets.PREFIX):
            preset = presets.get(source.removeprefix(presets.PREFIX))
            print(f"  {source}: its split has {preset.count:,} rows when whole; licence {preset.licence}")
    for line in loaded.said():
        print(f"  {line}")
    for reason, problems in loaded.dropped.items():
        print(f"    {reason}, such as {problems[0].id}: {_short(problems[0].prompt, 100)!r}")
    return _print_contamination(loaded.kept, arguments)


def _settings(arguments: argparse.Namespace) -> tuple[DataConfig, str, VerifierSpec | None, str]:
    """The data section, the template's name, the accuracy verifier and the model, of a recipe or of the options."""
    from r1zero.config import DataConfig, RLConfig, recipe
    from r1zero.verifiers import VerifierSpec, resolve

    given = VerifierSpec(name=arguments.verifier) if arguments.verifier else None
    if given:
        resolve(given)
    if arguments.source.endswith((".yaml", ".yml")) or arguments.source in recipe.names():
        config = recipe.load(arguments.source)
        if not isinstance(config, RLConfig):
            raise UserError(f"recipe {arguments.source} has no problems: name a recipe of stage grpo or ppo, or a file")
        first = config.reward.terms[0]
        own = given or VerifierSpec(name=first.verifier, options=first.options)
        return config.data, config.template, own, arguments.model or config.model.path
    return DataConfig(**_data_settings(arguments)), "r1zero", given, arguments.model


def _data_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.source:
        raise UserError("name a data file, a hub id or preset:NAME")
    names = ("source", "config", "split", "prompt_field", "folder", "verifier", "limit")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name)}
    if arguments.answer_field is not None:
        given["answer_field"] = arguments.answer_field
    return given


def _spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """`count` of them, of every source in turn."""
    by_source: dict[str, list[Problem]] = {}
    for problem in problems:
        by_source.setdefault(problem.source, []).append(problem)
    turns = [its[i] for i in range(count) for its in by_source.values() if i < len(its)]
    return turns[: max(count, len(by_source))]


def _print_problem(number: int, problem: Problem, prompt: str, verifier: VerifierSpec | None) -> None:
    print(f"\n== problem {number}: {problem.id} of {problem.source}")
    print(f"-- the model sees\n{_short(prompt, SHOWN)}")
    options = problem.verifier_options if problem.verifier else (verifier.options if verifier else {})
    print(f"-- the verifier sees ({problem.verifier or _name(verifier)}{', ' + str(dict(options)) if options else ''})")
    print(f"answer: {_short(problem.answer, SHOWN)!r}")
    for key, value in problem.data.items():
        print(f"{key}: {_short(json.dumps(value, ensure_ascii=False), 300)}")


def _name(verifier: VerifierSpec | None) -> str:
    return verifier.name if verifier else "the recipe's first reward term"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def _print_contamination(problems: Sequence[Problem], arguments: argparse.Namespace) -> int:
    from r1zero.eval import benchmarks
    from r1zero.eval.decontaminate import DEFAULT_NGRAM, find_overlaps

    found = 0
    for name in [name for name in arguments.decontaminate.split(",") if name]:
        benchmark = benchmarks.load(name, data_dir=arguments.data_dir)
        hits = find_overlaps(problems, benchmark.problems)
        found += len(hits)
        print(
            f"  {name}: {len({hit.train_id for hit in hits})} problems share {DEFAULT_NGRAM} words in a row with "
            f"{len({hit.benchmark_id for hit in hits})} of its {len(benchmark.problems)}"
        )
        for hit in hits[:3]:
            print(f"    {hit.train_id} and {hit.benchmark_id}, covered {hit.coverage:.0%}: {_short(hit.shared, 100)}")
    return 1 if found else 0


def list_presets(arguments: argparse.Namespace) -> int:
    """Print a line a preset."""
    from r1zero.data import presets

    for name in presets.names():
        preset = presets.get(name)
        judge = preset.settings.get("verifier") or "by row" if preset.kind != "text" else "-"
        where = preset.settings["source"]
        print(f"{name:<20}{preset.kind:<14}{judge:<14}{preset.count:>10,}  {preset.licence:<14}{where}")
    return 0


def measure_difficulty(arguments: argparse.Namespace) -> int:
    """Write the problems with the share of right answers to each, hardest first."""
    from r1zero.data import datasets

    _import_from_here()
    if arguments.source:
        rates, rows = _sampled(arguments)
    else:
        rates, rows = _from_rollouts(Path(arguments.model))
    rated = [{**row, datasets.SOLVE_RATE: rates[row["id"]]} for row in rows if row["id"] in rates]
    if not rated:
        raise UserError("no problem was judged: nothing to write")
    rated.sort(key=lambda row: row[datasets.SOLVE_RATE])
    _write(arguments.out, rated)
    never, always = sum(rate == 0 for rate in rates.values()), sum(rate == 1 for rate in rates.values())
    print(
        f"{arguments.out}: {len(rated)} problems, mean solve rate {sum(rates.values()) / len(rates):.3f}; "
        f"{never} never solved, {always} always. Train on the others: --data.source {arguments.out} "
        "--data.solve_rate '[0.1,0.9]'"
    )
    return 0


def _sampled(arguments: argparse.Namespace) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Solve rates by id from k answers of the model to each problem; goes on where a killed call left off."""
    from r1zero.config import DataConfig, EngineConfig
    from r1zero.data.datasets import load_problems
    from r1zero.eval.run import run_eval
    from r1zero.eval.tasks import EvalSettings
    from r1zero.verifiers import Outcome

    problems = load_problems(DataConfig(**_data_settings(arguments)))
    judges = {(problem.verifier, json.dumps(dict(problem.verifier_options))) for problem in problems}
    if len(judges) > 1 or any(options != "{}" for _, options in judges):
        raise UserError("difficulty measures by one verifier without options: name it with --verifier")
    rows = [_row(p.id, p.prompt, p.answer, p.data) for p in problems]
    folder = arguments.out.with_name(f"{arguments.out.stem}.eval")
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "problems.jsonl", rows)
    finished = run_eval(
        EvalSettings(
            checkpoint=arguments.model,
            suite=(str(folder / "problems.jsonl"),),
            out=str(folder / "answers"),
            template=arguments.template,
            k=arguments.k,
            temperature=arguments.temperature,
            top_p=1.0,
            max_tokens=arguments.max_tokens,
            verifier=judges.pop()[0],
            engine=EngineConfig(name=arguments.engine) if arguments.engine else None,
        ),
        say=lambda line: print(line, file=sys.stderr),
    )
    samples = [s for s in finished.results[0].samples if s.outcome not in (Outcome.ERROR, Outcome.TIMEOUT)]
    return _rates((s.problem_id, s.correct) for s in samples), rows


def _from_rollouts(folder: Path) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Solve rates by id from what a run sampled and judged: its first reward term's verdicts, over all its steps."""
    from r1zero.runs.folder import read_rollouts

    files = sorted((folder / "rollouts").glob("step-*.jsonl.zst"))
    if not files:
        raise UserError(f"{folder} has no rollouts: name a run's folder, or a model and a data file")
    rows: dict[str, dict[str, Any]] = {}
    judged = []
    for path in files:
        for said in read_rollouts(path):
            outcome = next(iter(said["verdicts"].values()))["outcome"]
            name = said["problem_id"]
            rows.setdefault(name, _row(name, said["question"], said["answer"], said["data"]))
            if outcome not in ("error", "timeout"):
                judged.append((name, outcome == "correct"))
    return _rates(judged), list(rows.values())


def _row(name: str, question: str, answer: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A problem as a data file holds it."""
    return {"id": name, "problem": question, **({"answer": answer} if answer else {}), **data}


def _rates(judged: Iterable[tuple[str, bool]]) -> dict[str, float]:
    right: dict[str, list[bool]] = {}
    for name, correct in judged:
        right.setdefault(name, []).append(correct)
    return {name: sum(all_of_it) / len(all_of_it) for name, all_of_it in right.items()}


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _import_from_here() -> None:
    """A verifier may stand in a module of the current folder, as in training."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
