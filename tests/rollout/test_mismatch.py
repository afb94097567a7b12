"""The mismatch guard: its numbers by hand, and each planted fault caught and named, with a real engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from r1zero.data.records import Completion
from r1zero.rollout.base import Sampling
from r1zero.rollout.hf import TransformersEngine
from r1zero.rollout.mismatch import MismatchGuard, logits_alone, measure
from r1zero.rollout.mismatch_causes import Scored, fit_temperature
from tests.tiny_models import CHAT_EOS, EOS, char_tokenizer, tiny_gpt2, tiny_llama

PROMPTS = ["1+2=", "What is 12+34?", "x", "Please add 3, 4 and 5 for me now: ", "7*8", "0123456789" * 3]
SAMPLING = Sampling(max_tokens=24, temperature=1.0, seed=7, stop_token_ids=(EOS,))


def engine_on(model: Any) -> TransformersEngine:
    return TransformersEngine(model, tokenizer=char_tokenizer(), max_context=128)


def sampled(engine: TransformersEngine, sampling: Sampling = SAMPLING) -> list[tuple[list[int], Completion]]:
    prompts = [char_tokenizer().encode(text) for text in PROMPTS]
    groups = engine.generate(prompts, sampling, 3)
    return [(prompt, c) for prompt, group in zip(prompts, groups, strict=True) for c in group]


def trainer_logprobs(
    model: Any, pairs: Sequence[tuple[list[int], Completion]], *, temperature: float = 1.0, positions: str = "right"
) -> list[Scored]:
    """The trainer's forward over one left-padded batch: prompts end in the same column. `positions`: `right`; `none`
    (the model counts the padding too); `gap` (the prompt's from the mask, the completion's from the columns)."""
    width = max(len(prompt) for prompt, _ in pairs)
    longest = max(c.num_tokens for _, c in pairs)
    ids = torch.zeros(len(pairs), width + longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(pairs):
        start = width - len(prompt)
        tokens = torch.tensor([*prompt, *completion.token_ids])
        ids[row, start : start + len(tokens)] = tokens
        mask[row, start : start + len(tokens)] = 1
    position_ids: torch.Tensor | None = (mask.cumsum(-1) - 1).clamp(min=0)
    if positions == "none":
        position_ids = None
    elif positions == "gap":
        assert position_ids is not None
        position_ids[:, width:] = torch.arange(width, width + longest)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask, position_ids=position_ids).logits / temperature
    logprobs = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    return [
        Scored(
            prompt_ids=prompt,
            completion=completion,
            trainer_logprobs=logprobs[row, width - 1 : width - 1 + completion.num_tokens].tolist(),
            left_padding=width - len(prompt),
        )
        for row, (prompt, completion) in enumerate(pairs)
    ]


def causes_of(
    model: Any, rows: Sequence[Scored], *, sampling: Sampling = SAMPLING, num_updates: int = 0, **kwargs: Any
) -> list[str]:
    guard = MismatchGuard(threshold=0.05, tokenizer=char_tokenizer(), **kwargs)
    _, causes = guard.check(rows, sampling, lambda p, t: logits_alone(model, p, t), num_updates=num_updates)
    return [cause.name for cause in causes]


def test_the_measures_are_those_worked_out_by_hand() -> None:
    engine = torch.tensor([[-1.0, -2.0, float("nan")]])
    trainer = torch.tensor([[-1.0 + math.log(2), -2.0 - math.log(2), 0.0]])
    mismatch = measure(engine, trainer, torch.tensor([[True, True, False]]), threshold=0.5)
    assert mismatch.mean_abs == pytest.approx(math.log(2))
    assert mismatch.kl_k1 == pytest.approx(0.0, abs=1e-7)
    assert mismatch.mean_ratio == pytest.approx((2 + 0.5) / 2)
    assert mismatch.kl_k3 == pytest.approx((2 + 0.5) / 2 - 1)  # the two log-ratios cancel
    assert mismatch.share_above == 1.0
    assert mismatch.num_tokens == 2


def test_no_tokens_are_no_mismatch() -> None:
    empty = torch.zeros(0, 0)
    assert measure(empty, empty, empty.bool()).mean_ratio == 1.0


def test_the_temperature_fit_finds_a_known_temperature() -> None:
    logits = torch.tensor([3.0, 1.0, 0.0])
    target = (logits / 0.6).log_softmax(-1)
    found = fit_temperature(lambda t: ((logits / t).log_softmax(-1) - target).abs().mean().item(), 1.0)
    assert found == pytest.approx(0.6, rel=0.005)


def test_a_right_trainer_is_far_under_the_bound_and_names_no_cause() -> None:
    model = tiny_llama()
    rows = trainer_logprobs(model, sampled(engine_on(model)))
    guard = MismatchGuard(threshold=0.05, end_token_ids=(EOS,))
    mismatch, causes = guard.check(rows, SAMPLING, lambda p, t: logits_alone(model, p, t), num_updates=0)
    assert causes == []
    assert mismatch.mean_abs < 1e-5  # float32 on both sides
    assert mismatch.mean_ratio == pytest.approx(1.0, abs=1e-4)


def test_position_ids_that_count_the_padding_are_named() -> None:
    # With learned positions; rotary ones only see differences, which the padding leaves as they are.
    model = tiny_gpt2()
    pairs = sampled(engine_on(model))
    assert causes_of(model, trainer_logprobs(model, pairs)) == []
    assert causes_of(model, trainer_logprobs(model, pairs, positions="none")) == ["left_padding"]


def test_a_gap_in_rotary_positions_under_left_padding_is_named() -> None:
    model = tiny_llama()
    rows = trainer_logprobs(model, sampled(engine_on(model)), positions="gap")
    assert causes_of(model, rows) == ["left_padding"]


@pytest.mark.parametrize("temperature", [0.7, 1.4])
def test_a_temperature_that_only_the_engine_knows_is_named(temperature: float) -> None:
    model = tiny_llama()
    pairs = sampled(engine_on(model), Sampling(max_tokens=24, temperature=temperature, seed=7, stop_token_ids=(EOS,)))
    assert causes_of(model, trainer_logprobs(model, pairs)) == ["engine_temperature"]


@pytest.mark.parametrize("temperature", [0.6, 1.2])
def test_a_temperature_that_the_trainer_leaves_out_is_named(temperature: float) -> None:
    model = tiny_llama()
    sampling = Sampling(max_tokens=24, temperature=temperature, seed=7, stop_token_ids=(EOS,))
    pairs = sampled(engine_on(model), sampling)
    assert causes_of(model, trainer_logprobs(model, pairs, temperature=temperature), sampling=sampling) == []
    assert causes_of(model, trainer_logprobs(model, pairs), sampling=sampling) == ["trainer_temperature"]


def test_a_stale_weight_sync_is_named_once_the_policy_has_moved() -> None:
    model, behind = tiny_llama(), engine_on(tiny_llama())  # equal weights in two copies
    guard = MismatchGuard(threshold=0.05, end_token_ids=(EOS,))

    def step(num_updates: int) -> list[str]:
        rows = trainer_logprobs(model, sampled(behind))
        _, causes = guard.check(rows, SAMPLING, lambda p, t: logits_alone(model, p, t), num_updates=num_updates)
        return [cause.name for cause in causes]

    assert step(0) == []
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i))
            parameter.add_(0.01 * noise)
    assert step(1) == ["stale_weights"]
    behind.sync_weights(model)
    assert step(2) == []


def test_other_weights_from_the_start_are_not_called_stale() -> None:
    rows = trainer_logprobs(tiny_llama(seed=1), sampled(engine_on(tiny_llama(seed=0))))
    assert causes_of(tiny_llama(seed=1), rows) == ["other_weights"]


def test_an_end_token_that_the_engine_runs_past_is_named() -> None:
    model = tiny_llama()
    pairs = sampled(engine_on(model))  # stops at <eos>; the chat template ends with <im_end>
    assert any(CHAT_EOS in c.token_ids for _, c in pairs)  # or the test tests nothing
    rows = trainer_logprobs(model, pairs)
    assert causes_of(model, rows, end_token_ids=(EOS, CHAT_EOS)) == ["end_token"]
    assert causes_of(model, rows, end_token_ids=(EOS,)) == []


def test_a_trainer_that_scores_another_end_token_is_named() -> None:
    model = tiny_llama()
    pairs = sampled(engine_on(model), Sampling(max_tokens=60, seed=3, stop_token_ids=(EOS, CHAT_EOS)))
    assert any(c.finish_reason == "stop" for _, c in pairs)
    swapped = []
    for prompt, c in pairs:
        other = {EOS: CHAT_EOS, CHAT_EOS: EOS}.get(c.token_ids[-1], c.token_ids[-1])
        tokens = (*c.token_ids[:-1], other)
        swapped.append((prompt, Completion(token_ids=tokens, text="", logprobs=c.logprobs, finish_reason="stop")))
    scored = trainer_logprobs(model, swapped)
    rows = [
        Scored(prompt_ids=s.prompt_ids, completion=c, trainer_logprobs=s.trainer_logprobs, left_padding=s.left_padding)
        for s, (_, c) in zip(scored, pairs, strict=True)
    ]
    assert causes_of(model, rows) == ["end_token"]


def test_a_cut_that_the_config_names_and_the_trainer_cannot_see_is_named() -> None:
    model = tiny_llama()
    sampling = Sampling(max_tokens=24, top_p=0.8, seed=7, stop_token_ids=(EOS,))
    rows = trainer_logprobs(model, sampled(engine_on(model), sampling))
    assert causes_of(model, rows, sampling=sampling) == ["cut"]


def test_a_cut_that_the_config_does_not_name_is_named() -> None:
    model = tiny_llama()
    pairs = sampled(engine_on(model), Sampling(max_tokens=24, top_k=20, seed=7, stop_token_ids=(EOS,)))
    assert causes_of(model, trainer_logprobs(model, pairs)) == ["cut"]


def test_bfloat16_from_the_first_step_on_is_called_rounding() -> None:
    model = tiny_llama()
    engine = TransformersEngine(
        model, tokenizer=char_tokenizer(), max_context=128, compute_dtype=torch.bfloat16
    )  # under autocast
    pairs = sampled(engine)
    rows = trainer_logprobs(model, pairs)
    guard = MismatchGuard(threshold=0.001, low_precision=True)
    mismatch, causes = guard.check(rows, SAMPLING, lambda p, t: logits_alone(model, p, t), num_updates=0)
    assert mismatch.mean_abs < 0.05
    assert [cause.name for cause in causes] == ["rounding"]
