"""DPO and its relatives on a small random model: exactness, the reference's cache, data, what is watched, resume."""

import dataclasses
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from r1zero import prompts
from r1zero.algorithms.preference_losses import length_figures
from r1zero.config import DPOConfig, ModelConfig, PreferenceDataConfig, recipe
from r1zero.data import preferences
from r1zero.data.miniature import arithmetic
from r1zero.data.miniature import preferences as tiny_preferences
from r1zero.errors import UserError
from r1zero.models.policy import Policy, Row
from r1zero.training import reference_logprobs as reference
from r1zero.training.answers import win_rate
from r1zero.training.dpo import DPO, Unit, longer_wins, train_dpo, units_of_thumbs
from tests.tiny_models import EOS, char_tokenizer, save_model, tiny_llama

PLAIN = prompts.load("plain")


def small(*overrides: str) -> DPOConfig:
    config = recipe.load("dpo-tiny-cpu", ["--run.threads", "1", "--run.trackers", "[]", *overrides])
    assert isinstance(config, DPOConfig)
    return config


def write(path: Path, rows: list[dict[str, Any]]) -> PreferenceDataConfig:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return PreferenceDataConfig(source=str(path), max_tokens=100)


def units() -> list[Unit]:
    """Pairs of unlike lengths, one with an empty response, one of one response twice; made-up reference values."""
    words = char_tokenizer()
    found = []
    for i, (chosen, rejected) in enumerate([("yes", "no, not at all"), ("", "x"), ("a" * 30, "b"), ("same", "same")]):
        prompt = tuple(PLAIN.encode(f"question {i}", words))
        rows = [Row(prompt_ids=prompt, completion_ids=(*words(t)["input_ids"], EOS)) for t in (chosen, rejected)]
        found.append(Unit(rows=(rows[0], rows[1]), reference=(-5.0 - i, -6.0), desirable=i % 2 == 0))
    return found


def make(config: DPOConfig, model: Any, data: list[Unit]) -> DPO:
    return DPO(config, accelerator=Accelerator(cpu=True), policy=Policy(model), tokenizer=char_tokenizer(), units=data)


