"""Supervised fine-tuning: which tokens are learnt, the exact mean over them, data that is refused, resume."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

from r1zero import prompts
from r1zero.config import DemonstrationDataConfig, SFTConfig, recipe
from r1zero.data.messages import Example, encode_chat, encode_prompt, encode_response
from r1zero.data.preferences import load_demonstrations
from r1zero.errors import UserError
from r1zero.models.policy import Policy, group_by_tokens
from r1zero.training.sft import SFT, totals_of, train_sft
from r1zero.training.updater import batch_of, num_steps
from tests.tiny_models import EOS, char_tokenizer, save_model, tiny_llama

CHATML = (
    "{% for m in messages %}{{ '(' + m['role'] + ')' + m['content'] + '<im_end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '(assistant)' }}{% endif %}"
)
# As reasoning models' templates do: thinking stays in the last turn alone.
FORGETFUL = CHATML.replace(
    "m['content'] + '<im_end>",
    "(m['content'] if loop.last else m['content'].split('THINK')[-1]) + '<im_end>",
)
CHAT = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "aTHINKhello"},
    {"role": "user", "content": "and?"},
    {"role": "assistant", "content": "bTHINKbye"},
]


def tokenizer(template: str = CHATML, **options: Any) -> Any:
    result = char_tokenizer(**options)
    result.chat_template = template
    return result


def learnt_text(example: Example, words: Any) -> list[str]:
    """Runs of learnt tokens, decoded."""
    runs: list[list[int]] = []
    before = False
    for token, learns in zip(example.row.completion_ids, example.learnt, strict=True):
        if learns:
            runs = [*runs, [token]] if not before else [*runs[:-1], [*runs[-1], token]]
        before = learns
    return [words.decode(run) for run in runs]


@pytest.mark.parametrize("pad_is_eos", [False, True])
def test_only_the_assistant_s_turns_of_a_chat_are_learnt_with_the_token_that_ends_each(pad_is_eos: bool) -> None:
    words = tokenizer(pad_is_eos=pad_is_eos)
    (example,) = encode_chat(CHAT, words)
    assert learnt_text(example, words) == ["aTHINKhello<im_end>", "bTHINKbye<im_end>"]
    whole = words.decode([*example.row.prompt_ids, *example.row.completion_ids])
    assert whole + "\n" == words.apply_chat_template(CHAT, tokenize=False)
    assert words.decode(example.row.prompt_ids).endswith("(assistant)")


def test_a_template_that_rewrites_earlier_turns_gives_a_sequence_a_turn_as_each_was_asked() -> None:
    words = tokenizer(FORGETFUL)
    first, second = encode_chat(CHAT, words)
    assert [learnt_text(e, words) for e in (first, second)] == [["aTHINKhello<im_end>"], ["bTHINKbye<im_end>"]]
    assert "aTHINK" not in words.decode(second.row.prompt_ids)


def test_a_response_ends_with_the_token_that_stops_a_sampler_and_an_empty_one_is_that_token_alone() -> None:
    plain, chat = prompts.load("plain"), prompts.load("chat")
    for pad_is_eos in (False, True):
        words = tokenizer(pad_is_eos=pad_is_eos)
        assert encode_response("", "hi", plain, words) == (EOS,)
        assert words.decode(encode_response("yes", "hi", plain, words)) == "yes<eos>"
        assert words.decode(encode_response("yes", "hi", chat, words)) == "yes<im_end>"
        assert words.decode(encode_response("yes", CHAT[:2], plain, words)) == "yes<im_end>"
        assert encode_response("y", "hi", plain, words)[-1] in plain.stop_token_ids(words)
    assert tokenizer().decode(encode_prompt(CHAT[:2], plain, tokenizer())).endswith("hi<im_end>\n(assistant)")


def test_a_prefill_is_not_learnt_twice_and_a_response_without_it_is_refused() -> None:
    think = prompts.load("r1zero_think")
    words = char_tokenizer()
    assert think.prefill.strip() == "<think>"
    assert words.decode(encode_response("<think>a</think>", "q", think, words)) == "a</think><eos>"
    with pytest.raises(UserError, match="does not begin with it"):
        encode_response("a", "q", think, words)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prompt": "a", "answer": "b"}], r"data.jsonl:1: no field 'response' \(it has answer, prompt\)"),
        ([{"prompt": "a", "response": "b"}, {"prompt": "", "response": "b"}], "data.jsonl:2: field 'prompt' is empty"),
        ([{"prompt": "a", "response": "b<im_end>c"}], "data.jsonl:1: the text .* holds '<im_end>'"),
        ([{"prompt": "a" * 40, "response": "b"}], r"1 of 1 rows .* over max_tokens=20 \(longest: 42\)"),
        ([{"messages": [{"role": "user", "content": "a"}]}], "data.jsonl:1: the chat has no assistant message"),
        ([{"messages": [{"role": "bot", "content": "a"}]}], "data.jsonl:1: field 'messages': a message needs a role"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = DemonstrationDataConfig(source=str(path), max_tokens=20)
    with pytest.raises(UserError, match=message):
        load_demonstrations(config, prompts.load("plain"), tokenizer())


def test_a_tokenizer_that_pads_and_truncates_on_the_left_changes_no_token(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    rows = [{"messages": CHAT}, {"messages": CHAT[:3]}, {"messages": [*CHAT[:2], {"role": "assistant", "content": ""}]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config, usual, left = DemonstrationDataConfig(source=str(path)), tokenizer(), tokenizer(pad_is_eos=True)
    left.padding_side = left.truncation_side = "left"
    left.model_max_length = 4
    plain = prompts.load("plain")
    assert load_demonstrations(config, plain, left) == load_demonstrations(config, plain, usual)


def test_rows_over_the_limit_are_skipped_where_asked_and_counted_never_cut(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    rows = [{"prompt": "ab", "response": "c" * n} for n in (1, 30)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = DemonstrationDataConfig(source=str(path), max_tokens=20, too_long="skip")
    loaded = load_demonstrations(config, prompts.load("plain"), tokenizer())
    assert ([e.row.length for e in loaded.items], loaded.skipped) == ([4], 1)


def examples() -> list[Example]:
    """A chat of two turns, and responses of 1 (empty), 6 and 21 tokens, two of them to one prompt."""
    words, plain = tokenizer(), prompts.load("plain")
    found = encode_chat(CHAT, words)
    for prompt, response in (("12+3=", ""), ("12+3=", "hello"), ("a longer question", "x" * 20)):
        row = dataclasses.replace(
            found[0].row,
            prompt_ids=encode_prompt(prompt, plain, words),
            completion_ids=encode_response(response, prompt, plain, words),
        )
        found.append(Example(row=row, learnt=(True,) * len(row.completion_ids)))
    return found


def small(*overrides: str) -> SFTConfig:
    config = recipe.load("sft-tiny-cpu", ["--run.threads", "1", "--run.trackers", "[]", *overrides])
    assert isinstance(config, SFTConfig)
    return config


@pytest.mark.parametrize("attention", ["sdpa", "eager"])  # packed, padded
def test_the_gradient_is_that_of_plain_forward_passes_for_any_micro_batches(attention: str) -> None:
    batch = examples()
    model = tiny_llama()
    total = torch.zeros(())
    for e in batch:  # by hand, each sequence alone: a leak of attention between packed ones would show
        ids = torch.tensor([[*e.row.prompt_ids, *e.row.completion_ids]])
        logits = model(input_ids=ids).logits[0, len(e.row.prompt_ids) - 1 : -1]
        taken = logits.log_softmax(-1)[torch.arange(len(e.learnt)), torch.tensor(e.row.completion_ids)]
        total = total - taken[torch.tensor(e.learnt)].sum()
    count = sum(sum(e.learnt) for e in batch)
    assert count == 12 + 10 + 1 + 6 + 21  # the user's second turn is not among them
    (total / count).backward()  # type: ignore[no-untyped-call]
    by_hand = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    for budget in ("1", "120", "16384"):
        other = tiny_llama()
        other.set_attn_implementation(attention)
        stage = SFT(
            small("--optimizer.micro_batch_tokens", budget),
            accelerator=Accelerator(cpu=True),
            policy=Policy(other),
            tokenizer=tokenizer(),
            examples=batch,
        )
        metrics = stage.updater.backward(stage.losses(batch, totals_of(batch)))
        found = torch.cat([p.grad.flatten() for p in other.parameters() if p.grad is not None])
        assert torch.allclose(found, by_hand, rtol=1e-3, atol=1e-6)
        assert metrics["sft/nll"] == pytest.approx((total / count).item(), rel=1e-5)


def test_a_pass_sees_each_row_once_and_the_last_batch_of_a_run_is_what_is_left() -> None:
    steps = num_steps(10, 4, 2.0, 0)
    assert steps == 5
    batches = [batch_of(step, 10, 4, 2.0, 0, seed=0) for step in range(1, 6)]
    assert [len(b) for b in batches] == [4, 4, 4, 4, 4]
    assert sorted([i for b in batches for i in b][:10]) == list(range(10))
    assert len(batch_of(3, 10, 4, 1.0, 0, seed=0)) == 2
    assert num_steps(10, 4, 2.0, 7) == 7
    assert len(batch_of(7, 10, 4, 2.0, 7, seed=0)) == 4


def test_units_are_batched_by_padded_tokens_and_never_split() -> None:
    row = examples()[1].row  # 6 tokens
    long = dataclasses.replace(row, completion_ids=(5,) * 15)  # 20 tokens
    assert group_by_tokens([(row, row), (long, row), (row, row)], 80) == [[1, 0], [2]]
    assert group_by_tokens([(long, long)], 1) == [[0]]


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Runs `sft-tiny-cpu` small on a random model; returns its metrics without the times."""
    model = tmp_path / "model"
    model.mkdir()
    save_model(model, tiny_llama(layers=1))

    def run(name: str, *overrides: str, resume: bool = False) -> list[dict[str, Any]]:
        config = small(
            *("--model.path", str(model), "--run.root", str(tmp_path), "--run.name", name, "--data.size", "64"),
            *("--held_out.size", "8", "--eval.data.size", "8", "--sampling.max_tokens", "8", "--reward.workers", "1"),
            *("--reward.terms", '[{verifier: "tests.some_verifiers:short"}]', "--batch_size", "8"),
            *("--run.checkpoint_every", "4", "--eval.every", "4", "--epochs", "1", *overrides),
        )
        train_sft(config, resume=resume)
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]

    return run


