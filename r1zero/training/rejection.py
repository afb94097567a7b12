"""Rejection sampling: sample k completions of each problem, judge them, keep some as demonstrations or as pairs.

    for each batch of problems:
        sample k completions of each; verifiers and reward models judge them      `GroupSampler.draw`
        write them down                                                           rollouts/step-BATCH.jsonl.zst
    demonstrations: those that pass, best first, capped, no text twice            `selection.choose`      -> sft.jsonl
    pairs: the best against the worst                                             `selection.make_pairs`  -> pairs.jsonl

Nothing is trained: the stage's checkpoint is the model it sampled from, its product are the files. They are made from
the written samples alone, so a run killed at any moment, resumed, leaves the same bytes; a batch under way is drawn
again as it was, with its own seed.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1zero.algorithms.rejection_selection import Candidate, Pair, balanced, choose, make_pairs
from r1zero.algorithms.rewards import reward_metrics
from r1zero.config import RejectionSamplingConfig
from r1zero.data import datasets, preferences
from r1zero.data.messages import encode_response
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval import benchmarks
from r1zero.eval.decontaminate import require_clean
from r1zero.runs.folder import RunFolder, read_rollouts, write_atomically
from r1zero.runs.resume import find_run
from r1zero.runs.signals import stop_requests, stopped
from r1zero.runs.tracking import say
from r1zero.training.groups import ScoredGroup, check_judges, completion_rows, group_sampler
from r1zero.training.inputs import Base, load_base, longest_prompt, within_limit
from r1zero.verifiers import Outcome

SFT_FILE, PAIRS_FILE, RESULT_FILE = "sft.jsonl", "pairs.jsonl", "result.json"
PRODUCTS = (SFT_FILE, PAIRS_FILE)


@dataclass(frozen=True, kw_only=True)
class Inputs(Base):
    """What a run needs from outside, checked."""

    problems: list[Problem]
    extra: list[dict[str, Any]]
    """Rows for `sft.jsonl` that were not sampled."""
    skipped: int


def train_rejection_sampling(config: RejectionSamplingConfig, *, resume: bool = False) -> Path:
    """Sample what is left to sample and write the files; returns the folder of the model sampled from.

    Raises UserError for every mistake that is the user's to mend, before anything is written. Ctrl-C and SIGTERM end
    the run after the batch under way.
    """
    folder, _ = find_run(config, resume=resume)
    inputs = prepare(config)
    if (folder.path / RESULT_FILE).exists():
        say(f"{folder.path} is complete: {', '.join(name for name in PRODUCTS if (folder.path / name).exists())}")
        return inputs.path
    folder.open()
    try:
        _sample(config, inputs, folder)
        _write_products(config, inputs, folder)
    finally:
        folder.close()
    return inputs.path


def prepare(config: RejectionSamplingConfig) -> Inputs:
    """Load and check model, template, judges and data. Writes nothing."""
    problems = datasets.load_problems(config.data)
    for name in config.decontaminate:
        require_clean(problems, benchmarks.load(name, data_dir=config.data_dir).problems)
    base = load_base(config.model.path, config.template)
    check_judges(config.reward, config.engine, base.tokenizer)
    kept, skipped = within_limit(problems, config.data, base.template, base.tokenizer)
    extra = config.extra
    return Inputs(
        **vars(base),
        problems=kept,
        extra=preferences.demonstration_rows(extra, base.template, base.tokenizer) if extra.source else [],
        skipped=skipped,
    )


# -- samples ---------------------------------------------------------------------------------------------------------


def _sample(config: RejectionSamplingConfig, inputs: Inputs, folder: RunFolder) -> None:
    batches = [
        inputs.problems[start : start + config.batch_problems]
        for start in range(0, len(inputs.problems), config.batch_problems)
    ]
    done = _done(folder, len(batches))
    folder.forget_after(done)
    folder.write_config(config)
    folder.write_manifest(_manifest(config, inputs))
    say(f"run {folder.path}: {len(inputs.problems)} problems x {config.samples}, {done} of {len(batches)} batches done")
    if inputs.skipped:
        say(f"{inputs.skipped} prompts over the token limit are left out", style="yellow")
    if done == len(batches):
        return
    with (
        group_sampler(
            path=inputs.path,
            model=config.model,
            tokenizer=inputs.tokenizer,
            template=inputs.template,
            engine=config.engine,
            reward=config.reward,
            max_context=longest_prompt(inputs.problems, inputs) + config.sampling.max_tokens,
            threads=config.run.threads,
        ) as sampler,
        stop_requests() as stop,
    ):
        for number in range(done + 1, len(batches) + 1):
            sampling = sampler.sampling(config.sampling, batch_seed(config.run.seed, number))
            groups = sampler.draw(batches[number - 1], sampling, config.samples)
            folder.save_rollouts(number, _rows(groups, inputs))
            figures = reward_metrics([reward for group in groups for reward in group.rewards])
            folder.log({"step": number, "problems": len(groups), **figures})
            say(
                f"batch {number}/{len(batches)}  reward {figures.get('reward/mean', float('nan')):.3f}  "
                f"accuracy {figures.get('reward/accuracy', float('nan')):.3f}"
            )
            if stop.requested and number < len(batches):
                say(f"stopped after batch {number}: go on with --resume")
                raise stopped(stop.number)


def batch_seed(seed: int, number: int) -> int:
    """The seed of one batch, counted from 1."""
    return random.Random(f"rejection {seed} {number}").getrandbits(31)


def _done(folder: RunFolder, count: int) -> int:
    """How many batches, from the first on, have their samples and their line of metrics."""
    logged = {row["step"] for row in folder.metrics()}
    done = 0
    while done < count and done + 1 in logged and _batch_file(folder, done + 1).exists():
        done += 1
    return done


def _batch_file(folder: RunFolder, number: int) -> Path:
    return folder.path / "rollouts" / f"step-{number:06d}.jsonl.zst"


def _rows(groups: Sequence[ScoredGroup], inputs: Inputs) -> Iterator[dict[str, Any]]:
    """A row a completion, with everything the selection needs."""
    for row in completion_rows(groups, inputs.template, inputs.tokenizer):
        yield row | {"unfit": _unfit(row["completion"], row["question"], inputs)}


def _unfit(text: str, question: str, inputs: Inputs) -> str:
    """What a stage that trains on `text` would refuse it for; empty where it takes it."""
    try:
        encode_response(text, question, inputs.template, inputs.tokenizer)
    except UserError as error:
        return str(error)
    return ""


# -- products --------------------------------------------------------------------------------------------------------


def _write_products(config: RejectionSamplingConfig, inputs: Inputs, folder: RunFolder) -> None:
    """Both files from the written samples, then `result.json`, which says that all is done."""
    demonstrations: list[dict[str, Any]] = []
    pairs: list[tuple[Mapping[str, Any], Mapping[str, Any], Pair]] = []
    dropped: Counter[str] = Counter()
    no_pair: Counter[str] = Counter()
    samples = answered = 0
    for rows in _groups(folder):
        candidates = [_candidate(row) for row in rows]
        split = _split(rows[0]["question"], config.held_out_share)
        kept, reasons = choose(candidates, config.select, config.reward)
        demonstrations += [_demonstration(rows[c.index], split) for c in kept]
        samples, answered, dropped = samples + len(rows), answered + bool(kept), dropped + reasons
        if config.pairs.per_problem:
            found, reason = make_pairs(candidates, config.pairs, config.reward)
            pairs += [(rows[a.index], rows[b.index], (a, b)) for a, b in found]
            no_pair.update([reason] if reason else [])
    if config.pairs.balance_lengths:
        stays = balanced([pair for _, _, pair in pairs], config.run.seed)
        no_pair["balance"] = stays.count(False)
        pairs = [entry for entry, stay in zip(pairs, stays, strict=True) if stay]
    result: dict[str, Any] = {
        "problems": len(inputs.problems),
        "samples": samples,
        "kept": len(demonstrations),
        "problems_with_demonstrations": answered,
        "dropped": dict(sorted(dropped.items())),
        "extra": len(inputs.extra),
        "files": {},
    }
    _write(folder, SFT_FILE, [*demonstrations, *inputs.extra], result)
    if config.pairs.per_problem:
        longer = sum(a.num_tokens > b.num_tokens for _, _, (a, b) in pairs)
        result |= {"pairs": len(pairs), "chosen_longer": longer, "problems_without_pair": dict(sorted(no_pair.items()))}
        _write(folder, PAIRS_FILE, [_pair(a, b, config.held_out_share) for a, b, _ in pairs], result)
    write_atomically(folder.path / RESULT_FILE, json.dumps(result, indent=1) + "\n")
    print(summary(result))
    for name in result["files"]:
        print(f"file: {folder.path / name}")


def _groups(folder: RunFolder) -> Iterator[list[dict[str, Any]]]:
    """Each problem's rows, in the order of sampling."""
    for path in sorted((folder.path / "rollouts").glob("step-*.jsonl.zst")):
        group: list[dict[str, Any]] = []
        for row in read_rollouts(path):
            if row["sample"] == 0 and group:
                yield group
                group = []
            group.append(row)
        yield group


