"""Kills a GRPO run at random points, resumes it, and compares it with the run that was never killed, to the bit.

    python tests/bench/kill_points.py [--cases 20] [--seed 0] [--places backward "checkpoint: state"]

The run is small (a random model of 0.3 M parameters, the transformers engine) and has all that a resume must bring
back: dynamic sampling with refills, a reference that is replaced, two minibatches a step, evaluations, checkpoints that
are pruned. It is first run to its end, counting how often it comes to each place; a case is a place and one of those
times, drawn at random, at which the process gets SIGKILL. Where something is being written, half of it is written
first. Equal means: every line of metrics.jsonl (but for times), every rollout, the last weights; and every checkpoint
that is there, after the kill too, can be loaded. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from r1zero.algorithms.rewards import Rewarder
from r1zero.config import GRPOConfig, recipe
from r1zero.models.policy import Policy
from r1zero.rollout.hf import TransformersEngine
from r1zero.runs import checkpoint
from r1zero.runs import folder as run
from r1zero.training import loop
from r1zero.training.grpo import GRPO, train_grpo
from tests.tiny_models import save_model, tiny_llama

SETTINGS = [
    *("--algorithm.prompts_per_step", "4", "--algorithm.group_size", "4", "--algorithm.minibatches", "2"),
    *("--algorithm.dynamic_sampling", "true", "--algorithm.max_refills", "3"),
    *("--algorithm.beta", "0.05", "--algorithm.reference_every", "2"),
    *("--engine.name", "transformers", "--sampling.max_tokens", "12", "--run.trackers", "[]"),
    *("--eval.data.size", "4", "--eval.every", "3", "--data.size", "64", "--reward.workers", "1"),
    *("--run.steps", "6", "--run.checkpoint_every", "2", "--run.keep_checkpoints", "1"),
    *("--run.threads", "1"),
    *("--reward.terms", '[{verifier: "tests.some_verifiers:short"}]'),
]
PLACES = (
    *("rollout", "verify", "backward", "optimizer", "reference", "metrics", "rollouts file", "config"),
    *("checkpoint: weights", "checkpoint: state", "checkpoint: flush", "checkpoint: rename", "checkpoint: after"),
    "checkpoint: removal",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--places", nargs="*", choices=PLACES, default=PLACES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "model").mkdir()
        save_model(root / "model", tiny_llama())
        status, counts = train(root, "whole", None)
        if status != 0:
            raise SystemExit(f"the run fails without being killed: {(root / 'whole.log').read_text()[-2000:]}")
        sampled = [row.get("group/sampled", 0.0) for row in metrics(root / "whole")]
        print(f"{options.cases} kills of a run of {len(sampled) - 1} steps, {sampled[1:]} groups sampled a step")
        print(f"{'place':22}{'time':>12}  {'last line':>9}  {'resumed from':>12}  {'same':>5}{'seconds':>9}")
        failed = 0
        missed = [place for place in options.places if not counts[place]]
        if missed:
            raise SystemExit(f"the run never comes to {', '.join(missed)}")
        # Every place once before any comes again, in another order each time.
        places: list[str] = []
        while len(places) < options.cases:
            places += draw.sample(options.places, len(options.places))
        for place in places[: options.cases]:
            nth = draw.randint(1, counts[place])
            began = time.perf_counter()
            folder = root / "cut"
            status, _ = train(root, "cut", (place, nth))
            if status != -signal.SIGKILL:
                raise SystemExit(f"{place} {nth}: not killed but {status}: {(root / 'cut.log').read_text()[-2000:]}")
            last = metrics(folder)[-1:]
            kept = checkpoint.latest_checkpoint(folder / "checkpoints")
            damaged = [path.name for path in (folder / "checkpoints").glob("step-*") if not loads(path)]
            status, _ = train(root, "cut", None)
            wrong = f"exit {status}" if status else difference(root / "whole", folder)
            wrong = f"damaged: {damaged}" if damaged else wrong
            print(
                f"{place:22}{f'{nth} of {counts[place]}':>12}  {last[0]['step'] if last else '-':>9}  "
                f"{kept.name if kept else 'the beginning':>13}  {'no' if wrong else 'yes':>5}"
                f"{time.perf_counter() - began:9.1f}  {wrong}",
                flush=True,
            )
            if status:
                print((root / "cut.log").read_text()[-2000:])
            failed += bool(wrong)
            shutil.rmtree(folder)
    print("all equal to the bit" if not failed else f"{failed} of {options.cases} differ")
    return int(failed > 0)


def train(root: Path, name: str, kill: tuple[str, int] | None) -> tuple[int, Counter[str]]:
    """Begin the run, or go on with it, in a process of its own; its exit status, and how often it was where."""
    counts = root / "counts.json"
    counts.unlink(missing_ok=True)
    pid = os.fork()  # not a new interpreter: importing everything takes longer than the run
    if pid == 0:
        status = 1
        with (root / f"{name}.log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                places = Places(kill)
                places.watch()
                given = ["--model.path", str(root / "model"), "--run.root", str(root), "--run.name", name]
                config = recipe.load("tiny-cpu", [*SETTINGS, *given])
                assert isinstance(config, GRPOConfig)
                train_grpo(config, resume=(root / name / "config.yaml").exists())
                counts.write_text(json.dumps(places.counts))
                status = 0
            except Exception:  # noqa: BLE001 -- the child must end here, whatever it was
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
    _, code = os.waitpid(pid, 0)
    found = Counter(json.loads(counts.read_text())) if counts.exists() else Counter()
    return os.waitstatus_to_exitcode(code), found


class Places:
    """Counts how often a run comes to each place, and kills it at one of those times."""

    def __init__(self, kill: tuple[str, int] | None) -> None:
        self.kill = kill
        self.counts: Counter[str] = Counter()

    def at(self, place: str, first: Callable[[], Any] = lambda: None) -> None:
        """`first`: what to do of the place's work before the kill."""
        self.counts[place] += 1
        if self.kill == (place, self.counts[place]):
            first()
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: Any, name: str, place: str, half: Callable[..., Any] | None = None) -> None:
        """Come to `place` whenever `owner.name` is called; `half`, of its arguments, does half of what it does."""
        call = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            self.at(place, (lambda: half(*arguments, **options)) if half else lambda: None)
            return call(*arguments, **options)

        setattr(owner, name, watched)

    def watch(self) -> None:
        self.before(TransformersEngine, "_forward", "rollout")
        self.before(Rewarder, "collect", "verify")
        self.before(torch.optim.AdamW, "step", "optimizer")
        self.before(checkpoint, "_fsync", "checkpoint: flush")
        self.before(loop, "prune", "checkpoint: after")
        self.before(GRPO, "after_update", "reference", half_of_the_reference)
        self.before(run.RunFolder, "log", "metrics", half_a_line)
        self.before(run.RunFolder, "_save_rows", "rollouts file", half_a_rollouts_file)
        self.before(run, "write_atomically", "config")
        self.before(shutil, "rmtree", "checkpoint: removal", half_a_removal)
        self.before(torch, "save", "checkpoint: state", half_a_file)
        from transformers import LlamaForCausalLM

        self.before(LlamaForCausalLM, "save_pretrained", "checkpoint: weights", half_of_the_weights)
        rename = Path.rename

        def renamed(path: Path, target: Path) -> Path:
            if path.name.startswith(".writing-"):
                self.at("checkpoint: rename")
            return rename(path, target)

        Path.rename = renamed  # type: ignore[assignment,method-assign]
        made = Policy.__init__

        def hooked(policy: Policy, model: Any, **options: Any) -> None:
            made(policy, model, **options)
            weight = model.model.layers[1].self_attn.q_proj.weight  # the middle of the backward pass
            weight.register_hook(lambda _: self.at("backward"))

        Policy.__init__ = hooked  # type: ignore[assignment,method-assign]


