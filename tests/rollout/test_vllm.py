"""The vLLM engine, real, on this machine: against the transformers engine, which the fast tests check by hand."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from r1zero.config import EngineConfig
from r1zero.data.records import Completion
from r1zero.errors import UserError
from r1zero.rollout import Sampling, make_engine
from r1zero.rollout.hf import TransformersEngine
from r1zero.rollout.mismatch import MismatchGuard, Scored, logits_alone
from r1zero.rollout.vllm_process import memory_policy
from tests.tiny_models import CHAT_EOS, EOS, char_tokenizer, save_model, tiny_llama

pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.slow

TOKENIZER = char_tokenizer()
PROMPTS = [TOKENIZER.encode(text) for text in ("1+2=", "What is 12+34?", "x", "1+2=", "0123456789" * 4)]
GREEDY = Sampling(max_tokens=24, temperature=0.0)
SAMPLED = Sampling(max_tokens=24, seed=5, stop_token_ids=(EOS,))
# Every parameter below would change what is sampled, were it heeded.
GENERATION = {"do_sample": True, "temperature": 0.1, "top_k": 1, "repetition_penalty": 5.0, "eos_token_id": CHAT_EOS}


class State:
    """What a start of vLLM must leave as it was."""

    def __init__(self) -> None:
        self.affinity = os.sched_getaffinity(0)
        self.memory_policy = memory_policy()
        self.threads = torch.get_num_threads()
        self.set_num_threads = torch.set_num_threads
        self.draws = (random.random(), float(np.random.rand()), torch.rand(1).item())


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, State, State]]:
    """One vLLM for the module, with the process's state around its start."""
    folder = save_model(tmp_path_factory.mktemp("model"), tiny_llama(), pad_is_eos=True, generation=GENERATION)

    def seeded() -> None:
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)

    seeded()
    before = State()
    seeded()
    config = EngineConfig(name="vllm", max_sequences=64)
    engine = make_engine(config, folder, compute_dtype=torch.float32, max_context=128)
    yield engine, before, State()
    engine.close()


@pytest.fixture
def engine(started: tuple[Any, State, State]) -> Any:
    """vLLM with the weights of `tiny_llama()`."""
    started[0].sync_weights(tiny_llama())
    return started[0]


@pytest.fixture
def reference() -> TransformersEngine:
    return TransformersEngine(tiny_llama(), tokenizer=char_tokenizer(pad_is_eos=True), max_context=128)


def largest_gap(ours: list[tuple[Completion, ...]], theirs: list[tuple[Completion, ...]]) -> float:
    """Largest |logprob difference|; the tokens must be the same."""
    assert [[c.token_ids for c in group] for group in ours] == [[c.token_ids for c in group] for group in theirs]
    pairs = [(a, b) for g, h in zip(ours, theirs, strict=True) for a, b in zip(g, h, strict=True)]
    assert all(a.finish_reason == b.finish_reason and a.text == b.text for a, b in pairs)
    return max(abs(x - y) for a, b in pairs for x, y in zip(a.logprobs, b.logprobs, strict=True))


def scored_by_trainer(model: Any, groups: list[tuple[Completion, ...]], temperature: float = 1.0) -> list[Scored]:
    rows = []
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for c in group:
            logprobs = (logits_alone(model, prompt, c.token_ids) / temperature).log_softmax(-1)
            picked = logprobs.gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0].tolist()
            rows.append(Scored(prompt_ids=prompt, completion=c, trainer_logprobs=picked))
    return rows


def test_the_start_leaves_threads_memory_and_random_state_alone(started: tuple[Any, State, State]) -> None:
    _, before, after = started
    assert vars(before) == vars(after)


def test_greedy_tokens_are_the_transformers_engine_s(engine: Any, reference: TransformersEngine) -> None:
    assert largest_gap(engine.generate(PROMPTS, GREEDY, 1), reference.generate(PROMPTS, GREEDY, 1)) < 1e-4


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.5])
def test_logprobs_are_those_of_the_sampled_distribution(engine: Any, temperature: float) -> None:
    sampling = Sampling(max_tokens=24, temperature=temperature, seed=3, stop_token_ids=(EOS,))
    rows = scored_by_trainer(tiny_llama(), engine.generate(PROMPTS, sampling, 4), temperature)
    guard = MismatchGuard(threshold=0.05)
    mismatch, causes = guard.check(rows, sampling, lambda p, t: logits_alone(tiny_llama(), p, t), num_updates=0)
    assert mismatch.max_abs < 1e-4
    assert causes == []