def plain_logprobs(model: Any, row: Row) -> torch.Tensor:
    """(T,) by a plain forward pass of one sequence."""
    logits = model(input_ids=torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits
    taken = logits[0, len(row.prompt_ids) - 1 : -1].log_softmax(-1)
    found: torch.Tensor = taken[torch.arange(len(row.completion_ids)), torch.tensor(row.completion_ids)]
    return found


@pytest.mark.parametrize("attention", ["sdpa", "eager"])  # packed, padded
@pytest.mark.parametrize("budget", ["1", "150", "16384"])
def test_dpo_s_gradient_is_that_of_plain_forward_passes_for_any_micro_batches(attention: str, budget: str) -> None:
    data, by_hand = units(), tiny_llama()
    total = torch.zeros(())
    for u in data:
        (won, lost), (ref_won, ref_lost) = (plain_logprobs(by_hand, r).sum() for r in u.rows), u.reference
        total = total - torch.nn.functional.logsigmoid(0.1 * ((won - ref_won) - (lost - ref_lost))) / len(data)
    total.backward()  # type: ignore[no-untyped-call]
    model = tiny_llama()
    model.set_attn_implementation(attention)
    stage = make(small("--optimizer.micro_batch_tokens", budget), model, data)
    metrics = stage.updater.backward(stage.losses(data))
    assert metrics["loss"] == pytest.approx(total.item(), rel=1e-5)
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("loss", ["ipo", "kto", "simpo", "orpo"])
def test_each_relative_has_one_loss_and_one_gradient_whatever_the_micro_batches(loss: str) -> None:
    found = []
    for budget in ("1", "16384"):
        model = tiny_llama()
        stage = make(small("--loss", loss, "--beta", "0.2", "--optimizer.micro_batch_tokens", budget), model, units())
        metrics = stage.updater.backward(stage.losses(units()))
        found.append((metrics, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    (one, first), (other, second) = found
    assert one == pytest.approx(other, rel=1e-4, abs=1e-5)
    assert first.norm() > 1e-3
    assert torch.allclose(first, second, rtol=1e-3, atol=1e-5)


def test_simpo_and_orpo_are_of_mean_logprobs_and_orpo_has_its_sft_term() -> None:
    data, model = units()[:1], tiny_llama()
    won, lost = (plain_logprobs(model, row).mean().item() for row in data[0].rows)
    stage = make(small("--loss", "simpo", "--beta", "2", "--gamma", "0.5"), tiny_llama(), data)
    simpo = stage.updater.backward(stage.losses(data))
    assert simpo["loss"] == pytest.approx(math.log1p(math.exp(-(2 * (won - lost) - 0.5))), rel=1e-4)
    stage = make(small("--loss", "orpo", "--beta", "0.1"), tiny_llama(), data)
    orpo = stage.updater.backward(stage.losses(data))
    odds = [p - math.log(1 - math.exp(p)) for p in (won, lost)]
    assert orpo["loss"] == pytest.approx(-won + 0.1 * math.log1p(math.exp(-(odds[0] - odds[1]))), rel=1e-4)


def test_length_normalised_dpo_divides_both_policy_and_reference_by_each_response_s_length() -> None:
    data, model = units()[:1], tiny_llama()
    parts = [
        (plain_logprobs(model, row).sum().item() - ref) / len(row.completion_ids)
        for row, ref in zip(data[0].rows, data[0].reference, strict=True)
    ]
    stage = make(small("--length_normalised", "true"), tiny_llama(), data)
    loss = stage.updater.backward(stage.losses(data))["loss"]
    assert loss == pytest.approx(math.log1p(math.exp(-0.1 * (parts[0] - parts[1]))), rel=1e-4)


def test_reference_logprobs_are_computed_once_for_a_model_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R1ZERO_CACHE", str(tmp_path / "cache"))
    rows = [row for u in units() for row in u.rows]
    folders = []
    for seed in (0, 1):
        folders.append(tmp_path / str(seed))
        folders[-1].mkdir()
        save_model(folders[-1], tiny_llama(seed=seed, layers=1))
    loaded: list[Path] = []
    load = reference.load_model
    monkeypatch.setattr(
        reference, "load_model", lambda folder, config: (loaded.append(folder), load(folder, config))[1]
    )

    def ask(folder: Path, some: list[Row]) -> torch.Tensor:
        return reference.reference_logprobs(folder, ModelConfig(), some, 100, Accelerator(cpu=True))

    first = ask(folders[0], rows)
    by_hand = [plain_logprobs(tiny_llama(layers=1), row).sum().item() for row in rows]
    assert first.tolist() == pytest.approx(by_hand, rel=1e-4)
    assert torch.equal(ask(folders[0], rows), first)
    assert loaded == [folders[0]]  # the second time it came from the disk
    assert not torch.equal(ask(folders[1], rows), first)  # other weights
    assert len(ask(folders[0], rows[:3])) == 3  # other data
    assert loaded == [folders[0], folders[1], folders[0]]


def test_kto_s_mismatches_are_the_next_response_to_another_prompt() -> None:
    words = char_tokenizer()
    config = PreferenceDataConfig(source="tiny:arithmetic", size=3, max_tokens=96)
    thumbs = preferences.load_thumbs(config, PLAIN, words).items
    assert [t.desirable for t in thumbs] == [True, False] * 3
    for i, unit in enumerate(units_of_thumbs(thumbs)):
        assert unit.rows[0] == thumbs[i].row
        assert unit.rows[1].prompt_ids == thumbs[i].row.prompt_ids
        assert unit.rows[1].completion_ids == thumbs[(i + 2 - i % 2) % 6].row.completion_ids


def test_pairs_come_as_texts_as_rankings_and_as_chats(tmp_path: Path) -> None:
    words = char_tokenizer()
    words.chat_template = (
        "{% for m in messages %}{{ '(' + m['role'] + ')' + m['content'] + '<im_end>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '(assistant)' }}{% endif %}"
    )
    asked = [{"role": "user", "content": "hi"}]
    good, bad = {"role": "assistant", "content": "good"}, {"role": "assistant", "content": "bad"}
    for row in (
        {"prompt": "hi", "chosen": "good", "rejected": "bad"},
        {"prompt": "hi", "responses": ["good", "bad"]},
        {"prompt": asked, "chosen": "good", "rejected": "bad"},
        {"prompt": "unused", "chosen": [*asked, good], "rejected": [*asked, bad]},
    ):
        (ranking,) = preferences.load_rankings(write(tmp_path / "a.jsonl", [row]), PLAIN, words).items
        chat = isinstance(row["prompt"], list) or isinstance(row.get("chosen"), list)
        assert words.decode(ranking.chosen.completion_ids) == ("good<im_end>" if chat else "good<eos>")
        assert words.decode(ranking.rejected.prompt_ids) == ("(user)hi<im_end>(assistant)" if chat else "hi")
    other = [{"role": "user", "content": "ho"}, bad]
    config = write(tmp_path / "b.jsonl", [{"chosen": [*asked, good], "rejected": other}])
    with pytest.raises(UserError, match=r"b\.jsonl:1: the chosen and the rejected chat differ before"):
        preferences.load_rankings(config, PLAIN, words)


def test_identical_pairs_are_left_out_empty_responses_are_not_and_long_rows_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "chosen": "b", "rejected": "b"}, {"prompt": "c", "chosen": "d", "rejected": ""}]
    config = write(tmp_path / "a.jsonl", rows)
    loaded = preferences.load_rankings(config, PLAIN, char_tokenizer(pad_is_eos=True))
    assert (len(loaded.items), loaded.identical) == (1, 1)
    assert loaded.items[0].rejected.completion_ids == (EOS,)  # the pad token's id, and learnt all the same
    with pytest.raises(UserError, match=r"2 of 2 rows .* over max_tokens=2 \(longest: 3\)"):
        preferences.load_rankings(dataclasses.replace(config, max_tokens=2), PLAIN, char_tokenizer())
    with pytest.raises(UserError, match="every pair is of identical responses"):
        preferences.load_rankings(write(tmp_path / "b.jsonl", rows[:1]), PLAIN, char_tokenizer())


def test_a_pair_with_one_side_over_the_limit_is_skipped_whole_and_counted_never_cut(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "chosen": "b", "rejected": "c" * 30},
        {"prompt": "a" * 30, "chosen": "b", "rejected": "c"},
        {"prompt": "a", "chosen": "b", "rejected": "c"},
    ]
    config = dataclasses.replace(write(tmp_path / "a.jsonl", rows), max_tokens=20, too_long="skip")
    words = char_tokenizer()
    loaded = preferences.load_rankings(config, PLAIN, words)
    assert loaded.skipped == 2
    (kept,) = loaded.items
    assert [words.decode((*row.prompt_ids, *row.completion_ids)) for row in kept.rows] == ["ab<eos>", "ac<eos>"]
    assert loaded.said("a.jsonl") == ["a.jsonl: 2 rows over max_tokens are left out"]


