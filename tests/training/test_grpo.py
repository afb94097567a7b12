"""The GRPO loop on a small random model: exactness under splitting, refills, the reference, resume."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

from r1zero import prompts
from r1zero.algorithms import losses
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import DataConfig, GRPOConfig, LengthSwitch, OptimizerConfig, recipe
from r1zero.data import datasets
from r1zero.errors import UserError
from r1zero.models.policy import Policy, Row, add_lora
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.rollout.weights import named_weights
from r1zero.runs.folder import read_rollouts
from r1zero.training import offload as idle
from r1zero.training.batch import StepBatch
from r1zero.training.groups import ScoredGroup
from r1zero.training.grpo import GRPO, train_grpo
from r1zero.training.rollouts import max_tokens_at
from r1zero.training.updater import learning_rate
from r1zero.verifiers import VerifierPool
from tests import TESTS, data_parallel
from tests.tiny_models import char_tokenizer, save_model, tiny_llama

PROBLEMS = datasets.load_problems(DataConfig(source="tiny:arithmetic", size=64))


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(1) as pool:
        yield pool


def small(*overrides: str) -> GRPOConfig:
    config = recipe.load("tiny-cpu", ["--algorithm.prompts_per_step", "4", "--algorithm.group_size", "4", *overrides])
    assert isinstance(config, GRPOConfig)
    return config


def make(config: GRPOConfig, pool: VerifierPool, script: Any, lora_rank: int = 0, **scripted: Any) -> GRPO:
    tokenizer = char_tokenizer()
    model = tiny_llama()
    if lora_rank:
        config = dataclasses.replace(config, model=dataclasses.replace(config.model, lora_rank=lora_rank))
        add_lora(model, config.model)
    return GRPO(
        config,
        accelerator=Accelerator(cpu=True),
        policy=Policy(model),
        reference=Policy(tiny_llama()) if config.algorithm.beta > 0 else None,
        tokenizer=tokenizer,
        template=prompts.load("plain"),
        problems=PROBLEMS,
        engine=ScriptedEngine(script, tokenizer, **scripted),
        rewarder=Rewarder(config.reward, pool),
    )


def right(problem_index: int) -> str:
    return f"<think>x</think><answer>{PROBLEMS[problem_index].answer}</answer>"


def some_right(prompt: Sequence[int], i: int, j: int) -> str:
    """The first of each group is well formed, longer and longer; of prompt 3 all are empty of tags."""
    if i == 3:
        return "nothing"
    return f"<think>{'x' * (1 + 3 * i)}</think><answer>{j}</answer>" if j == 0 else "y" * (1 + 5 * j + i)


def gradient(grpo: GRPO, batch: StepBatch, rows: Sequence[Row], learns: list[int]) -> torch.Tensor:
    grpo.optimizer.zero_grad()
    totals = losses.StepTotals.of(batch.mask, max_tokens=max_tokens_at(grpo.config, 1))
    grpo.backward(rows, learns, batch, totals)
    return torch.cat([p.grad.flatten() for p in grpo.policy.parameters() if p.grad is not None])


def prepared(grpo: GRPO) -> tuple[StepBatch, list[Row], list[ScoredGroup]]:
    groups, _ = grpo.rollouts.draw(1)
    rows = [Row(prompt_ids=g.prompt_ids, completion_ids=c.token_ids) for g in groups for c in g.completions]
    return grpo.advantages(groups, rows), rows, groups


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
def test_the_gradient_is_the_same_for_any_micro_batches(pool: VerifierPool, aggregation: str) -> None:
    config = small("--algorithm.aggregation", aggregation, "--algorithm.beta", "0.05")
    grpo = make(config, pool, some_right)
    batch, rows, _ = prepared(grpo)
    everyone = list(range(len(rows)))
    whole = gradient(grpo, batch, rows, everyone)
    assert whole.norm() > 0.01
    for budget, order in ((1, everyone), (90, everyone), (64, everyone[::-1])):
        optimizer = dataclasses.replace(config.optimizer, micro_batch_tokens=budget)
        grpo.config = dataclasses.replace(config, optimizer=optimizer)
        assert torch.allclose(gradient(grpo, batch, rows, order), whole, rtol=1e-4, atol=1e-6)


def test_leaving_out_groups_of_equal_rewards_leaves_the_gradient_as_it_is(pool: VerifierPool) -> None:
    grpo = make(small(), pool, some_right)
    batch, rows, _ = prepared(grpo)
    learns = [i for i in range(len(rows)) if grpo._learns_from(batch, i)]
    assert learns == list(range(12))  # the fourth group is flat
    assert torch.allclose(gradient(grpo, batch, rows, learns), gradient(grpo, batch, rows, list(range(16))), atol=1e-7)


def test_an_equal_group_gives_no_gradient_at_all(pool: VerifierPool) -> None:
    grpo = make(small("--algorithm.skip_zero_variance", "false"), pool, ["same"])
    batch, rows, _ = prepared(grpo)
    assert gradient(grpo, batch, rows, list(range(16))).abs().max() == 0.0


def test_the_first_step_is_on_policy_and_the_gradient_is_that_of_the_advantage_weighted_logprobs(
    pool: VerifierPool,
) -> None:
    grpo = make(small("--algorithm.importance_correction", "none"), pool, some_right)
    batch, rows, _ = prepared(grpo)
    found = gradient(grpo, batch, rows, list(range(16)))
    # By hand: -1/16 sum_i A_i / T_i sum_t grad log pi, from plain forward passes.
    model = tiny_llama()
    total = torch.zeros(())
    for i, row in enumerate(rows):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1]
        taken = logits.log_softmax(-1)[torch.arange(len(row.completion_ids)), torch.tensor(row.completion_ids)]
        total = total - batch.advantages[i, 0] * taken.mean() / 16
    total.backward()  # type: ignore[no-untyped-call]
    by_hand = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert torch.allclose(found, by_hand, rtol=1e-3, atol=1e-6)


def test_dynamic_sampling_refills_with_mixed_groups_and_stops_at_the_bound(pool: VerifierPool) -> None:
    answers = {p.prompt: p.answer for p in PROBLEMS}

    def sometimes(prompt: Sequence[int], i: int, j: int) -> str:
        question = char_tokenizer().decode(list(prompt))
        return f"<answer>{answers[question] if j == 0 and i % 2 else '999'}</answer>"

    grpo = make(small("--algorithm.dynamic_sampling", "true"), pool, sometimes)
    groups, sampled = grpo.rollouts.draw(1)
    assert (len(groups), sampled) == (4, 8)  # half of them are mixed
    assert all(len({r.correct for r in g.rewards}) == 2 for g in groups)
    assert grpo.rollouts.consumed == 8
    never = make(small("--algorithm.dynamic_sampling", "true", "--algorithm.max_refills", "2"), pool, ["nothing"])
    assert [len(never.rollouts.draw(1)[0]), never.rollouts.consumed] == [0, 12]
    metrics, _, _ = never.step(1)  # nothing to learn from is a step without a gradient, not a crash
    assert metrics["optimizer/grad_norm"] == 0.0


def test_dropping_truncated_completions_takes_them_out_of_mean_and_denominator(pool: VerifierPool) -> None:
    config = small("--algorithm.drop_truncated", "true", "--sampling.max_tokens", "40")
    long = "z" * 60
    grpo = make(config, pool, lambda prompt, i, j: long if j == 3 else some_right(prompt, 0, j))
    batch, _, groups = prepared(grpo)
    assert [r.keep for r in groups[0].rewards] == [True, True, True, False]
    assert batch.mask.any(-1).reshape(4, 4)[:, 3].tolist() == [False] * 4
    # Rewards 0.2, 0, 0 among the kept: mean 0.0667, std 0.0943.
    assert batch.advantages.reshape(4, 4, -1)[0, :, 0].tolist() == pytest.approx(
        [1.4142, -0.7071, -0.7071, 0], abs=1e-3
    )


def test_the_reference_is_replaced_by_the_policy_every_so_many_steps(pool: VerifierPool) -> None:
    grpo = make(small("--algorithm.beta", "0.1", "--algorithm.reference_every", "2"), pool, some_right)
    assert grpo.reference is not None
    start = next(grpo.reference.parameters()).clone()
    grpo.step(1)
    assert torch.equal(next(grpo.reference.parameters()), start)
    metrics, _, _ = grpo.step(2)
    assert metrics["policy/kl"] > 0  # against the old reference
    assert torch.equal(next(grpo.reference.parameters()), next(grpo.model.parameters()))
    assert not torch.equal(next(grpo.reference.parameters()), start)
    assert grpo.reference_step == 2


def test_a_reference_can_be_replaced_by_a_policy_with_lora(pool: VerifierPool) -> None:
    config = small("--algorithm.beta", "0.1", "--algorithm.reference_every", "1", "--optimizer.lr", "1e-2")
    grpo = make(config, pool, some_right, lora_rank=4)
    assert isinstance(grpo.reference, Policy)
    grpo.step(1)
    merged = dict(named_weights(grpo.model.model))
    held = dict(grpo.reference.model.named_parameters())
    start = dict(tiny_llama().named_parameters())
    moved = [name for name in held if not torch.equal(held[name], start[name])]
    assert moved
    assert all("_proj" in name for name in moved)
    assert all(torch.allclose(held[name].float(), merged[name], atol=1e-6) for name in held)


def test_the_engine_sleeps_while_the_policy_trains_and_is_awake_after_the_step(
    pool: VerifierPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grpo = make(small(), pool, some_right)
    awake: list[bool] = []
    update = grpo.update

    def watched(*arguments: Any) -> dict[str, float]:
        awake.append(grpo.engine.awake)  # type: ignore[attr-defined]
        return update(*arguments)

    monkeypatch.setattr(grpo, "update", watched)
    grpo.step(1)
    assert awake == [False]
    assert grpo.engine.awake  # type: ignore[attr-defined]


def test_a_step_is_the_same_with_the_reference_and_the_optimizer_put_away_in_between(
    pool: VerifierPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small("--algorithm.beta", "0.1", "--algorithm.minibatches", "2", "--algorithm.reference_every", "1")
    weights = []
    moved: list[str] = []
    move = idle._move

    def watched(thing: idle.Thing, to: torch.device) -> None:
        moved.append(type(thing).__name__)
        move(thing, to)

    monkeypatch.setattr(idle, "_move", watched)
    for host in (None, torch.device("cpu")):
        grpo = make(config, pool, some_right)
        grpo.idle = idle.Idle(torch.device("cpu"), host)
        grpo.step(1)
        grpo.step(2)
        weights.append(torch.cat([p.detach().flatten() for p in grpo.policy.parameters()]))
    assert torch.equal(*weights)
    # A step: the reference there and away, then the optimizer there and away for each of two minibatches.
    assert moved == (["Policy"] * 2 + ["AcceleratedOptimizer"] * 4) * 2


def test_dropped_completions_count_in_no_mean(pool: VerifierPool) -> None:
    config = small("--algorithm.drop_truncated", "true", "--sampling.max_tokens", "40")
    good = "<think>x</think><answer>1</answer>"
    grpo = make(config, pool, lambda prompt, i, j: "z" * 60 if j == 3 else good)
    metrics, _, _ = grpo.step(1)
    assert metrics["reward/dropped"] == 4
    assert metrics["reward/mean"] == pytest.approx(0.2)
    assert metrics["group/reward_std"] == pytest.approx(0.0)
    assert metrics["group/zero_variance"] == 1.0


def test_a_gradient_that_is_not_finite_is_skipped_and_reported(pool: VerifierPool) -> None:
    grpo = make(small(), pool, some_right)
    with torch.no_grad():
        next(grpo.policy.parameters())[9, 0] = float("nan")
    before = [p.clone() for p in grpo.policy.parameters()]
    metrics, _, _ = grpo.step(1)
    assert metrics["optimizer/skipped"] == 1.0
    assert all(torch.equal(a, b) for a, b in zip(before[1:], list(grpo.policy.parameters())[1:], strict=True))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (OptimizerConfig(lr=1.0), [1.0, 1.0, 1.0]),
        (OptimizerConfig(lr=1.0, warmup_steps=2), [0.5, 1.0, 1.0]),
        (OptimizerConfig(lr=1.0, schedule="linear", min_lr=0.1), [0.7, 0.4, 0.1]),
        (OptimizerConfig(lr=1.0, schedule="cosine"), [0.75, 0.25, 0.0]),
    ],
)
def test_learning_rates(settings: OptimizerConfig, expected: list[float]) -> None:
    assert [learning_rate(settings, step, 3) for step in (1, 2, 3)] == pytest.approx(expected)


def test_the_length_limit_switches_at_its_step() -> None:
    config = dataclasses.replace(small(), length_switches=[LengthSwitch(step=3, max_tokens=200)])
    assert [max_tokens_at(config, step) for step in (1, 2, 3, 9)] == [96, 96, 200, 200]


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where `tests.data_parallel` left what it found on one process, and on each of two."""
    out = tmp_path_factory.mktemp("parallel") / "found"
    for processes in (1, 2):
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
        launch += ["--standalone", "-m", "tests.data_parallel", str(out)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(launch, capture_output=True, text=True, check=False, env=environment, timeout=240)
        assert done.returncode == 0, done.stderr
    return str(out)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(data_parallel.CASES))
