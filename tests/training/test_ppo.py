"""PPO on small random models: advantages against NumPy, where the score lands, exactness, adaptive KL, one backbone."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from r1zero import prompts
from r1zero.algorithms import losses
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import DataConfig, ModelConfig, PPOConfig, RewardModelConfig, recipe
from r1zero.data import datasets
from r1zero.errors import UserError
from r1zero.models.policy import Policy, Row, add_lora, load_model
from r1zero.models.reward_model import find_reward_model
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.training.batch import PPOBatch
from r1zero.training.ppo import PPO, steered_beta, train_ppo
from r1zero.training.ppo_models import Models, load_models
from r1zero.training.reward_model import train_reward_model
from r1zero.verifiers import VerifierPool
from tests.tiny_models import EOS, char_tokenizer, save_model, tiny_llama

PROBLEMS = datasets.load_problems(DataConfig(source="tiny:arithmetic", size=64))


@pytest.fixture(scope="module")
def pool() -> Iterator[VerifierPool]:
    with VerifierPool(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A base and the run folder of a reward model trained from it with LoRA."""
    root = tmp_path_factory.mktemp("ppo")
    base = root / "base"
    base.mkdir()
    save_model(base, tiny_llama())
    config = recipe.load(
        "rm-tiny-cpu",
        [
            *("--model.path", str(base), "--model.lora_rank", "4", "--run.root", str(root), "--run.name", "rm"),
            *("--data.size", "32", "--held_out.size", "16", "--run.steps", "3", "--run.trackers", "[]"),
            *("--batch_size", "8", "--optimizer.lr", "1e-2", "--run.threads", "1"),
        ],
    )
    assert isinstance(config, RewardModelConfig)
    train_reward_model(config)
    return base, root / "rm"


def small(folders: tuple[Path, Path], *overrides: str) -> PPOConfig:
    base, reward_model = folders
    config = recipe.load(
        "ppo-tiny-cpu",
        [
            *("--model.path", str(base), "--reward.models", f"[{{path: '{reward_model}'}}]"),
            *("--algorithm.prompts_per_step", "6", "--reward.workers", "1", *overrides),
        ],
    )
    assert isinstance(config, PPOConfig)
    return config


def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / "step-3"


def models_of(config: PPOConfig, folders: tuple[Path, Path]) -> tuple[Policy, Models]:
    base, reward_model = folders
    model = load_model(base, config.model)
    if config.model.lora_rank:
        torch.manual_seed(0)
        add_lora(model, config.model)
    policy = Policy(model)
    return policy, load_models(config, policy, base, [checkpoint(reward_model)], Accelerator(cpu=True))


def answers(prompt: Sequence[int], i: int, j: int) -> str:
    return f"<think>{'x' * (3 * i)}</think><answer>{i}</answer>" if i % 2 else "y" * (1 + 7 * i)


def make(config: PPOConfig, folders: tuple[Path, Path], pool: VerifierPool, script: Any = answers) -> PPO:
    policy, models = models_of(config, folders)
    tokenizer = char_tokenizer()
    return PPO(
        config,
        value=models.value,
        reference=models.reference,
        scorers=models.scorers,
        accelerator=Accelerator(cpu=True),
        policy=policy,
        tokenizer=tokenizer,
        template=prompts.load("plain"),
        problems=PROBLEMS,
        engine=ScriptedEngine(script, tokenizer),
        rewarder=Rewarder(config.reward, pool),
    )


def prepared(ppo: PPO) -> tuple[PPOBatch, list[Row]]:
    groups, _ = ppo.rollouts.draw(1)
    rows = [Row(prompt_ids=g.prompt_ids, completion_ids=c.token_ids) for g in groups for c in g.completions]
    return ppo.advantages(groups, rows), rows


def alone(folder: Path, row: Row) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(T,) log-probabilities of one completion, from a plain forward pass."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].double().log_softmax(-1)
    taken = logits[torch.arange(len(row.completion_ids)), torch.tensor(row.completion_ids)]
    result: np.ndarray[Any, np.dtype[np.float64]] = taken.detach().numpy()
    return result


