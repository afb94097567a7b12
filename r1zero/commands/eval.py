"""`r1zero eval` and `r1zero compare`: options to settings, results to tables. Imports torch only to run."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1zero.errors import UserError, at_least

if TYPE_CHECKING:
    from rich.console import Console

    from r1zero.config import EngineConfig
    from r1zero.eval.result import EvalResult
    from r1zero.rollout.openai import EndpointConfig

EXAMPLES = """\
examples:
  r1zero eval runs/try/checkpoints/step-80                     the run's own held-out problems, sampled as in training
  r1zero eval Qwen/Qwen2.5-Math-1.5B --suite math500,aime2024 --template best
  r1zero eval CKPT --suite math500 --data-dir DIR --k 1 --max-tokens 512 --protocol oat-greedy
  r1zero eval CKPT --suite reasoning_gym:chain_sum --size 200 --k 4
  r1zero eval --endpoint http://localhost:8000/v1 --model NAME --suite aime2025
  r1zero eval --regrade runs/evals/NAME --verifier math        grade its samples again; no GPU
  r1zero eval --inspect runs/evals/NAME                        its samples as an Inspect log, for `inspect view`
  r1zero eval decontaminate --train FILE --suite math500,aime2024
  r1zero eval list                                             benchmarks and protocols
  r1zero compare runs/evals/A runs/evals/B                     is B better than A, and on which problems?
