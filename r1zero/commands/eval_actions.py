"""What `r1zero eval` does besides sampling: grade again, write Inspect logs, list, look for contamination."""

from __future__ import annotations

import argparse
from pathlib import Path

from r1zero.commands.output import name_list, print_results
from r1zero.errors import UserError


def regrade(args: argparse.Namespace) -> int:
    from r1zero.eval import regrade as again
    from r1zero.eval.output import table, warnings
    from r1zero.verifiers import VerifierPool

    with VerifierPool(args.workers or None, 30.0) as pool:
        done = again.regrade(Path(args.regrade), pool, out=Path(args.out) if args.out else None, verifier=args.verifier)
    print_results(list(done.results), table(done.results, f"{args.regrade}, graded again"), warnings)
    print(f"\n{len(done.changes)} verdicts changed")
    for change in done.changes[:20]:
        old, new = change.before, change.after
        print(f"  {old.problem_id} #{old.index}: {old.outcome} ({old.reason}) -> {new.outcome} ({new.reason})")
    print(f"folder: {done.folder}")
    return 0 if all(result.complete for result in done.results) else 1


def inspect(args: argparse.Namespace) -> int:
    from r1zero.eval.inspect_log import write_logs

    paths = write_logs(Path(args.inspect), Path(args.out) if args.out else None)
    for path in paths:
        print(path)
    print(f"view them: inspect view --log-dir {paths[0].parent}")
    return 0


def list_all() -> int:
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


def decontaminate(args: argparse.Namespace) -> int:
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
    for name in name_list(args.suite):
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
