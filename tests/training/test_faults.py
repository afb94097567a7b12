"""Faults of a long run, each made to happen: it ends with the right number of steps, or in one line, and what it has
learnt stays in a checkpoint that loads."""

import contextlib
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn
from transformers import AutoModelForCausalLM

from r1zero import prompts
from r1zero.algorithms import losses
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import DataConfig, GRPOConfig, SFTConfig, recipe
from r1zero.data import datasets
from r1zero.errors import REQUEUE, UserError
from r1zero.models.policy import Policy
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.runs import checkpoint as saved
from r1zero.training import micro_budget, policy_update
from r1zero.training.grpo import GRPO, train_grpo
from r1zero.training.sft import train_sft
from r1zero.verifiers import VerifierPool
from tests.rollout.test_fleet import Server
from tests.tiny_models import char_tokenizer, save_model, tiny_llama

TERMS = '[{verifier: "tests.some_verifiers:short"}]'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    return save_model(folder, tiny_llama())


def settings(model: str, root: Path, name: str, steps: int, *more: str) -> list[str]:
    return [
        *("--model.path", model, "--run.root", str(root), "--run.name", name, "--run.steps", str(steps)),
        *("--algorithm.prompts_per_step", "4", "--algorithm.group_size", "4", "--sampling.max_tokens", "12"),
        *("--engine.name", "transformers", "--run.trackers", "[]", "--run.threads", "1", "--reward.workers", "1"),
        *("--eval.data.source", "", "--run.checkpoint_every", "1", "--reward.terms", TERMS, *more),
    ]


def grpo(model: str, root: Path, name: str, steps: int, *more: str, resume: bool = False) -> Path:
    config = recipe.load("tiny-cpu", settings(model, root, name, steps, *more))
    assert isinstance(config, GRPOConfig)
    return train_grpo(config, resume=resume)


def started(model: str, root: Path, name: str, steps: int, *more: str) -> "subprocess.Popen[str]":
    """The same as a command."""
    command = [sys.executable, "-m", "r1zero", "train", "tiny-cpu", *settings(model, root, name, steps, *more)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "time/" not in k and "seconds" not in k} for line in lines]


def loads(checkpoint: Path) -> bool:
    weights = AutoModelForCausalLM.from_pretrained(checkpoint).state_dict().values()
    return all(bool(w.isfinite().all()) for w in weights)


def checkpoints(folder: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*"))


# -- memory ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def address_space(spare: int) -> Iterator[None]:
    """Within, this process gets `spare` bytes and no more: the system's own refusal, not ours."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class _Taking(torch.autograd.Function):
    """Asks for 1 MB a token in the backward pass, as a larger model does."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        with address_space(96 << 20):
            torch.empty(gradient[..., 0].numel() << 20, dtype=torch.uint8)
        return gradient


def hungry(module: nn.Module) -> None:
    """At the first layer, whose turn in the backward pass comes when most of the gradient is there already."""
    (embedding,) = (m for m in module.modules() if isinstance(m, nn.Embedding))
    embedding.register_forward_hook(lambda _, __, out: _Taking.apply(out) if out.requires_grad else out)


def gradient_of_a_step(take: bool, capsys: pytest.CaptureFixture[str]) -> tuple[torch.Tensor, str]:
    arguments = settings("", Path(), "x", 2, "--optimizer.micro_batch_tokens", "512", "--optimizer.max_grad_norm", "0")
    config = recipe.load("tiny-cpu", arguments)
    assert isinstance(config, GRPOConfig)
    tokenizer, policy = char_tokenizer(), Policy(tiny_llama(), trained=True)
    if take:
        hungry(policy)
    with VerifierPool(1) as pool:
        stage = GRPO(
            config,
            accelerator=Accelerator(cpu=True),
            policy=policy,
            reference=None,
            tokenizer=tokenizer,
            template=prompts.load("plain"),
            problems=datasets.load_problems(DataConfig(source="tiny:arithmetic", size=64)),
            engine=ScriptedEngine(lambda prompt, i, j: "x" * (1 + 2 * j + i), tokenizer),
            rewarder=Rewarder(config.reward, pool),
        )
        kept: list[torch.Tensor] = []
        step = stage.optimizer.step

        def keep(*given: Any) -> Any:
            kept.append(torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]))
            return step(*given)

        stage.optimizer.step = keep  # type: ignore[method-assign]
        stage.step(1)
    return kept[0], capsys.readouterr().err