"""


def add_parser(subparsers: Any) -> None:
    """Mount `eval` and `compare`; the parsed namespace has a `run` that returns the exit code."""
    parser = subparsers.add_parser(
        "eval",
        help="score a checkpoint on benchmarks, with intervals",
        description="Score a checkpoint. Every sample is kept; a killed evaluation goes on when it is called again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "checkpoint", nargs="?", default="", help="model folder, run folder, hub id; or decontaminate, list"
    )
    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--suite", default="", help="benchmarks by name, reasoning_gym:TASK, tiny:arithmetic, data files; commas"
    )
    what.add_argument("--data-dir", default="", help="folder with local copies of the benchmarks; else the hub")
    what.add_argument("--limit", type=at_least(0), default=0, help="only the first so many problems")
    what.add_argument("--size", type=at_least(1), default=500, help="problems of a generated source (default 500)")
    what.add_argument("--verifier", default="", help="grade with this one instead of the benchmark's own")
    how = parser.add_argument_group("how it is sampled (defaults: the protocol's; all are in the result)")
    how.add_argument("--protocol", default="r1", help="r1, dapo, oat-greedy, qwen (default r1)")
    how.add_argument(
        "--template", default="", help="name, file, or best; default: the run's own, else by the tokenizer"
    )
    how.add_argument("--template-slice", type=at_least(1), default=32, help="problems for each of `best` (default 32)")
    how.add_argument("--k", type=at_least(1), help="samples a problem")
    how.add_argument("--temperature", type=float)
    how.add_argument("--top-p", type=float)
    how.add_argument("--top-k", type=at_least(0))
    how.add_argument("--min-p", type=float)
    how.add_argument("--max-tokens", type=at_least(1), help="most tokens of one answer")
    how.add_argument("--seed", type=at_least(0))
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine", default="", help="auto, vllm, vllm-server, transformers (default: the run's, else auto)"
    )
    engine.add_argument("--engine-url", default="", help="vllm-server: its address")
    engine.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    engine.add_argument("--tensor-parallel", type=at_least(1), help="GPUs one engine is spread over")
    engine.add_argument(
        "--data-parallel", type=at_least(1), default=1, help="engines side by side, with GPUs of their own"
    )
    engine.add_argument("--shard", default="", metavar="I/N", help="draw only this share, for one of N machines")
    engine.add_argument("--max-sequences", type=at_least(1), help="sequences in flight at once (default 256)")
    engine.add_argument("--gpu-memory", type=_share, help="share of a GPU's memory (default 0.9)")
    engine.add_argument("--batch", type=at_least(1), help="samples a call, lost in a kill (1024; sharded: 256)")
    engine.add_argument("--workers", type=at_least(0), default=0, help="verifier processes; 0: one a core")
    endpoint = parser.add_argument_group("OpenAI-compatible endpoint")
    endpoint.add_argument("--endpoint", default="", help="its address, up to /v1; the key comes from the environment")
    endpoint.add_argument("--model", default="", help="the model's name there")
    endpoint.add_argument("--endpoint-mode", choices=("chat", "completions"), default="chat")
    endpoint.add_argument("--api-key-env", default="OPENAI_API_KEY", help="variable that holds the key")
    endpoint.add_argument(
        "--timeout", type=at_least(0, float), default=600.0, help="seconds for one answer (default 600)"
    )
    endpoint.add_argument("--tries", type=at_least(1), default=6, help="of one sample (default 6)")
    endpoint.add_argument("--concurrency", type=at_least(1), default=32, help="requests in flight (default 32)")
    endpoint.add_argument("--requests-per-minute", type=at_least(0, float), default=0.0, help="0: no limit")
    output = parser.add_argument_group("output")
    output.add_argument("--out", default="", help="folder; default: runs/evals/ with a name made of the settings")
    output.add_argument("--regrade", default="", metavar="DIR", help="grade a finished evaluation's samples again")
    output.add_argument("--inspect", default="", metavar="DIR", help="write a finished evaluation as Inspect logs")
    decontaminate = parser.add_argument_group("decontaminate")
    decontaminate.add_argument("--train", nargs="+", default=[], metavar="FILE", help="training data: files or hub ids")
    decontaminate.add_argument("--prompt-field", default="problem", help="its field with the question")
    decontaminate.add_argument("--ngram", type=at_least(1), default=10, help="words in a row that count (default 10)")
    decontaminate.add_argument(
        "--min-coverage", type=_share, default=0.0, help="share of a benchmark problem that counts"
    )
    parser.set_defaults(run=run)

    against = subparsers.add_parser(
        "compare",
        help="two evaluations side by side, paired by problem",
        description="B minus A: paired bootstrap and permutation test over problems. Unlike runs are refused.",
    )
    against.add_argument("a", help="folder of an evaluation")
    against.add_argument("b", help="folder of another")
    against.add_argument("--force", action="store_true", help="compare unlike runs all the same")
    against.add_argument("--seed", type=at_least(0), default=0)
    against.add_argument(
        "--draws", type=at_least(1), default=10_000, help="of the bootstrap and of the permutation test"
    )
    against.add_argument("--show", type=at_least(0), default=10, help="changed problems to list (default 10)")
    against.set_defaults(run=run_compare)


def run(args: argparse.Namespace) -> int:
    """`r1zero eval ...`; exit code 1 when samples could not be graded, or contamination was found."""
    here = str(Path.cwd())
    if here not in sys.path:  # a verifier may stand in a module of the current folder, as in training
        sys.path.append(here)
    with _file_errors():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    if args.regrade:
        return _regrade(args)
    if args.inspect:
        return _inspect(args)
    if args.checkpoint == "list":
        return _list()
    if args.checkpoint == "decontaminate":
        return _decontaminate(args)
    if not args.checkpoint and not args.endpoint:
        raise UserError(
            "name a checkpoint (a model folder, a run folder or a hub id), or --endpoint URL; see r1zero eval -h"
        )
    return _evaluate(args)


@contextmanager
def _file_errors() -> Iterator[None]:
    """A file that cannot be read or written is the user's to mend. A full disk has no file name: the command line's."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str | Path):
            raise
        raise UserError(f"{error.filename}: {error.strerror}: choose another path, or its permissions") from error