def _candidate(row: Mapping[str, Any]) -> Candidate:
    return Candidate(
        index=row["sample"],
        text=row["completion"],
        num_tokens=row["num_tokens"],
        truncated=row["finish_reason"] == "length",
        reward=row["reward"],
        outcomes={name: Outcome(verdict["outcome"]) for name, verdict in row["verdicts"].items()},
        unfit=row["unfit"],
    )


def _demonstration(row: Mapping[str, Any], split: str) -> dict[str, Any]:
    return {
        "prompt": row["question"],
        "response": row["completion"],
        "split": split,
        "problem_id": row["problem_id"],
        "sample": row["sample"],
        **_judgement(row),
    }


def _pair(chosen: Mapping[str, Any], rejected: Mapping[str, Any], held_out_share: float) -> dict[str, Any]:
    """`gap` is not called `margin`: that would be taken into a reward model's loss unasked."""
    return {
        "prompt": chosen["question"],
        "chosen": chosen["completion"],
        "rejected": rejected["completion"],
        "gap": chosen["reward"] - rejected["reward"],
        "split": _split(chosen["question"], held_out_share),
        "problem_id": chosen["problem_id"],
        "chosen_judgement": {"sample": chosen["sample"], **_judgement(chosen)},
        "rejected_judgement": {"sample": rejected["sample"], **_judgement(rejected)},
    }