def test_a_run_learns_and_leaves_a_plain_model(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train("whole")
    assert [row["step"] for row in whole] == list(range(9))
    assert whole[-1]["held_out/nll"] < 0.9 * whole[0]["held_out/nll"]
    assert "held-out loss, nats a token" in capsys.readouterr().out
    with pytest.raises(UserError, match="holds a run already"):
        train("whole")
    AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoints" / "step-8")


def test_a_run_cut_after_a_checkpoint_has_the_metrics_of_the_uninterrupted_one(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    constant = ("--optimizer.schedule", "constant")
    whole = train("whole", "--run.steps", "8", *constant)
    train("cut", "--run.steps", "4", *constant)
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "sft/nll": 1.0}\n{"step": 6, "sf')
    assert train("cut", "--run.steps", "8", *constant, resume=True) == whole


def test_lora_trains_its_adapters_alone_resumes_to_the_bit_and_is_saved_merged(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    more = ("--model.lora_rank", "4", "--optimizer.schedule", "constant")
    whole = train("whole", "--run.steps", "4", *more, "--run.checkpoint_every", "2")
    train("cut", "--run.steps", "2", *more, "--run.checkpoint_every", "2")
    resumed = train("cut", "--run.steps", "4", *more, "--run.checkpoint_every", "2", resume=True)
    assert resumed[-2:] == whole[-2:]
    start = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    end = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "checkpoints" / "step-4").state_dict()
    assert {name for name in start if not torch.equal(start[name], end[name])} == {n for n in start if "_proj" in n}


def test_held_out_rows_and_questions_among_the_training_rows_are_refused(
    train: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="held-out prompts are also training prompts"):
        train("leak", "--held_out.split", "train")
    with pytest.raises(UserError, match="held-out problems are also training prompts"):
        train("leak", "--eval.data.split", "train")
    assert not (tmp_path / "leak").exists()