def test_one_and_two_processes_have_the_same_gradient_and_metrics(parallel: str, case: str) -> None:
    one, first, second = (torch.load(f"{parallel}.{name}")[case] for name in ("0-of-1", "0-of-2", "1-of-2"))
    (gradient,) = one["gradients"]
    assert gradient.norm() > 0.01
    assert one["metrics"]["group/sampled"] == 8
    for two in (first, second):
        assert torch.allclose(two["gradients"][0], gradient, rtol=1e-4, atol=1e-6)
        assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-4, abs=1e-6)
        assert set(two["causes"]) == set(one["causes"])


@pytest.mark.slow
def test_a_run_on_two_processes_keeps_the_rollouts_of_both_and_resumes_to_the_bit(parallel: str) -> None:
    whole, resumed = (figures(Path(f"{parallel}.runs") / name) for name in ("whole", "resumed"))
    assert [row["step"] for row in whole] == [0, 1, 2, 3, 4]
    # Not the loss, which is 0 but for rounding where the policy has just sampled: two steps may round alike.
    assert len({row["optimizer/grad_norm"] for row in whole[1:]}) == 4
    assert resumed == whole
    rollouts = read_rollouts(Path(f"{parallel}.runs") / "whole" / "rollouts" / "step-000004.jsonl.zst")
    assert len(rollouts) == 16
    assert len({row["problem_id"] for row in rollouts}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("stage", list(data_parallel.EPOCH_STAGES))
def test_sft_dpo_and_reward_model_on_two_processes_have_the_metrics_of_one(parallel: str, stage: str) -> None:
    one, two = (figures(Path(f"{parallel}.epochs-of-{count}") / stage) for count in (1, 2))
    assert len(one) == len(two) >= 10  # three passes over 19 rows, 6 a step, and the evaluation before
    for single, double in zip(one, two, strict=True):
        if single["step"] == 1:  # the policy is its reference: which it prefers is rounding
            single.pop("dpo/accuracy", None), double.pop("dpo/accuracy", None)
        assert double == pytest.approx(single, rel=2e-4, abs=2e-6)


# -- whole runs ------------------------------------------------------------------------------------------------------


def figures(folder: Path) -> list[dict[str, Any]]:
    """A run's metrics without the times."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/") and not k.endswith("/seconds")} for row in rows]


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs `tiny-cpu` small, on a random model with the transformers engine; returns its metrics without the times."""
    model = tmp_path / "model"
    model.mkdir()
    save_model(model, tiny_llama())

    def run(name: str, *overrides: str, resume: bool = False) -> list[dict[str, Any]]:
        config = small(
            *("--model.path", str(model), "--run.root", str(tmp_path), "--run.name", name),
            *("--engine.name", "transformers", "--sampling.max_tokens", "16", "--run.trackers", "[]"),
            *("--eval.data.size", "8", "--eval.every", "2", "--reward.workers", "1", "--run.checkpoint_every", "2"),
            *("--reward.terms", '[{verifier: "tests.some_verifiers:short"}]', "--run.threads", "1"),
            *overrides,
        )
        train_grpo(config, resume=resume)
        return figures(tmp_path / name)

    return run


def test_a_resumed_run_has_the_metrics_of_the_uninterrupted_one_to_the_bit(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    more = ("--algorithm.beta", "0.05", "--algorithm.reference_every", "2", "--algorithm.minibatches", "2")
    whole = train("whole", "--run.steps", "6", *more)
    assert len({row["policy/loss"] for row in whole[1:]}) == 6  # something was learned from each step
    train("cut", "--run.steps", "4", *more)
    # As if killed in step 6, after step 5 was logged and while a checkpoint was being written.
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "policy/loss": 1.0}\n{"step": 6, "pol')
    (tmp_path / "cut" / "checkpoints" / ".writing-step-6").mkdir()
    assert train("cut", "--run.steps", "6", *more, resume=True) == whole


@pytest.mark.slow
def test_a_run_killed_in_its_backward_pass_or_in_writing_a_checkpoint_goes_on_to_the_bit() -> None:
    script = TESTS / "bench" / "kill_points.py"
    places = ["backward", "checkpoint: state"]
    command = [sys.executable, str(script), "--cases", "2", "--places", *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all equal to the bit" in done.stdout


def test_lora_trains_only_its_adapters_resumes_to_the_bit_and_is_saved_merged(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    more = ("--model.lora_rank", "4", "--optimizer.lr", "1e-2")
    whole = train("whole", "--run.steps", "4", *more)
    train("cut", "--run.steps", "2", *more)
    assert train("cut", "--run.steps", "4", *more, resume=True) == whole
    start = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    end = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoints" / "step-4").state_dict()
    assert set(start) == set(end)
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    assert moved == {name for name in start if "_proj" in name}


def test_a_second_run_in_the_folder_is_refused_and_a_complete_one_is_left_alone(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    before = train("once", "--run.steps", "2")
    with pytest.raises(UserError, match="holds a run already"):
        train("once", "--run.steps", "2")
    assert train("once", "--run.steps", "2", resume=True) == before
    with pytest.raises(UserError, match="nothing to resume"):
        train("never", resume=True)
    assert not (tmp_path / "never").exists()


def test_a_run_is_not_resumed_with_settings_that_change_its_numbers(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    train("begun", "--run.steps", "2")
    before = (tmp_path / "begun" / "config.yaml").read_text()
    with pytest.raises(UserError, match=r"optimizer\.lr 0\.0005, now 9\.0"):
        train("begun", "--run.steps", "4", "--optimizer.lr", "9", resume=True)
    assert (tmp_path / "begun" / "config.yaml").read_text() == before
    more = ("--optimizer.micro_batch_tokens", "512", "--run.checkpoint_every", "1", "--reward.workers", "2")
    assert len(train("begun", "--run.steps", "3", *more, resume=True)) == 4


def test_prompts_over_the_limit_are_refused_or_skipped_never_cut(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"prompts of tiny:arithmetic are over max_prompt_tokens=7"):
        train("long", "--data.max_prompt_tokens", "7")
    assert not (tmp_path / "long").exists()  # nothing half-written
    train("long", "--data.max_prompt_tokens", "7", "--data.too_long", "skip", "--run.steps", "1")


def test_held_out_problems_among_the_training_problems_are_refused(train: Callable[..., list[dict[str, Any]]]) -> None:
    with pytest.raises(UserError, match="held-out problems are also training problems"):
        train("leak", "--eval.data.split", "train")


def test_training_problems_that_touch_a_named_benchmark_are_refused(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    text = "In a box there are three red balls, four green balls and five blue ones; how many balls are in it?"
    row = json.dumps({"problem": text, "answer": "12"}) + "\n"
    (tmp_path / "mine.jsonl").write_text(row)
    (tmp_path / "bench.jsonl").write_text(row.replace("In a box", "In one box"))
    mine = ("--data.source", str(tmp_path / "mine.jsonl"), "--data.max_prompt_tokens", "200")
    with pytest.raises(UserError, match="share 10 words in a row"):
        train("leak", *mine, "--eval.decontaminate", f"[{tmp_path / 'bench.jsonl'}]")
    assert not (tmp_path / "leak").exists()


def test_sampling_that_cuts_the_distribution_is_refused(train: Callable[..., list[dict[str, Any]]]) -> None:
    with pytest.raises(UserError, match="top_p"):
        train("cut", "--sampling.top_p", "0.9")
