"""The reward model: the last real token, rankings, the figures of its report, what is saved, resume."""

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from r1zero.config import ModelConfig, RewardModelConfig, recipe
from r1zero.data.preferences import Ranking
from r1zero.errors import UserError
from r1zero.eval.model import run_of
from r1zero.models.policy import Row
from r1zero.models.reward_model import RewardModel, load_reward_model, scorable_pad
from r1zero.training.reward_model import RewardModelStage, train_reward_model
from r1zero.training.reward_model_report import calibration_error, report
from tests.tiny_models import EOS, PAD, char_tokenizer, save_model, tiny_llama


def small(*overrides: str) -> RewardModelConfig:
    config = recipe.load("rm-tiny-cpu", ["--run.threads", "1", "--run.trackers", "[]", "--epochs", "1", *overrides])
    assert isinstance(config, RewardModelConfig)
    return config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    path.mkdir()
    save_model(path, tiny_llama(layers=2))
    return path


def ranking(prompt: str, *responses: str, margin: float | None = None) -> Ranking:
    words = char_tokenizer()
    ids = tuple(words(prompt)["input_ids"])
    rows = tuple(Row(prompt_ids=ids, completion_ids=(*words(text)["input_ids"], EOS)) for text in responses)
    return Ranking(rows=rows, margin=margin)


RANKINGS = [ranking("1+1=", "2", "a long wrong answer", "33"), ranking("name", "yes", ""), ranking("q", "abc", "d")]


def stage_of(folder: Path, config: RewardModelConfig) -> RewardModelStage:
    module = RewardModel(load_reward_model(folder, config.model, PAD, seed=0))
    return RewardModelStage(
        config, accelerator=Accelerator(cpu=True), module=module, tokenizer=char_tokenizer(), rankings=RANKINGS
    )