def _share(text: str) -> float:
    """An argparse `type` for a number from 0 to 1."""
    value = at_least(0, float)(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, got {text}")
    return value


def _evaluate(args: argparse.Namespace) -> int:
    from r1zero.eval.output import table, warnings
    from r1zero.eval.parallel import draw_shards
    from r1zero.eval.run import run_eval
    from r1zero.eval.tasks import EvalSettings

    if args.shard and args.data_parallel > 1:
        raise UserError("--shard is one share of a run over several machines, --data-parallel all shares on this: one")
    settings = EvalSettings(
        checkpoint=args.checkpoint,
        suite=_names(args.suite),
        out=args.out,
        protocol=args.protocol,
        template=args.template,
        k=args.k,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        max_tokens=args.max_tokens,
        limit=args.limit,
        size=args.size,
        seed=args.seed,
        data_dir=args.data_dir,
        verifier=args.verifier,
        engine=_engine(args),
        dtype=args.dtype,
        batch=args.batch or (256 if args.shard or args.data_parallel > 1 else 1024),
        shard=_shard(args.shard),
        workers=args.workers,
        endpoint=_endpoint(args),
        template_slice=args.template_slice,
    )
    try:
        if args.data_parallel != 1:
            draw_shards(settings, args.data_parallel)
        with _Bar() as bar:
            done = run_eval(settings, say=bar.say, on_progress=bar.update)
    except KeyboardInterrupt:
        print("stopped: every graded sample is kept; the same command goes on", file=sys.stderr)
        raise
    if settings.shard is not None:
        print(
            f"the share is drawn; once all are, the same command with --batch {settings.batch} in place of --shard "
            f"gives the result in {done.folder}"
        )
        return 0
    _print_results(list(done.results), table(done.results, done.label), warnings)
    print(f"\n{(done.folder / 'results.md').read_text(encoding='utf-8')}\nfolder: {done.folder}")
    return 0 if all(result.complete for result in done.results) else 1


def _shard(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or int(found[1]) >= int(found[2]):
        raise UserError(f"--shard {text}: must be I/N with I from 0 to N - 1, such as 0/4")
    return int(found[1]), int(found[2])


def _engine(args: argparse.Namespace) -> EngineConfig | None:
    """None: the run's own."""
    from r1zero.config import EngineConfig

    if not any((args.engine, args.engine_url, args.tensor_parallel, args.max_sequences, args.gpu_memory is not None)):
        return None
    return EngineConfig(
        name=args.engine or "auto",
        url=args.engine_url,
        tensor_parallel=args.tensor_parallel or 1,
        max_sequences=args.max_sequences or 256,
        gpu_memory_utilization=0.9 if args.gpu_memory is None else args.gpu_memory,
    )


def _endpoint(args: argparse.Namespace) -> EndpointConfig | None:
    from r1zero.rollout.openai import EndpointConfig

    if not args.endpoint:
        return None
    if not args.model:
        raise UserError("--endpoint needs --model NAME, the model's name there")
    return EndpointConfig(
        url=args.endpoint,
        model=args.model,
        mode=args.endpoint_mode,
        api_key_env=args.api_key_env,
        timeout_seconds=args.timeout,
        tries=args.tries,
        concurrency=args.concurrency,
        requests_per_minute=args.requests_per_minute,
    )


def _regrade(args: argparse.Namespace) -> int:
    from r1zero.eval.output import table, warnings
    from r1zero.eval.regrade import regrade
    from r1zero.verifiers import VerifierPool

    with VerifierPool(args.workers or None, 30.0) as pool:
        done = regrade(Path(args.regrade), pool, out=Path(args.out) if args.out else None, verifier=args.verifier)
    _print_results(list(done.results), table(done.results, f"{args.regrade}, graded again"), warnings)
    print(f"\n{len(done.changes)} verdicts changed")
    for change in done.changes[:20]:
        old, new = change.before, change.after
        print(f"  {old.problem_id} #{old.index}: {old.outcome} ({old.reason}) -> {new.outcome} ({new.reason})")
    print(f"folder: {done.folder}")
    return 0 if all(result.complete for result in done.results) else 1


def _inspect(args: argparse.Namespace) -> int:
    from r1zero.eval.inspect_log import write_logs

    paths = write_logs(Path(args.inspect), Path(args.out) if args.out else None)
    for path in paths:
        print(path)
    print(f"view them: inspect view --log-dir {paths[0].parent}")
    return 0


def _list() -> int:
    from r1zero.eval.benchmarks import BENCHMARKS
    from r1zero.eval.protocols import PROTOCOLS

    print("benchmarks (--suite)")
    for entry in BENCHMARKS.values():
        hub = " ".join(part for part in (entry.hub, entry.config, entry.split) if part)
        print(
            f"  {entry.name:<14}{entry.num_problems:>6}  {entry.verifier.name:<13}{hub}; local: {'/'.join(entry.files)}"
        )
    print("  reasoning_gym:TASK, tiny:arithmetic: generated, --size many")
    print(
        "  FILE.jsonl (.json, .gz, .parquet): rows with problem and answer (verifier math) or problem and tests (code)"
    )
    print("\nprotocols (--protocol)")
    for p in PROTOCOLS.values():
        k = ", ".join(f"{kind} {count}" for kind, count in p.k.items())
        print(f"  {p.name:<12}temperature {p.temperature:g}, top-p {p.top_p:g}, {p.max_tokens:,} tokens, k: {k}")
        print(f"{'':<14}{p.source}")
    return 0


def _decontaminate(args: argparse.Namespace) -> int:
    from r1zero.config import DataConfig
    from r1zero.data.datasets import load_problems
    from r1zero.eval import benchmarks
    from r1zero.eval.decontaminate import find_overlaps

    if not args.train or not args.suite:
        raise UserError("decontaminate needs --train FILE and --suite BENCHMARKS")
    train = []
    for source in args.train:
        data = DataConfig(source=source, prompt_field=args.prompt_field, answer_field="")
        train += load_problems(data)
    found = 0
    for name in _names(args.suite):
        loaded = benchmarks.load(name, data_dir=args.data_dir, limit=args.limit)
        hits = find_overlaps(train, loaded.problems, ngram=args.ngram)
        hits = [hit for hit in hits if hit.coverage >= args.min_coverage]
        found += len(hits)
        print(
            f"{loaded.name}: {len({hit.benchmark_id for hit in hits})} of {len(loaded.problems)} problems share "
            f"{args.ngram} words in a row with {len({hit.train_id for hit in hits})} of {len(train)} training problems"
        )
        for hit in hits:
            print(
                f"  {hit.benchmark_id}  {hit.train_id}  covered {hit.coverage:.0%}  {hit.num_words} words: "
                f"{hit.shared[:100]}"
            )
    return 1 if found else 0


def run_compare(args: argparse.Namespace) -> int:
    """`r1zero compare A B`."""
    from rich.table import Table

    from r1zero.eval.compare import compare

    with _file_errors():
        report = compare(Path(args.a), Path(args.b), force=args.force, seed=args.seed, draws=args.draws)
    for line in report.unlike:
        print(f"UNLIKE: {line}")
    for line in report.notes:
        print(f"note: {line}")
    summary = Table("benchmark", "problems", "A", "B", "B - A", "95% interval", "p", "better", "worse")
    for c in report.comparisons:
        low, high = c.paired.ci95
        summary.add_row(
            c.name,
            str(c.num_problems),
            f"{c.a:.1%}",
            f"{c.b:.1%}",
            f"{c.paired.difference * 100:+.1f}",
            f"{low * 100:+.1f} to {high * 100:+.1f}",
            f"{c.paired.p_value:.2g}",
            str(c.better),
            str(c.worse),
        )
    _console().print(summary)
    for c in report.comparisons:
        if c.not_compared:
            print(f"{c.name}: {c.not_compared} problems left out: a side could not grade all their samples")
        for q in c.changed[: args.show]:
            print(f"  {c.name} {q.problem_id}: {q.a:.0%} -> {q.b:.0%}  {' '.join(q.prompt.split())[:80]}")
        if len(c.changed) > args.show:
            print(f"  ... and {len(c.changed) - args.show} more changed (--show N)")
    return 0


def _print_results(results: list[EvalResult], shown: Any, warnings: Callable[[EvalResult], list[str]]) -> None:
    _console().print(shown)
    for result in results:
        for warning in warnings(result):
            print(f"warning: {warning}")


def _console() -> Console:
    """A table in a log file is not cut to the 80 columns of a terminal that is not there."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


class _Bar:
    """Progress on stderr: a bar a benchmark."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._tasks: dict[str, Any] = {}

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)

    def update(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