def test_memory_that_runs_out_in_a_backward_pass_halves_the_micro_batch_and_leaves_the_gradient(
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, said = gradient_of_a_step(False, capsys)
    assert whole.norm() > 0.01
    assert "out of memory" not in said
    split, said = gradient_of_a_step(True, capsys)
    assert said.count("out of memory in a micro-batch of") == 3  # 512, 256, 128
    assert "set optimizer.micro_batch_tokens to 64 to begin with it" in said
    assert torch.allclose(split, whole, rtol=1e-4, atol=1e-6)


def test_sft_without_the_memory_learns_the_same_in_smaller_pieces(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str) -> list[dict[str, Any]]:
        more = ["--run.root", str(tmp_path), "--run.name", name, "--run.steps", "2", "--run.trackers", "[]"]
        more += ["--eval.data.source", "", "--held_out.source", "", "--batch_size", "8", "--run.threads", "1"]
        more += ["--model.path", model, "--data.size", "32", "--optimizer.micro_batch_tokens", "1024"]
        config = recipe.load("sft-tiny-cpu", more)
        assert isinstance(config, SFTConfig)
        train_sft(config)
        return rows(tmp_path / name)

    whole = run("whole")
    made = Policy.__init__

    def make(self: Policy, *given: Any, **options: Any) -> None:
        made(self, *given, **options)
        hungry(self)

    monkeypatch.setattr(Policy, "__init__", make)
    split = run("split")
    assert "out of memory in a micro-batch of 1024 tokens" in capsys.readouterr().err
    for one, other in zip(whole, split, strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)


def test_where_no_micro_batch_is_small_enough_the_setting_is_named() -> None:
    budget, forgotten = micro_budget.MicroBudget(8, 1), []
    seen = []

    def run() -> None:
        seen.append(budget.tokens)
        with address_space(16 << 20):
            torch.empty(1 << 30, dtype=torch.uint8)

    with pytest.raises(UserError, match=r"out of memory in a micro-batch of 1 tokens .*optimizer\.micro_batch_tokens"):
        budget.fitting(run, lambda: forgotten.append(True))
    assert seen == [8, 4, 2, 1]
    assert len(forgotten) == 3
    with pytest.raises(RuntimeError, match="another"):  # no lack of memory
        budget.fitting(lambda: (_ for _ in ()).throw(RuntimeError("another")), lambda: None)
    with pytest.raises(UserError, match=r"set optimizer\.micro_batch_tokens to 4"):  # others wait for this process
        micro_budget.MicroBudget(8, 2).fitting(run, lambda: None)


# -- numbers that are none -------------------------------------------------------------------------------------------


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], None]:
    """Adds something to the loss, by the number of losses made before."""
    right = policy_update.objective

    def spoil(by: Callable[[int], float]) -> None:
        made = []

        def objective(*given: Any) -> tuple[torch.Tensor, losses.Metrics]:
            loss, metrics = right(*given)
            made.append(loss)
            # Not a factor: the gradient of `loss + inf` is finite, and the step is none all the same.
            wrong = by(len(made) - 1)
            loss = loss * wrong if math.isnan(wrong) else loss + wrong
            return loss, {**metrics, "policy/loss": loss.detach()}

        monkeypatch.setattr(policy_update, "objective", objective)

    return spoil