def test_a_tokenizer_that_pads_and_truncates_on_the_left_changes_no_token_of_a_pair(tmp_path: Path) -> None:
    rows = [{"prompt": "a longer prompt", "chosen": "yes, and more", "rejected": ""}]
    config, usual, left = write(tmp_path / "a.jsonl", rows), char_tokenizer(), char_tokenizer(pad_is_eos=True)
    left.padding_side = left.truncation_side = "left"
    left.model_max_length = 4
    assert preferences.load_rankings(config, PLAIN, left) == preferences.load_rankings(config, PLAIN, usual)


def test_a_fifth_of_the_labels_can_be_swapped_and_no_other_row_changes() -> None:
    config = PreferenceDataConfig(source="tiny:arithmetic", size=50, max_tokens=96)
    clean = preferences.load_rankings(config, PLAIN, char_tokenizer()).items
    noisy = preferences.load_rankings(dataclasses.replace(config, swapped_share=0.2), PLAIN, char_tokenizer()).items
    assert sum(a.rows == b.rows[::-1] for a, b in zip(clean, noisy, strict=True)) == 10
    assert sum(a.rows == b.rows for a, b in zip(clean, noisy, strict=True)) == 40


def test_edits_change_one_thing_and_the_longer_response_is_hardly_the_better_one_more_often() -> None:
    rng = random.Random(0)
    plan = tiny_preferences.Plan(slips=(0, 1))
    assert tiny_preferences.write([3, 4, 5], plan) == "<think>3+4=7,7+5=13</think><answer>13</answer>"
    for _ in range(50):
        other = tiny_preferences.edit(plan, rng)
        assert sum([other.slips != plan.slips, other.form != plan.form, other.twice != plan.twice]) == 1
    ranked = [best_first for _, best_first in tiny_preferences.rankings("train", 500, 0)]
    longer = sum((len(a) > len(b)) + 0.5 * (len(a) == len(b)) for a, b in ranked) / len(ranked)
    assert 0.5 < longer < 0.62