def test_a_sync_changes_the_weights_both_ways_and_copies_them(engine: Any, reference: TransformersEngine) -> None:
    before = engine.generate(PROMPTS, GREEDY, 1)
    other = tiny_llama(seed=1)  # the head is tied to the embedding
    engine.sync_weights(other)
    reference.sync_weights(other)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    moved = engine.generate(PROMPTS, GREEDY, 1)
    assert moved != before
    assert largest_gap(moved, reference.generate(PROMPTS, GREEDY, 1)) < 1e-4
    engine.sync_weights(tiny_llama())
    assert engine.generate(PROMPTS, GREEDY, 1) == before


def test_a_forgotten_sync_is_named_stale(engine: Any) -> None:
    guard = MismatchGuard(threshold=0.05)
    moved = tiny_llama()
    for num_updates, expected in ((0, []), (1, ["stale_weights"])):
        rows = scored_by_trainer(moved, engine.generate(PROMPTS, SAMPLED, 4))
        _, causes = guard.check(rows, SAMPLED, lambda p, t: logits_alone(moved, p, t), num_updates=num_updates)
        assert [cause.name for cause in causes] == expected
        with torch.no_grad():
            for i, parameter in enumerate(moved.parameters()):
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))


def test_a_seed_repeats_and_does_not_depend_on_the_batch(engine: Any) -> None:
    first = engine.generate(PROMPTS, SAMPLED, 4)
    assert engine.generate(PROMPTS, SAMPLED, 4) == first
    assert engine.generate(PROMPTS, Sampling(max_tokens=24, seed=6, stop_token_ids=(EOS,)), 4) != first
    alone = engine.generate(PROMPTS[:1], SAMPLED, 2)
    assert [c.token_ids for c in alone[0]] == [c.token_ids for c in first[0][:2]]
    assert len({c.token_ids for group in (first[0], first[3]) for c in group}) == 8  # equal prompts, own streams


def test_every_sampling_parameter_is_heeded_and_generation_config_is_not(engine: Any) -> None:
    def texts(**parameters: Any) -> list[str]:
        sampling = Sampling(max_tokens=24, seed=1, **parameters)
        return [c.text for group in engine.generate(PROMPTS, sampling, 4) for c in group]

    def distinct(**parameters: Any) -> int:
        return len(set(texts(**parameters)))

    # top_k 1 or temperature 0.1 from the folder would make the four samples of a prompt (nearly) one.
    assert distinct() == 20
    for greedy in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 0.0}):
        assert distinct(**greedy) == 4, greedy  # two of the five prompts are equal
    for parameters in ({"temperature": 0.5}, {"top_p": 0.5}, {"top_k": 5}, {"min_p": 0.2}):
        assert texts(**parameters) != texts(), parameters


@pytest.mark.parametrize("cut", [{"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}])
def test_logprobs_of_a_cut_are_of_what_is_left_as_in_the_transformers_engine(engine: Any, cut: dict[str, Any]) -> None:
    from r1zero.rollout.hf import filtered

    sampling = Sampling(max_tokens=12, temperature=0.8, seed=1, **cut)
    for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, sampling, 2), strict=True):
        for c in group:
            logits = filtered(logits_alone(tiny_llama(), prompt, c.token_ids) / 0.8, sampling)
            expected = logits.log_softmax(-1).gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0]
            assert torch.tensor(c.logprobs) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("stops", [(EOS,), (CHAT_EOS,), (EOS, CHAT_EOS), ()])
def test_only_listed_stop_tokens_end_a_completion_and_stay_in_it(engine: Any, stops: tuple[int, ...]) -> None:
    sampling = Sampling(max_tokens=60, seed=2, stop_token_ids=stops)
    completions = [c for group in engine.generate(PROMPTS, sampling, 8) for c in group]
    ended = [c for c in completions if c.finish_reason == "stop"]
    assert bool(ended) == bool(stops)
    assert all(c.token_ids[-1] in stops and not set(c.token_ids[:-1]) & set(stops) for c in ended)
    assert all(c.num_tokens == 60 and c.truncated for c in completions if c not in ended)
    assert all(len(c.logprobs) == c.num_tokens for c in completions)
    assert not any("<eos>" in c.text or "<im_end>" in c.text for c in completions)