def test_a_step_of_a_loss_that_is_no_number_is_skipped_and_counted_and_the_run_goes_on(
    model: str, tmp_path: Path, spoilt: Callable[[Callable[[int], float]], None]
) -> None:
    spoilt(lambda made: {1: math.nan, 2: math.inf}.get(made, 0.0))
    grpo(model, tmp_path, "run", 4)
    assert [row["optimizer/skipped"] for row in rows(tmp_path / "run")] == [0, 1, 1, 0]
    assert math.isinf(rows(tmp_path / "run")[2]["policy/loss"])
    assert math.isfinite(rows(tmp_path / "run")[2]["optimizer/grad_norm"])
    assert loads(tmp_path / "run" / "checkpoints" / "step-4")


def test_after_so_many_skipped_steps_the_run_ends_and_the_last_good_checkpoint_stays(
    model: str, tmp_path: Path, spoilt: Callable[[Callable[[int], float]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt(lambda made: math.nan if made >= 2 else 0.0)
    more = ("--optimizer.max_skipped", "3", "--run.keep_checkpoints", "1")
    with pytest.raises(UserError, match=r"not finite in steps 3 to 5: the last checkpoint from before is .*step-2"):
        grpo(model, tmp_path, "run", 9, *more)
    assert [row["optimizer/skipped"] for row in rows(tmp_path / "run")] == [0, 0, 1, 1, 1]
    assert checkpoints(tmp_path / "run") == [2]
    monkeypatch.undo()
    whole = grpo(model, tmp_path, "run", 6, *more, resume=True)
    assert whole.name == "step-6"
    assert loads(whole)
    assert [row["step"] for row in rows(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]


# -- the system ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_leaves_a_checkpoint_and_a_code_that_says_start_it_again(model: str, tmp_path: Path) -> None:
    process = started(model, tmp_path, "run", 400)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("step 2/"):
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == REQUEUE == 75
    assert "go on with --resume" in err
    assert "Traceback" not in err
    last = checkpoints(tmp_path / "run")[-1]
    assert loads(tmp_path / "run" / "checkpoints" / f"step-{last}")
    grpo(model, tmp_path, "run", last + 1, resume=True)
    grpo(model, tmp_path, "whole", last + 1)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_a_corrupt_newest_checkpoint_costs_its_own_steps_and_says_so(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grpo(model, tmp_path, "whole", 4)
    grpo(model, tmp_path, "run", 3)
    weights = tmp_path / "run" / "checkpoints" / "step-3" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(data)
    saved._corrupt_files.cache_clear()
    capsys.readouterr()
    last = grpo(model, tmp_path, "run", 4, resume=True)
    said = capsys.readouterr().err
    assert re.search(r"checkpoint .*step-3 is corrupt \(model\.safetensors", said)
    assert "steps 3 to 4" in said
    assert loads(last)
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_a_clock_that_jumps_changes_no_duration(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    jumps: list[float] = []

    def jumping() -> float:
        jumps.append(now + 86400 * (-1) ** len(jumps))
        return jumps[-1]

    monkeypatch.setattr(time, "time", jumping)
    began = time.monotonic()
    grpo(model, tmp_path, "run", 3)
    took = time.monotonic() - began
    assert abs(time.time() - time.time()) > 86400
    found = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(found) == 3
    for row in found:
        seconds = [v for k, v in row.items() if (k.startswith("time/") and "tokens" not in k) or k.endswith("/seconds")]
        assert len(seconds) > 4
        assert all(0 <= value <= took for value in seconds)


def test_nothing_of_ours_measures_by_the_clock_on_the_wall() -> None:
    house = Path(__file__).parents[2]
    for folder in ("r1zero", "verifiers", "eval", "prompts"):
        for path in (house / folder).rglob("*.py"):
            assert not re.search(r"\btime\.time\(", path.read_text(encoding="utf-8")), path


def test_a_run_off_the_main_thread_ends_as_any_other(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[Path] = []
    thread = threading.Thread(target=lambda: found.append(grpo(model, tmp_path, "run", 2)))
    thread.start()
    thread.join(timeout=120)
    assert found[0].name == "step-2"
    assert loads(found[0])
    assert "not in the main thread" in capsys.readouterr().err


def bubblewrap() -> bool:
    command = ["bwrap", "--dev-bind", "/", "/", "--size", "100000", "--tmpfs", "/mnt", "true"]
    return (
        shutil.which("bwrap") is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize("trackers", ["[]", "[tensorboard]"])
def test_a_full_disk_is_a_line_and_the_last_checkpoint_stays(model: str, tmp_path: Path, trackers: str) -> None:
    if not bubblewrap():
        pytest.skip("no bubblewrap to make a small disk with")
    root = tmp_path / "small"
    root.mkdir()
    train = [sys.executable, "-m", "r1zero", "train", "tiny-cpu", *settings(model, root, "run", 6)]
    train += ["--run.trackers", trackers, "--run.keep_checkpoints", "1"]
    look = (
        "import sys; from pathlib import Path; from tests.training.test_faults import *\n"
        f"folder = Path({str(root / 'run')!r})\n"
        "print(checkpoints(folder), [loads(path) for path in (folder / 'checkpoints').glob('step-*')],"
        " list((folder / 'checkpoints').glob('.*')))"
    )
    # 4 MB a checkpoint: the second one does not fit beside the first.
    small = ["bwrap", "--dev-bind", "/", "/", "--size", str(6 << 20), "--tmpfs", str(root)]
    script = f'"$@"; echo code $?; {sys.executable} -c "$LOOK"'
    done = subprocess.run(
        [*small, "bash", "-c", script, "bash", *train],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LOOK": look},
        timeout=200,
    )
    assert "code 2\n[1] [True] []\n" in done.stdout, done.stdout + done.stderr
    assert "free some disk space, then go on" in done.stderr
    assert "Traceback" not in done.stderr


# -- others' processes -----------------------------------------------------------------------------------------------


def test_a_verifier_that_kills_its_worker_costs_its_own_verdicts(model: str, tmp_path: Path) -> None:
    terms = '[{verifier: "tests.some_verifiers:short_or_dead"}]'
    last = grpo(model, tmp_path, "run", 3, "--reward.terms", terms, "--reward.max_error_share", "1")
    found = rows(tmp_path / "run")
    assert [row["step"] for row in found] == [1, 2, 3]
    assert sum(row["reward/tests.some_verifiers:short_or_dead/error"] for row in found) > 0
    assert sum(row["reward/dropped"] for row in found) > 0
    assert loads(last)


def test_a_rollout_server_that_dies_in_mid_run_costs_no_step(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Server(), Server()
    right, steps = GRPO.step, []

    def step(self: GRPO, number: int) -> Any:
        steps.append(number)
        if number == 2:
            two.stop()
        return right(self, number)

    monkeypatch.setattr(GRPO, "step", step)
    more = ("--engine.name", "vllm-server", "--engine.url", f"{one.url},{two.url}")
    more += ("--engine.sync_dir", str(tmp_path / "sync"))
    last = grpo(model, tmp_path, "run", 4, *more)
    one.stop()
    assert [row["group/sampled"] for row in rows(tmp_path / "run")] == [4, 4, 4, 4]
    assert steps == [1, 2, 3, 4]
    assert two.served
    assert len(one.served) + len(two.served) == 4 * 16  # seeds: each completion of each step, none twice
    assert loads(last)


def test_the_only_rollout_server_s_death_is_a_line_and_the_run_goes_on_when_it_is_back(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    right = GRPO.step

    def step(self: GRPO, number: int) -> Any:
        if number == 3:
            server.stop()
        return right(self, number)

    monkeypatch.setattr(GRPO, "step", step)
    more = ("--engine.name", "vllm-server", "--engine.url", server.url, "--engine.sync_dir", str(tmp_path / "sync"))
    with pytest.raises(UserError, match="no vLLM server answers at"):
        grpo(model, tmp_path, "run", 4, *more)
    assert checkpoints(tmp_path / "run") == [1, 2]
    monkeypatch.undo()
    again = Server()
    more = (*more[:3], again.url, *more[4:])
    last = grpo(model, tmp_path, "run", 4, *more, resume=True)
    again.stop()
    assert [row["step"] for row in rows(tmp_path / "run")] == [1, 2, 3, 4]
    assert loads(last)