def test_the_advantages_are_those_of_a_plain_computation_in_numpy(
    folders: tuple[Path, Path], pool: VerifierPool, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    save_model(other, tiny_llama(seed=1))
    config = small(folders, "--algorithm.beta", "0.1", "--algorithm.gamma", "0.9", "--algorithm.lam", "0.8")
    ppo = make(config, folders, pool)
    ppo.model.model.load_state_dict(load_model(other, ModelConfig()).state_dict())  # away from the reference
    batch, rows = prepared(ppo)
    scorer = AutoModelForSequenceClassification.from_pretrained(checkpoint(folders[1]))
    mean, std = scorer.config.reward_mean, scorer.config.reward_std
    raw = []
    for i, row in enumerate(rows):
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        assert row.completion_ids[-1] == EOS
        hidden = scorer.base_model(input_ids=ids).last_hidden_state[0]  # the value model starts as the reward model
        scores = ((scorer.score(hidden)[:, 0].double() - mean) / std).detach().numpy()
        values = scores[len(row.prompt_ids) - 1 : -1]
        assert batch.old_values[i, : len(values)].numpy() == pytest.approx(values, abs=1e-4)
        rewards = -0.1 * (alone(other, row) - alone(folders[0], row))
        rewards[-1] += scores[-1]  # of the text with its EOS
        later, following = 0.0, 0.0
        advantages = np.zeros(len(rewards))
        for t in reversed(range(len(rewards))):
            later = rewards[t] + 0.9 * following - values[t] + 0.9 * 0.8 * later
            following, advantages[t] = values[t], later
        assert batch.returns[i, : len(values)].numpy() == pytest.approx(advantages + values, abs=1e-4)
        raw.append(advantages)
    flat = np.concatenate(raw)
    whitened = (flat - flat.mean()) / flat.std()
    assert batch.advantages[batch.mask].numpy() == pytest.approx(whitened, abs=1e-3)
    assert batch.advantages[~batch.mask].abs().max() == 0.0
    kl = np.array([(alone(other, r) - alone(folders[0], r)).sum() for r in rows])
    assert batch.figures["policy/kl_completion"] == pytest.approx(kl.mean(), rel=1e-4)
    surprise = np.concatenate([-alone(folders[0], r) for r in rows])
    assert batch.figures["policy/ref_perplexity"] == pytest.approx(np.exp(surprise.mean()), rel=1e-4)


def test_a_score_is_that_of_the_row_alone_whatever_it_is_padded_with(folders: tuple[Path, Path]) -> None:
    config = small(folders)
    _, models = models_of(config, folders)
    scorer = models.scorers["reward_model"]
    words = char_tokenizer()
    rows = [Row(prompt_ids=(20, 21), completion_ids=(*words("z" * n)["input_ids"], EOS)) for n in (0, 3, 30)]
    together = scorer(rows)
    assert together == pytest.approx([scorer([row])[0] for row in rows], abs=1e-4)
    without_end = [Row(prompt_ids=r.prompt_ids, completion_ids=r.completion_ids[:-1] or (EOS,)) for r in rows]
    assert abs(scorer(without_end)[1] - together[1]) > 1e-3  # the EOS is read, and is not the padding
    model = scorer.module.model  # type: ignore[attr-defined]
    theirs = [model(input_ids=torch.tensor([[*r.prompt_ids, *r.completion_ids]])).logits[0, 0].item() for r in rows]
    mean, std = scorer.mean, scorer.std  # type: ignore[attr-defined]
    assert together == pytest.approx([(score - mean) / std for score in theirs], abs=1e-4)


def test_the_gradients_of_policy_and_value_are_the_same_for_any_micro_batches(
    folders: tuple[Path, Path], pool: VerifierPool
) -> None:
    config = small(folders, "--algorithm.minibatches", "1")
    ppo = make(config, folders, pool)
    batch, rows = prepared(ppo)

    def gradients(budget: int) -> list[torch.Tensor]:
        ppo.config = dataclasses.replace(
            config, optimizer=dataclasses.replace(config.optimizer, micro_batch_tokens=budget)
        )
        found = []
        for module in ppo.trained:
            module.zero_grad()
        ppo.backward(rows, list(range(len(rows))), batch, losses.StepTotals.of(batch.mask))
        for module in ppo.trained:
            found.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
        return found

    policy, value = gradients(16384)
    assert policy.norm() > 1e-3
    assert value.norm() > 1e-3
    for budget in (1, 60):
        again = gradients(budget)
        assert torch.allclose(again[0], policy, rtol=1e-3, atol=1e-6)
        assert torch.allclose(again[1], value, rtol=1e-3, atol=1e-6)


def test_beta_is_steered_towards_its_kl_by_at_most_a_fifth_of_the_share() -> None:
    # arXiv 1909.08593: e = clip(KL / target - 1, -0.2, 0.2), beta (1 + K e), with K = 512 / 10000.
    near = {"target": 6.0, "completions": 512, "horizon": 10_000}
    assert steered_beta(0.2, 9.0, **near) == pytest.approx(0.2 * (1 + 0.0512 * 0.2))  # type: ignore[arg-type]
    assert steered_beta(0.2, 6.6, **near) == pytest.approx(0.2 * (1 + 0.0512 * 0.1))  # type: ignore[arg-type]
    assert steered_beta(0.2, 0.0, **near) == pytest.approx(0.2 * (1 - 0.0512 * 0.2))  # type: ignore[arg-type]
    assert steered_beta(0.2, 6.0, **near) == 0.2  # type: ignore[arg-type]


def test_gamma_and_lambda_one_without_kl_is_reward_minus_value_on_every_token(
    folders: tuple[Path, Path], pool: VerifierPool
) -> None:
    config = small(
        folders,
        *("--algorithm.beta", "0", "--algorithm.lam", "1", "--algorithm.whiten", "false"),
        *("--algorithm.measure_kl", "false"),
    )
    ppo = make(config, folders, pool)
    assert ppo.reference is None
    batch, _ = prepared(ppo)
    expected = (batch.rewards[:, None] - batch.old_values).masked_fill(~batch.mask, 0.0)
    assert torch.allclose(batch.advantages, expected, atol=1e-5)
    assert "policy/kl" not in batch.figures


def test_a_value_model_made_from_the_policy_begins_at_zero_and_is_warmed_up_alone(
    folders: tuple[Path, Path], pool: VerifierPool
) -> None:
    config = small(folders, "--value.init", "policy", "--value.warmup_steps", "1")
    ppo = make(config, folders, pool)
    assert prepared(ppo)[0].old_values.abs().max() == 0.0
    before = [p.detach().clone() for p in ppo.model.parameters()]
    ppo.step(1)
    assert all(torch.equal(a, b) for a, b in zip(before, ppo.model.parameters(), strict=True))
    assert ppo.value_model.head.weight.abs().max() > 0  # type: ignore[operator, union-attr]
    ppo.step(2)
    assert not all(torch.equal(a, b) for a, b in zip(before, ppo.model.parameters(), strict=True))


LORA = ("--model.lora_rank", "4", "--model.lora_alpha", "32")


def test_four_models_in_one_backbone_say_what_four_models_say(folders: tuple[Path, Path], pool: VerifierPool) -> None:
    apart = make(small(folders, *LORA), folders, pool)
    together = make(small(folders, *LORA, "--shared_backbone", "true"), folders, pool)
    first, rows = prepared(apart)
    second, _ = prepared(together)
    assert torch.allclose(first.rewards, second.rewards, atol=1e-4)
    assert first.ref_logprobs is not None
    assert second.ref_logprobs is not None
    assert torch.allclose(first.ref_logprobs, second.ref_logprobs, atol=1e-4)
    assert torch.allclose(first.old_values, second.old_values, atol=1e-4)
    # A step moves the policy's and the value's adapters, and nothing else.
    start = {name: p.detach().clone() for name, p in together.model.named_parameters()}
    together.step(1)
    moved = {name for name, p in together.model.named_parameters() if not torch.equal(p, start[name])}
    assert {name.split(".")[-2] for name in moved} == {"default", "value"}
    assert {name.split(".")[-3] for name in moved} <= {"lora_A", "lora_B"}
    apart.step(1)
    mask = first.mask
    assert torch.allclose(
        apart._logprobs(apart.model, rows, mask), together._logprobs(together.model, rows, mask), atol=1e-3
    )
    after, _ = prepared(together)
    assert after.old_logprobs is not None
    scorer = together.scorers["reward_model"]
    assert scorer(rows) == pytest.approx(apart.scorers["reward_model"](rows), abs=1e-4)
    assert not torch.allclose(after.old_values, second.old_values, atol=1e-4)


def test_a_shared_backbone_takes_only_a_reward_model_that_is_an_adapter_of_it(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    save_model(other, tiny_llama(seed=1))
    config = small(folders, *LORA, "--shared_backbone", "true")
    with pytest.raises(UserError, match="was trained from"):
        models_of(config, (other, folders[1]))
    with pytest.raises(UserError, match=r"set model\.lora_rank"):
        small(folders, "--shared_backbone", "true")


def test_what_cannot_score_the_policy_s_tokens_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    words = char_tokenizer()
    assert find_reward_model(str(folders[1]), words) == checkpoint(folders[1])  # a run folder: its last checkpoint
    with pytest.raises(UserError, match="make reward-model"):
        find_reward_model(str(tmp_path / "missing"), words)
    with pytest.raises(UserError, match="it holds LlamaForCausalLM, which has no score"):
        find_reward_model(str(folders[0]), words)
    words.add_tokens(["<more>"])
    with pytest.raises(UserError, match=r"another tokenizer than the policy \(1 tokens differ, such as '<more>'\)"):
        find_reward_model(str(folders[1]), words)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def train(folders: tuple[Path, Path], tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    def run(name: str, *overrides: str, resume: bool = False) -> list[dict[str, Any]]:
        config = small(
            folders,
            *("--run.root", str(tmp_path), "--run.name", name, "--engine.name", "transformers", "--run.threads", "1"),
            *("--sampling.max_tokens", "16", "--run.trackers", "[]", "--eval.data.size", "8", "--eval.every", "2"),
            *("--run.checkpoint_every", "2", "--algorithm.kl_target", "0.1", "--algorithm.kl_horizon", "6"),
            *overrides,
        )
        train_ppo(config, resume=resume)
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in r.items() if not k.startswith("time/") and not k.endswith("/seconds")} for r in rows]

    return run


@pytest.mark.parametrize("extra", [(), (*LORA, "--shared_backbone", "true")])
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(
    train: Callable[..., list[dict[str, Any]]], extra: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train("whole", "--run.steps", "4", *extra)
    assert len({row["policy/beta"] for row in whole[1:]}) == 4
    assert "score of truth" in capsys.readouterr().out
    train("cut", "--run.steps", "2", *extra)
    assert train("cut", "--run.steps", "4", *extra, resume=True) == whole