def half_a_file(value: Any, path: Path) -> None:
    buffer = io.BytesIO()
    torch.serialization.save(value, buffer)
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])


def half_of_the_weights(model: Any, folder: Path, **_: Any) -> None:
    model.config.save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(bytes(100_000))


def half_a_line(folder: run.RunFolder, row: dict[str, Any]) -> None:
    text = json.dumps(row)
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write(text[: len(text) // 2])


def half_a_rollouts_file(folder: run.RunFolder, kind: str, step: int, rows: Any) -> None:
    (folder.path / kind).mkdir(exist_ok=True)
    (folder.path / kind / f"step-{step:06d}.jsonl.tmp").write_bytes(b"half")


def half_a_removal(path: Path, **_: Any) -> None:
    """The weights are gone, the rest is there."""
    for weights in Path(path).glob("*.safetensors"):
        weights.unlink()


def half_of_the_reference(grpo: GRPO, step: int, figures: dict[str, float]) -> None:
    assert isinstance(grpo.reference, Policy)
    with torch.no_grad():
        next(grpo.reference.parameters()).zero_()


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The run's figures without the times; a last line that was cut is left out."""
    path = folder / "metrics.jsonl"
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return [{k: v for k, v in row.items() if not k.startswith("time/") and not k.endswith("/seconds")} for row in rows]


def without_times(value: Any) -> Any:
    """Rows of a run's files without the seconds that a verdict took."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def loads(folder: Path) -> bool:
    """Whether a checkpoint is whole: its weights and the trainer's state."""
    try:
        load_file(folder / "model.safetensors")
        torch.load(folder / "trainer" / "tensors.pt", weights_only=False)
    except (OSError, RuntimeError, SafetensorError):
        return False
    return (folder / "trainer" / "state.json").exists()


def difference(whole: Path, cut: Path) -> str:
    """What is not the same; empty: nothing."""
    one, two = metrics(whole), metrics(cut)
    if [row["step"] for row in one] != [row["step"] for row in two]:
        return f"steps {[row['step'] for row in two]}"
    for a, b in zip(one, two, strict=True):
        names = [name for name in a.keys() | b.keys() if a.get(name) != b.get(name)]
        if names:
            return f"step {a['step']}: {sorted(names)[:4]}"
    for kind in ("rollouts", "eval"):
        files = [sorted(path.name for path in (folder / kind).glob("*.zst")) for folder in (whole, cut)]
        if files[0] != files[1]:
            return f"files of {kind}: {files[1]}"
        for name in files[0]:
            if without_times(run.read_rollouts(whole / kind / name)) != without_times(
                run.read_rollouts(cut / kind / name)
            ):
                return f"{kind}/{name}"
    # The last checkpoint: between that and the removal of older ones a kill leaves more of them than were asked for.
    last = [str(checkpoint.latest_checkpoint(folder / "checkpoints")) for folder in (whole, cut)]
    if Path(last[0]).name != Path(last[1]).name:
        return f"last checkpoint {last[1]}"
    one_, two_ = (load_file(f"{folder}/model.safetensors") for folder in last)
    return "" if all(torch.equal(one_[name], two_[name]) for name in one_) else "weights"


if __name__ == "__main__":
    sys.exit(main())