def test_a_stop_text_ends_a_completion_and_stays_in_its_text(engine: Any, reference: TransformersEngine) -> None:
    free = engine.generate(PROMPTS, GREEDY, 1)[1][0].text
    stop = Sampling(max_tokens=24, temperature=0.0, stop=(free[5:8],))
    ended = engine.generate(PROMPTS, stop, 1)
    assert ended[1][0].finish_reason == "stop"
    assert ended[1][0].text == free[: free.index(free[5:8]) + 3]
    assert largest_gap(ended, reference.generate(PROMPTS, stop, 1)) < 1e-4


def test_each_completion_is_announced_once(engine: Any) -> None:
    seen: dict[tuple[int, int], Completion] = {}
    groups = engine.generate(PROMPTS, SAMPLED, 3, lambda i, j, c: seen.update({(i, j): c}))
    assert seen == {(i, j): c for i, group in enumerate(groups) for j, c in enumerate(group)}
    assert engine.generate([], SAMPLED, 3) == []


def test_more_sequences_than_fit_at_once_are_all_answered(engine: Any) -> None:
    groups = engine.generate(PROMPTS * 30, SAMPLED, 2)  # 300 over 64 at a time
    assert len(groups) == 150
    assert all(len(group) == 2 for group in groups)


def test_more_prompt_tokens_than_one_step_takes_are_all_answered(engine: Any) -> None:
    # With a seed and a prompt cut between two steps, vLLM 0.32.0 raises on a CPU: "CPU Generator does not use offset".
    prompts = [[5 + i] * 100 for i in range(60)]  # 6000 tokens over 4096 a step, none shared
    groups = engine.generate(prompts, Sampling(max_tokens=2, seed=0), 1)
    assert [c.num_tokens for (c,) in groups] == [2] * 60


def test_a_call_broken_off_leaves_nothing_for_the_next(engine: Any) -> None:
    expected = engine.generate(PROMPTS, SAMPLED, 2)

    def interrupt(i: int, j: int, completion: Completion) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS, SAMPLED, 2, interrupt)
    assert engine.generate(PROMPTS, SAMPLED, 2) == expected


def test_a_prompt_without_room_is_refused_and_the_limit_named(engine: Any) -> None:
    with pytest.raises(UserError, match=r"prompt 0 has 105 tokens and max_tokens is 24, together over .* 128"):
        engine.generate([[5] * 105], SAMPLED, 1)
    ((full,),) = engine.generate([[5] * 104], Sampling(max_tokens=24, seed=0), 1)
    assert (full.num_tokens, full.finish_reason) == (24, "length")


def test_sleep_and_wake_change_nothing_on_a_cpu(engine: Any) -> None:
    before = engine.generate(PROMPTS, GREEDY, 1)
    engine.sleep()
    assert engine.generate(PROMPTS, GREEDY, 1) == before
    engine.sleep()
    engine.wake()
    engine.sync_weights(tiny_llama())
    assert engine.generate(PROMPTS, GREEDY, 1) == before


def test_bfloat16_untied_with_biases_follows_a_sync_after_a_restart(
    started: tuple[Any, State, State], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Last in this file: it ends the module's engine. bfloat16 takes vLLM's other packed kernels, biases theirs.

    And a process group that the trainer had before must outlive the engine.
    """
    started[0].close()
    assert not torch.distributed.is_initialized()  # vLLM's own is gone
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = tiny_llama(tied=False, bias=True).to(torch.bfloat16)
    folder = save_model(tmp_path_factory.mktemp("untied"), model)
    config = EngineConfig(name="vllm", max_sequences=64)
    second = make_engine(config, folder, compute_dtype=torch.bfloat16, max_context=128)
    try:
        for seed in (0, 1, 0):
            trainer = tiny_llama(seed=seed, tied=False, bias=True)
            second.sync_weights(trainer)
            rows = scored_by_trainer(trainer.to(torch.bfloat16), second.generate(PROMPTS, SAMPLED, 4))
            guard = MismatchGuard(threshold=0.05, low_precision=True)
            mismatch, causes = guard.check(rows, SAMPLED, lambda p, t: torch.zeros(0), num_updates=0)
            assert mismatch.mean_abs < 0.05
            assert causes == []
    finally:
        second.close()
        kept = torch.distributed.is_initialized()
        torch.distributed.destroy_process_group()
    assert kept