def test_the_true_reward_and_the_generated_preferences_that_follow_it() -> None:
    right = "<think>3+4=7,7+5=12</think><answer>12</answer>"
    for text, reward in {
        right: 1.0,
        "<think>3+4=7,7+5=13</think><answer>13</answer>": 0.35,  # a step and the format
        "<think>3+4=6,6+5=11</think><answer>11</answer>": 0.35,  # what follows a wrong step may be right
        "3+4=7,7+5=12<answer>12</answer>": 0.8,
        "12": 0.0,
        right + right: 0.3,  # two answers are none
        "<think>3+4=7,3+4=7</think><answer>12</answer>": 0.85,  # a step done twice is one
    }.items():
        assert tiny_preferences.true_reward("3+4+5=", text) == pytest.approx(reward), text
    for question, (best, worst) in tiny_preferences.rankings("test", 20, 0):
        assert arithmetic.split_of(arithmetic.terms_of(question)) == "test"
        gap = tiny_preferences.true_reward(question, best) - tiny_preferences.true_reward(question, worst)
        assert gap >= tiny_preferences.MIN_GAP


def test_a_win_is_a_higher_reward_and_a_tie_is_half_of_one() -> None:
    figures = win_rate([[1.0], [0.5], [0.2], [None]], [[0.5], [0.5], [0.9], [0.1]])
    assert figures["eval/win_rate"] == pytest.approx(0.5)
    assert figures["eval/ties"] == pytest.approx(1 / 3)
    assert win_rate([[None]], [[1.0]]) == {}


def test_longer_wins_is_the_share_of_pairs_whose_chosen_is_longer() -> None:
    assert longer_wins(units()) == pytest.approx((0 + 0 + 1 + 0.5) / 4)


def test_both_sides_losing_likelihood_is_an_alarm_and_one_side_is_not() -> None:
    def alarms(chosen: float, rejected: float) -> dict[str, str]:
        stage = make(small(), tiny_llama(layers=1), units())
        metrics = {"dpo/chosen_reward": chosen, "dpo/rejected_reward": rejected, "optimizer/skipped": 0.0}
        return [stage.alarms(step, metrics) for step in range(10)][-1]

    assert "both lose likelihood (-1.00 and -2.00" in alarms(-0.1, -0.2)["likelihood"]
    assert alarms(0.1, -0.2) == {}
    assert alarms(-0.004, -0.011) == {}  # of a nat: the noise of ten batches


def test_preferring_length_answers_grown_long_and_a_best_that_is_past_are_alarms() -> None:
    stage = make(small(), tiny_llama(layers=1), units())
    stage.held_out, stage.reference_tokens = units() * 50, 20.0

    def alarms(**figures: float) -> set[str]:
        fine = {"held_out/shorter": 0.5, "held_out/accuracy_chosen_shorter": 0.8, "held_out/loss": 0.5}
        fine |= {"eval/win_rate": 0.7, "eval/win_rate_high": 0.75, "eval/tokens": 21.0}
        given = {name.replace("__", "/"): value for name, value in figures.items()}
        rewards = {"dpo/chosen_reward": 0.0, "dpo/rejected_reward": 0.0, "optimizer/skipped": 0.0}
        return set(stage.alarms(1, fine | rewards | given))

    assert alarms() == set()
    assert alarms(held_out__accuracy_chosen_shorter=0.41) == set()  # of 100 pairs: within two standard errors of 1/2
    assert alarms(held_out__accuracy_chosen_shorter=0.39) == {"length"}
    assert alarms(eval__tokens=31.0) == {"answers"}
    assert alarms(eval__win_rate=0.68, eval__win_rate_high=0.72) == set()  # 0.7 is within its interval
    assert alarms(eval__win_rate=0.6, eval__win_rate_high=0.65) == {"over-optimisation"}
    assert alarms(held_out__loss=0.52) == {"over-optimisation"}


