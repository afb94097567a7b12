"""The transformers and scripted engines, and the choice between engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from r1zero import rollout
from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.rollout import Sampling, engine_name, make_engine
from r1zero.rollout.hf import TransformersEngine, filtered, sample
from r1zero.rollout.requests import stream_seed
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.rollout.weights import named_weights
from tests.tiny_models import CHAT_EOS, EOS, char_tokenizer, save_model, tiny_llama

TOKENIZER = char_tokenizer()
PROMPTS = [TOKENIZER.encode(text) for text in ("1+2=", "What is 12+34?", "x", "1+2=")]
SAMPLED = Sampling(max_tokens=20, seed=5, stop_token_ids=(EOS,))


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llama()


@pytest.fixture(scope="module")
def engine(model: Any) -> TransformersEngine:
    return TransformersEngine(model, tokenizer=TOKENIZER, max_context=128)


def logprobs_by_plain_forward(model: Any, prompt: Sequence[int], completion: Completion, temperature: float) -> Any:
    ids = torch.tensor([[*prompt, *completion.token_ids]])
    with torch.no_grad():
        logprobs = (model(input_ids=ids).logits[0, :-1] / temperature).log_softmax(-1)
    return logprobs.gather(-1, ids[0, 1:, None])[len(prompt) - 1 :, 0]


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_logprobs_are_those_of_a_plain_unpadded_forward(
    engine: TransformersEngine, model: Any, temperature: float
) -> None:
    sampling = Sampling(max_tokens=20, temperature=temperature, seed=1, stop_token_ids=(EOS,))
    for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, sampling, 3), strict=True):
        for completion in group:
            expected = logprobs_by_plain_forward(model, prompt, completion, temperature)
            assert torch.tensor(completion.logprobs) == pytest.approx(expected, abs=2e-5)


def test_greedy_takes_the_argmax_of_a_plain_forward(engine: TransformersEngine, model: Any) -> None:
    for prompt, (completion,) in zip(
        PROMPTS, engine.generate(PROMPTS, Sampling(max_tokens=12, temperature=0.0), 1), strict=True
    ):
        ids = torch.tensor([[*prompt, *completion.token_ids]])
        with torch.no_grad():
            argmax = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].argmax(-1)
        assert completion.token_ids == tuple(argmax.tolist())


def test_a_seed_repeats_to_the_bit_and_another_seed_does_not(engine: TransformersEngine) -> None:
    first, again = engine.generate(PROMPTS, SAMPLED, 4), engine.generate(PROMPTS, SAMPLED, 4)
    assert first == again
    assert first != engine.generate(PROMPTS, Sampling(max_tokens=20, seed=6, stop_token_ids=(EOS,)), 4)
    unseeded = Sampling(max_tokens=20, stop_token_ids=(EOS,))
    assert engine.generate(PROMPTS, unseeded, 4) != engine.generate(PROMPTS, unseeded, 4)


def test_a_completion_does_not_depend_on_its_batch(model: Any, engine: TransformersEngine) -> None:
    together = engine.generate(PROMPTS, SAMPLED, 4)
    apart = TransformersEngine(model, tokenizer=TOKENIZER, max_context=128, max_sequences=3)
    tokens = [[c.token_ids for c in group] for group in together]
    assert [[c.token_ids for c in group] for group in apart.generate(PROMPTS, SAMPLED, 4)] == tokens


def test_equal_prompts_and_samples_have_their_own_streams(engine: TransformersEngine) -> None:
    groups = engine.generate(PROMPTS, SAMPLED, 4)
    texts = {c.token_ids for group in (groups[0], groups[3]) for c in group}
    assert len(texts) == 8
    assert stream_seed(0, 0, 1) != stream_seed(1, 0, 0)


def test_sampling_follows_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.2, 0.0])
    streams = [np.random.Generator(np.random.Philox(i)) for i in range(20_000)]
    logits = probabilities.log().expand(len(streams), -1)
    token_ids, logprobs = sample(logits, Sampling(max_tokens=1), streams)
    shares = torch.bincount(token_ids, minlength=4) / len(streams)
    assert shares.tolist() == pytest.approx(probabilities.tolist(), abs=0.015)  # four standard errors
    assert shares[3] == 0
    assert logprobs == pytest.approx(probabilities.log()[token_ids], abs=1e-6)


def test_cuts_keep_what_is_worked_out_by_hand() -> None:
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()

    def kept(**cut: Any) -> list[bool]:
        return filtered(logits, Sampling(max_tokens=1, **cut)).isfinite()[0].tolist()

    assert kept() == [True, True, True, True]
    assert kept(top_k=2) == [True, True, False, False]
    assert kept(top_p=0.65) == [True, True, False, False]  # 0.4 is short of 0.65, with 0.3 it is passed
    assert kept(top_p=0.01) == [True, False, False, False]
    assert kept(min_p=0.6) == [True, True, False, False]  # 0.24 is the floor
    assert kept(top_k=3, top_p=0.7) == [True, True, False, False]  # of 0.9: 0.44 and 0.33 pass 0.7


def test_logprobs_of_a_cut_are_of_what_is_left(engine: TransformersEngine) -> None:
    ((completion,),) = engine.generate(PROMPTS[:1], Sampling(max_tokens=8, top_k=1, seed=0), 1)
    assert completion.logprobs == pytest.approx([0.0] * 8)


def test_only_listed_stop_tokens_end_a_completion_and_stay_in_it(engine: TransformersEngine) -> None:
    for stops in ((EOS,), (CHAT_EOS,), (EOS, CHAT_EOS), ()):
        sampling = Sampling(max_tokens=60, seed=2, stop_token_ids=stops)
        completions = [c for group in engine.generate(PROMPTS, sampling, 8) for c in group]
        ended = [c for c in completions if c.finish_reason == "stop"]
        assert bool(ended) == bool(stops)
        assert all(c.token_ids[-1] in stops and not set(c.token_ids[:-1]) & set(stops) for c in ended)
        assert all(c.num_tokens == 60 and c.truncated for c in completions if c not in ended)
        assert not any("<eos>" in c.text or "<im_end>" in c.text for c in completions)


def test_a_stop_text_ends_a_completion_and_stays_in_its_text(engine: TransformersEngine) -> None:
    free = engine.generate(PROMPTS, Sampling(max_tokens=40, temperature=0.0), 1)[1][0].text
    stop = free[5:8]
    ended = engine.generate(PROMPTS, Sampling(max_tokens=40, temperature=0.0, stop=(stop,)), 1)[1][0]
    assert ended.finish_reason == "stop"
    assert ended.text == free[: free.index(stop) + 3]


def test_each_completion_is_announced_once(engine: TransformersEngine) -> None:
    seen: dict[tuple[int, int], Completion] = {}
    groups = engine.generate(PROMPTS, SAMPLED, 3, lambda i, j, c: seen.update({(i, j): c}))
    assert seen == {(i, j): c for i, group in enumerate(groups) for j, c in enumerate(group)}
    assert len(seen) == 12


def test_a_live_module_is_shared_and_left_as_it_was(model: Any) -> None:
    engine = TransformersEngine(model, tokenizer=TOKENIZER, max_context=128)
    model.train()
    engine.sync_weights(model)
    engine.generate(PROMPTS[:1], SAMPLED, 1)
    assert model.training
    out = model(input_ids=torch.tensor([PROMPTS[0]]))
    out.logits.sum().backward()  # what generate cached must not spoil the backward pass
    model.zero_grad()
    model.eval()


def test_a_sync_takes_over_every_weight_and_copies() -> None:
    engine = TransformersEngine(tiny_llama(seed=0), tokenizer=TOKENIZER, max_context=128)
    other = tiny_llama(seed=1)
    greedy = Sampling(max_tokens=12, temperature=0.0)
    expected = TransformersEngine(other, tokenizer=TOKENIZER, max_context=128).generate(PROMPTS, greedy, 1)
    assert engine.generate(PROMPTS, greedy, 1) != expected
    engine.sync_weights(other)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert engine.generate(PROMPTS, greedy, 1) == expected


def test_no_prompts_give_no_groups(engine: TransformersEngine) -> None:
    assert engine.generate([], SAMPLED, 4) == []


def test_a_prompt_without_room_is_refused_and_the_limit_named(engine: TransformersEngine) -> None:
    with pytest.raises(UserError, match=r"prompt 1 has 109 tokens and max_tokens is 20, together over .* 128"):
        engine.generate([[5], [5] * 109], SAMPLED, 1)
    assert engine.generate([[5] * 108], SAMPLED, 1)[0][0].num_tokens <= 20
    with pytest.raises(UserError, match="prompt 0 has no tokens"):
        engine.generate([[]], SAMPLED, 1)


def test_an_engine_that_needs_more_positions_than_the_model_has_is_refused(model: Any) -> None:
    with pytest.raises(UserError, match="context of 513 tokens and the model has 512 positions"):
        TransformersEngine(model, tokenizer=TOKENIZER, max_context=513)


def test_a_folder_that_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a model"):
        TransformersEngine(str(tmp_path), max_context=64)


def test_the_folder_s_generation_config_has_no_say(tmp_path: Path, model: Any, engine: TransformersEngine) -> None:
    generation = {"do_sample": True, "temperature": 0.1, "top_k": 1, "eos_token_id": CHAT_EOS, "max_length": 9}
    folder = save_model(tmp_path, model, pad_is_eos=True, generation=generation)
    config = EngineConfig(name="transformers")
    loaded = make_engine(config, folder, compute_dtype=torch.float32, max_context=128)
    theirs, ours = loaded.generate(PROMPTS, SAMPLED, 4), engine.generate(PROMPTS, SAMPLED, 4)
    assert [[c.token_ids for c in group] for group in theirs] == [[c.token_ids for c in group] for group in ours]


def test_auto_is_vllm_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "vllm_installed", lambda: True)
    assert engine_name(EngineConfig()) == "vllm"
    monkeypatch.setattr(rollout, "vllm_installed", lambda: False)
    assert engine_name(EngineConfig()) == "transformers"
    with pytest.raises(UserError, match=r"make setup.*pip install 'r1zero\[vllm"):
        engine_name(EngineConfig(name="vllm"))


def test_named_weights_are_the_checkpoint_s_with_tied_ones_once() -> None:
    tied, untied = tiny_llama(tied=True), tiny_llama(tied=False)
    assert "lm_head.weight" not in dict(named_weights(tied))
    assert set(dict(named_weights(untied))) == set(untied.state_dict())
    compiled = torch.compile(tied)
    assert set(dict(named_weights(compiled))) == set(dict(named_weights(tied)))


def test_lora_weights_are_merged_for_the_engine() -> None:
    peft = pytest.importorskip("peft")
    base = tiny_llama()
    names = set(dict(named_weights(base)))
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    merged = dict(named_weights(adapted))
    assert set(merged) == names
    prompt = torch.tensor([PROMPTS[1]])
    with torch.no_grad():
        expected = adapted(input_ids=prompt).logits
        plain = tiny_llama(seed=9)
        plain.load_state_dict(merged, strict=False)
        assert torch.allclose(plain(input_ids=prompt).logits, expected, atol=1e-4)


def test_the_scripted_engine_speaks_its_lines_in_turn() -> None:
    engine = ScriptedEngine(["ab", "abcdef"], TOKENIZER, logprob=-0.25)
    ((first, second),) = engine.generate([[5]], Sampling(max_tokens=4, stop_token_ids=(EOS,)), 2)
    assert (first.text, first.finish_reason, first.num_tokens) == ("ab", "stop", 3)
    assert first.token_ids[-1] == EOS
    assert (second.text, second.finish_reason) == ("abcd", "length")
    assert second.logprobs == (-0.25,) * 4


def test_the_scripted_engine_answers_from_a_function() -> None:
    engine = ScriptedEngine(lambda prompt, i, j: f"{len(prompt)}{i}{j}", TOKENIZER)
    groups = engine.generate([[5], [5, 6]], Sampling(max_tokens=9), 2)
    assert [[c.text for c in group] for group in groups] == [["100", "101"], ["210", "211"]]
    engine.sleep()
    with pytest.raises(RuntimeError, match="sleeping"):
        engine.generate([[5]], Sampling(max_tokens=9), 1)