def alone(model: Any, row: Row) -> torch.Tensor:
    """The score that transformers gives one unpadded sequence."""
    score: torch.Tensor = model(input_ids=torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits[0, 0]
    return score


@pytest.mark.parametrize("attention", ["auto", "eager"])  # packed, padded
@pytest.mark.parametrize("budget", ["1", "16384"])
def test_the_loss_and_gradient_are_those_of_each_response_alone_for_any_micro_batches(
    folder: Path, budget: str, attention: str
) -> None:
    given = ("--model.attention", attention, "--optimizer.micro_batch_tokens", budget)
    config = small(*given, "--centre", "0", "--margin", "0.5")
    by_hand = load_reward_model(folder, config.model, PAD, seed=0)
    total = torch.zeros(())
    for r in RANKINGS:
        scores = [alone(by_hand, row) for row in r.rows]
        pairs = [(a, b) for i, a in enumerate(scores) for b in scores[i + 1 :]]
        total = total + sum(torch.nn.functional.softplus(0.5 - a + b) for a, b in pairs) / len(pairs) / 3
    total.backward()  # type: ignore[no-untyped-call]
    stage = stage_of(folder, config)
    assert stage.module.packed == (attention == "auto")
    metrics = stage.updater.backward(stage.losses(RANKINGS))
    assert metrics["loss"] == pytest.approx(total.item(), rel=1e-5)
    for (name, ours), theirs in zip(stage.module.model.named_parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6), name


def test_a_row_s_own_margin_goes_before_the_recipe_s(folder: Path) -> None:
    stage = stage_of(folder, small("--margin", "0.5"))
    rankings = [ranking("a", "b", "c", margin=2.0), ranking("a", "b", "c", "d")]
    assert stage._pairs(rankings) == ([0, 2, 2, 3], [1, 3, 4, 4], [1.0, 1 / 3, 1 / 3, 1 / 3], [2.0, 0.5, 0.5, 0.5])


def test_a_new_head_is_the_same_for_the_same_seed_and_scores_are_of_order_one(folder: Path) -> None:
    heads = [load_reward_model(folder, ModelConfig(), PAD, seed).score.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert heads[0].std().item() == pytest.approx(97**-0.5, rel=0.3)


def test_a_pad_token_that_ends_every_response_is_replaced() -> None:
    fine = char_tokenizer()
    assert scorable_pad(fine, {EOS}) == PAD
    assert fine.pad_token == "<pad>"
    same = char_tokenizer(pad_is_eos=True)
    pad = scorable_pad(same, {EOS})
    assert pad != EOS
    assert same.pad_token_id == pad


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pad_is_eos", [False, True])
def test_a_saved_model_gives_the_scores_it_was_trained_to_give_whatever_the_padding(
    folder: Path, tmp_path: Path, side: str, pad_is_eos: bool
) -> None:
    stage = stage_of(folder, small())
    rows = [row for r in RANKINGS for row in r.rows]  # the response "" is its EOS alone
    words = char_tokenizer(pad_is_eos=pad_is_eos)
    stage.module.model.config.pad_token_id = scorable_pad(words, {EOS})
    stage.module.model.save_pretrained(tmp_path / "saved")
    words.save_pretrained(tmp_path / "saved")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved", padding_side=side)
    batch = theirs.pad({"input_ids": [[*row.prompt_ids, *row.completion_ids] for row in rows]}, return_tensors="pt")
    with torch.no_grad():
        found = loaded(**batch).logits[:, 0]
    assert found.tolist() == pytest.approx(stage.scores(rows), abs=1e-4)


def test_the_report_s_figures_by_hand() -> None:
    # Responses of 2, 20 and 3 tokens; of 4 and 1; of 4 and 2 (their end tokens counted).
    figures = report([[2.0, 1.0, 0.0], [0.0, 1.0], [3.0, 3.0]], RANKINGS)
    assert figures["accuracy"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert figures["longer_wins"] == pytest.approx((1 / 3 + 1 + 1) / 3)  # of the three pairs one: 20 against 3
    assert figures["accuracy_chosen_longer"] == pytest.approx((1 + 0 + 0.5) / 3)
    assert figures["accuracy_chosen_shorter"] == 1.0
    assert figures["nll"] == pytest.approx(np.mean([math.log1p(math.exp(-d)) for d in (1, 2, 1, -1, 0)]))
    assert figures["score_mean"] == pytest.approx(10 / 7)


def test_many_pairs_of_one_prompt_are_one_prompt_s_evidence() -> None:
    one = [ranking("one", letter, "x") for letter in "abcdefghijklmnopqrst"]
    two = ranking("two", "a", "bc")
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    figures = report([*[right] * 20, wrong], [*one, two])
    assert figures["accuracy"] == 0.5
    assert figures["accuracy_low"] < 0.15
    assert figures["accuracy_high"] > 0.85
    assert figures["longer_wins"] == 0.25  # equal in length, and shorter


def test_a_calibrated_model_has_no_calibration_error_and_an_overconfident_one_has() -> None:
    sure = math.log(3)  # confidence 3/4
    assert calibration_error(np.array([sure, sure, sure, -sure])) == pytest.approx(0.0)
    assert calibration_error(np.array([sure, -sure])) == pytest.approx(0.25)
    assert calibration_error(np.array([30.0, -30.0, 30.0, 30.0])) == pytest.approx(0.25, abs=1e-6)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def train(folder: Path, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs `rm-tiny-cpu` small on a random model; returns its metrics without the times."""

    def run(name: str, *overrides: str, resume: bool = False) -> list[dict[str, Any]]:
        config = small(
            *("--model.path", str(folder), "--run.root", str(tmp_path), "--run.name", name, "--data.size", "128"),
            *("--held_out.size", "64", "--batch_size", "16", "--run.checkpoint_every", "4", "--eval_every", "4"),
            *("--optimizer.schedule", "constant", *overrides),
        )
        train_reward_model(config, resume=resume)
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]

    return run


def test_a_run_learns_resumes_to_the_bit_and_its_model_loads_anywhere(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train("whole")
    assert len(whole) == 9
    assert whole[-1]["held_out/accuracy"] > max(0.6, whole[0]["held_out/accuracy"])
    assert 'accuracy of "longer wins"' in capsys.readouterr().out
    train("cut", "--run.steps", "4")
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    assert train("cut", "--run.steps", "8", resume=True)[-4:] == whole[-4:]
    checkpoint = tmp_path / "whole" / "checkpoints" / "step-8"
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    words = AutoTokenizer.from_pretrained(checkpoint)
    texts = ["1+2+3=<think>1+2=3,3+3=6</think><answer>6</answer><eos>", "1+2+3=6<eos>"]
    batch = words(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    together = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, 0]
    for text, score in zip(texts, together.tolist(), strict=True):
        ids = torch.tensor([words(text, add_special_tokens=False)["input_ids"]])
        assert model(input_ids=ids).logits.item() == pytest.approx(score, abs=1e-4)
    assert model.config.reward_std == pytest.approx(whole[-1]["held_out/score_std"])
    with pytest.raises(UserError, match="scores answers and gives none"):
        run_of(str(checkpoint))


def test_lora_trains_adapters_and_head_and_is_saved_merged(
    train: Callable[..., list[dict[str, Any]]], folder: Path, tmp_path: Path
) -> None:
    whole = train("whole", "--model.lora_rank", "4", "--run.steps", "4", "--run.checkpoint_every", "2")
    train("cut", "--model.lora_rank", "4", "--run.steps", "2", "--run.checkpoint_every", "2")
    again = train("cut", "--model.lora_rank", "4", "--run.steps", "4", "--run.checkpoint_every", "2", resume=True)
    assert again[-1] == whole[-1]
    start = load_reward_model(folder, dataclasses.replace(small().model, path=str(folder)), PAD, seed=0).state_dict()
    end = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole" / "checkpoints" / "step-4").state_dict()
    assert set(start) == set(end)
    moved = {name for name in start if not torch.equal(start[name], end[name])}
    assert moved == {name for name in start if "_proj" in name or name == "score.weight"}