def test_pairs_are_told_apart_by_which_response_is_longer() -> None:
    margins, longer = torch.tensor([1.0, -1.0, 0.0, 2.0]), torch.tensor([3, 2, -1, 0])
    found = length_figures(margins, longer, num_pairs=4)
    assert {name: value.item() for name, value in found.items()} == {
        "longer": 0.5,
        "shorter": 0.25,
        "longer_right": 0.25,
        "shorter_right": 0.125,  # a tie is half
    }


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--loss", "simpo", "--length_normalised", "true"], "simpo is length-normalised always"),
        (["--loss", "ipo", "--label_smoothing", "0.1"], "label_smoothing is for dpo and simpo"),
        (["--label_smoothing", "0.5"], "label_smoothing must be in"),
        (["--loss", "dppo"], "loss"),
    ],
)
def test_settings_that_make_no_sense_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        small(*overrides)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Runs `dpo-tiny-cpu` small on a random model; returns its metrics without the times."""
    monkeypatch.setenv("R1ZERO_CACHE", str(tmp_path / "cache"))
    model = tmp_path / "model"
    model.mkdir()
    save_model(model, tiny_llama(layers=1))

    def run(name: str, *overrides: str, resume: bool = False) -> list[dict[str, Any]]:
        config = small(
            *("--model.path", str(model), "--run.root", str(tmp_path), "--run.name", name, "--data.size", "64"),
            *("--held_out.size", "16", "--eval.data.size", "8", "--sampling.max_tokens", "8", "--reward.workers", "1"),
            *("--batch_size", "8", "--run.checkpoint_every", "4", "--eval.every", "4", *overrides),
        )
        train_dpo(config, resume=resume)
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]

    return run


def test_a_run_learns_held_out_pairs_and_resumes_to_the_bit(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constant = ("--optimizer.schedule", "constant", "--optimizer.lr", "3e-4")
    whole = train("whole", "--run.steps", "8", *constant)
    assert whole[0]["held_out/loss"] == pytest.approx(math.log(2), abs=1e-4)  # pi is ref
    assert whole[0]["held_out/accuracy"] == 0.5
    assert whole[0]["eval/win_rate"] == 0.5
    assert whole[-1]["held_out/loss"] < whole[0]["held_out/loss"]
    assert "win rate against the reference" in capsys.readouterr().out
    train("cut", "--run.steps", "4", *constant)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    assert train("cut", "--run.steps", "8", *constant, resume=True) == whole


@pytest.mark.parametrize("loss", ["kto", "orpo"])
def test_runs_without_pairs_or_without_a_reference_learn(
    train: Callable[..., list[dict[str, Any]]], loss: str, tmp_path: Path
) -> None:
    rows = train(loss, "--loss", loss, "--optimizer.lr", "3e-4", "--run.steps", "24")
    assert rows[-1]["held_out/loss"] < rows[0]["held_out/loss"]
    assert (tmp_path / "cache").exists() == (loss == "kto")


def test_of_labels_a_fifth_of_which_are_swapped_cdpo_believes_what_they_are_worth(
    train: Callable[..., list[dict[str, Any]]],
) -> None:
    def learnt(smoothing: float) -> tuple[float, float]:
        """The margin on the training pairs, swapped ones too, and DPO's loss on clean held-out pairs."""
        rows = train(
            f"smoothing-{smoothing}",
            *("--data.size", "48", "--data.swapped_share", "0.2", "--label_smoothing", str(smoothing)),
            *("--eval.data.source", "", "--eval.every", "0", "--held_out.size", "200", "--run.checkpoint_every", "60"),
            *("--batch_size", "16", "--run.steps", "60", "--epochs", "20", "--optimizer.lr", "1e-3"),
        )
        last = rows[-1]
        margin = sum(row["dpo/margin"] for row in rows[-3:]) / 3  # the last pass over the pairs
        return margin, last["held_out/loss"] - smoothing * last["held_out/margin"]

    (plain, plain_loss), (held, held_loss) = learnt(0.0), learnt(0.2)
    assert held == pytest.approx(math.log(0.8 / 0.2), rel=0.1)  # the odds that a label is right
    assert plain > 2 * held  # every label is believed
    assert held_loss < plain_loss