def _judgement(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "reward": row["reward"],
        "verdicts": {name: verdict["outcome"] for name, verdict in row["verdicts"].items()},
        "scores": row["scores"],
        "num_tokens": row["num_tokens"],
    }


def _split(question: str, held_out_share: float) -> str:
    """By the text alone: no seed, no order brings a held-out question into training."""
    place = int.from_bytes(hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest()[:4], "big") / 2**32
    return "test" if place < held_out_share else "train"


def _write(folder: RunFolder, name: str, rows: Iterable[Mapping[str, Any]], result: dict[str, Any]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(folder.path / name, text)
    result["files"][name] = hashlib.sha256(text.encode()).hexdigest()


def summary(result: Mapping[str, Any]) -> str:
    """The counts, for a reader."""
    lines = [
        f"{result['samples']} samples of {result['problems']} problems: {result['kept']} kept, of "
        f"{result['problems_with_demonstrations']} problems"
        + (f"; {result['extra']} rows added" * bool(result["extra"]))
    ]
    if result["dropped"]:
        lines.append("dropped: " + ", ".join(f"{name} {count}" for name, count in result["dropped"].items()))
    if "pairs" in result:
        lines.append(f"{result['pairs']} pairs, the chosen one longer in {result['chosen_longer']}")
    if result.get("problems_without_pair"):
        lines.append(
            "without a pair: " + ", ".join(f"{name} {count}" for name, count in result["problems_without_pair"].items())
        )
    return "\n".join(lines)


def _manifest(config: RejectionSamplingConfig, inputs: Inputs) -> dict[str, Any]:
    return {
        "stage": config.stage,
        "seed": config.run.seed,
        "template": {"name": inputs.template.name, "fingerprint": inputs.template.fingerprint},
        "model": config.model.path,
        "data": {"problems": len(inputs.problems), "fingerprint": datasets.fingerprint(inputs.problems)},
    }
