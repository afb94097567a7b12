"""Episodes: whose tokens are whose, budgets and ends, and the trainer's logprobs beside the engine's."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from r1zero.data.episodes import Budget, Episode
from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome
from r1zero.environments import EnvironmentSpec
from r1zero.environments.host import EnvironmentHost
from r1zero.environments.play import play
from r1zero.models.packing import Packed
from r1zero.models.policy import Policy, Row, micro_batches
from r1zero.prompts.template import load
from r1zero.prompts.turns import encode_messages
from r1zero.rollout.base import Sampling
from r1zero.rollout.hf import TransformersEngine
from r1zero.rollout.mismatch import measure
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.verifiers.sandbox import sandbox_status
from tests.chat_tokenizers import byte_tokenizer, sampling_of, turn_text
from tests.tiny_models import tiny_llama

PROBLEM = sandbox_status()
needs_namespaces = pytest.mark.skipif(PROBLEM is not None, reason=PROBLEM or "")
FAULTY, ENDLESS = "tests.some_environments:Faulty", "tests.some_environments:Endless"
GUESS = Problem(id="7", prompt="Guess my number.", answer="7")


@pytest.fixture(scope="module")
def guessing() -> Iterator[EnvironmentHost]:
    with EnvironmentHost(EnvironmentSpec(name="tests.some_environments:Guess"), workers=2, deadline_seconds=30) as host:
        yield host


def playing(host: EnvironmentHost, says: Sequence[str], **budget: int) -> Episode:
    text = turn_text("chatml")
    engine = ScriptedEngine(says, text.tokenizer)
    budget = {"max_turns": 5, "max_tokens": 500} | budget
    ((episode,),) = play(
        engine, [GUESS], text=text, sampling=sampling_of(text), n=1, budget=Budget(**budget), host=host
    )
    return episode


def test_an_episode_is_the_text_the_chat_template_writes_with_only_the_policy_s_tokens_its_own(
    guessing: EnvironmentHost,
) -> None:
    episode = playing(guessing, ["5", "9", "7"])
    tokenizer = byte_tokenizer("chatml")
    whole = tokenizer.decode([*episode.prompt_ids, *episode.token_ids])
    messages = [("user", "Guess my number."), ("assistant", "5"), ("user", "higher"), ("assistant", "9")]
    messages += [("user", "lower"), ("assistant", "7")]
    said = [{"role": role, "content": content} for role, content in messages]
    # The last turn's newline after <|im_end|> is the template's, which no token of the episode follows.
    assert whole + "\n" == tokenizer.apply_chat_template(said, tokenize=False)
    own = [token for token, mark in zip(episode.token_ids, episode.own, strict=True) if mark]
    assert tokenizer.decode(own) == "5<|im_end|>9<|im_end|>7<|im_end|>"
    assert (episode.num_own_tokens, episode.finish_reason, len(episode.turns)) == (6, "stop", 3)
    assert episode.verdict is not None
    assert episode.verdict.correct
    assert [turn.reward for turn in episode.turns] == [-0.2, -0.2, None]
    assert [lp for lp, mark in zip(episode.logprobs, episode.own, strict=True) if not mark] == [0.0] * (
        episode.num_tokens - 6
    )
    # Rewards by turn stand on each turn's last own token.
    per_token = episode.per_token({0: -0.2, 1: -0.2, 2: 1.0})
    places = [i for i, value in enumerate(per_token) if value]
    assert [per_token[i] for i in places] == [-0.2, -0.2, 1.0]
    assert all(tokenizer.decode([episode.token_ids[i]]) == "<|im_end|>" for i in places)


def test_budgets_of_turns_and_of_tokens_end_an_episode_by_name(guessing: EnvironmentHost) -> None:
    ended = playing(guessing, ["5"], max_turns=2)
    assert (ended.finish_reason, len(ended.turns), ended.turns[-1].observation_ids) == ("turns", 2, ())
    assert ended.verdict is not None
    assert ended.verdict.outcome is Outcome.TRUNCATED
    # 2 own tokens and the answer's turn: with one token less of budget no token is left for a second turn.
    answer = ended.turns[0].observation_ids
    assert playing(guessing, ["5"], max_tokens=2 + len(answer)).finish_reason == "length"
    # With two more the second turn says "5" and is cut before its <|im_end|>.
    cut = playing(guessing, ["5"], max_tokens=3 + len(answer))
    assert (cut.finish_reason, cut.num_tokens, cut.turns[1].completion.num_tokens) == ("length", 3 + len(answer), 1)
    assert cut.turns[1].completion.truncated


def test_without_an_environment_an_episode_is_the_engine_s_own_completion_to_the_bit() -> None:
    text = turn_text("chatml")
    engine = TransformersEngine(tiny_llama(vocab_size=259), tokenizer=text.tokenizer, max_context=200)
    sampling = sampling_of(text, seed=3)
    problems = [GUESS, Problem(id="2", prompt="1+1?")]
    groups = play(engine, problems, text=text, sampling=sampling, n=3)
    prompts = [text.template.encode(problem.prompt, text.tokenizer) for problem in problems]
    plain = engine.generate(prompts, sampling, 3)
    assert [[e.turns[0].completion for e in group] for group in groups] == [list(group) for group in plain]
    assert all(e.own == (True,) * e.num_tokens and len(e.turns) == 1 and e.verdict is None for g in groups for e in g)


@functools.cache
def shared_host(name: str, role: str = "") -> EnvironmentHost:
    spec = EnvironmentSpec(name=name, options={"role": role} if role else {})
    return EnvironmentHost(spec, workers=2, deadline_seconds=1 if name == FAULTY else 30)


@pytest.fixture(autouse=True, scope="module")
def _hosts_end() -> Iterator[None]:
    yield
    for name, *role in ((FAULTY,), (ENDLESS, "tool"), (ENDLESS, "user")):
        shared_host(name, *role).close()
    shared_host.cache_clear()


def endless(form: str, role: str, *, n: int = 4, seed: int = 1) -> tuple[Any, list[Episode]]:
    """Episodes of three turns with a random model. Half of all bytes end a turn, so that turns are short."""
    text = turn_text(form)
    model = tiny_llama(vocab_size=len(text.tokenizer))
    engine = TransformersEngine(model, tokenizer=text.tokenizer, max_context=512)
    stop = (*text.template.stop_token_ids(text.tokenizer), *range(0, 256, 8))
    sampling = Sampling(max_tokens=200, stop_token_ids=stop, seed=seed)
    budget = Budget(max_turns=3, max_tokens=400)
    host = shared_host(ENDLESS, role)
    (group,) = play(engine, [GUESS], text=text, sampling=sampling, n=n, budget=budget, host=host, in_step=True)
    return model, [episode for episode in group if len(episode.turns) == 3]


def rows_of(episodes: Sequence[Episode]) -> list[Row]:
    return [Row(prompt_ids=e.prompt_ids, completion_ids=e.token_ids, own=e.own) for e in episodes]


@pytest.mark.parametrize(
    ("form", "role"), [("chatml", "tool"), ("llama", "tool"), ("plain", "tool"), ("llama", "user")]
)
def test_the_trainer_s_logprobs_on_own_tokens_are_the_engine_s_packed_and_padded(form: str, role: str) -> None:
    model, episodes = endless(form, role)
    assert len(episodes) >= 2
    # What the environment wrote to end the turn stayed text.
    tokenizer = byte_tokenizer(form)
    for told in (turn.observation_ids for e in episodes for turn in e.turns[:-1]):
        assert "No.<|im_end|><|eot_id|> Again" in tokenizer.decode(told)
        assert sum(i in tokenizer.added_tokens_decoder for i in told) <= {"chatml": 4, "llama": 6, "plain": 0}[form]
    rows = rows_of(episodes)
    policy = Policy(model)
    assert policy.packed
    (packed,), (padded,) = policy.micro_batches(rows, 10_000), micro_batches(rows, 10_000)
    with torch.no_grad():
        for batch in (packed, padded):
            logprobs, _ = policy(batch)
            engine = torch.zeros(logprobs.shape)
            for place, index in enumerate(batch.indices):
                engine[place, : episodes[index].num_tokens] = torch.tensor(episodes[index].logprobs)
                assert batch.mask[place, : episodes[index].num_tokens].tolist() == list(episodes[index].own)
            mismatch = measure(engine, logprobs, batch.mask)
            assert mismatch.num_tokens == sum(e.num_own_tokens for e in episodes)
            assert mismatch.max_abs < 1e-4
            assert logprobs[~batch.mask].eq(0).all()


def test_a_masked_observation_has_no_gradient_and_packed_gradients_are_padded_ones() -> None:
    model, episodes = endless("chatml", "tool")
    policy, rows = Policy(model), rows_of(episodes)
    states: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        output.retain_grad()
        states.append(output)

    hook = model.model.norm.register_forward_hook(keep)
    gradients = []
    for (batch,) in (policy.micro_batches(rows, 10_000), micro_batches(rows, 10_000)):
        logprobs, _ = policy(batch)
        model.zero_grad()
        (-logprobs.sum()).backward()  # even by a loss that forgets its mask
        pushed = states.pop().grad.flatten(0, 1).ne(0).any(-1)  # the states that the head's gradient reaches
        # Exactly those before an own token. (Packed, rows of one prompt share the state before their first.)
        assert pushed.nonzero().flatten().tolist() == sorted(set(batch.inputs.predicting.tolist()))
        assert int(pushed.sum()) == sum(e.num_own_tokens for e in episodes) - (
            len(rows) - 1 if isinstance(batch.inputs, Packed) else 0
        )
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    hook.remove()
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


def test_a_row_s_marks_must_fit_its_tokens() -> None:
    with pytest.raises(ValueError, match="2 marks for 3 tokens"):
        Row(prompt_ids=(1,), completion_ids=(2, 3, 4), own=(True, False))
    with pytest.raises(ValueError, match="marks none"):
        Row(prompt_ids=(1,), completion_ids=(2, 3), own=(False, False))


def test_marks_of_one_row_leave_the_others_whole() -> None:
    rows = [
        Row(prompt_ids=(1,), completion_ids=(2, 3, 4), own=(True, False, True)),
        Row(prompt_ids=(1,), completion_ids=(5, 6)),
    ]
    for packed in (True, False):
        (batch,) = micro_batches(rows, 100, packed=packed)
        assert batch.mask.tolist() == [[True, False, True], [True, True, False]]
        assert batch.targets.tolist() == [2, 4, 5, 6]


def test_a_seeded_run_in_step_is_the_same_again() -> None:
    first, again = endless("chatml", "user")[1], endless("chatml", "user")[1]
    assert [e.token_ids for e in first] == [e.token_ids for e in again]
    assert len({e.token_ids for e in first}) == len(first)  # each has its own stream in later turns too


def test_a_slow_tool_of_one_episode_does_not_hold_up_the_others() -> None:
    text = turn_text("chatml")
    calls: list[tuple[float, int]] = []

    def script(prompt: Sequence[int], i: int, j: int) -> str:
        calls.append((time.monotonic(), len(prompt)))
        told = text.tokenizer.decode(prompt).count("<|im_start|>user") - 1
        return ["1", "8", "9", "7"][told] if slow(prompt) else ["8", "9", "6", "7"][told]

    def slow(prompt: Sequence[int]) -> bool:
        return "slow" in text.tokenizer.decode(prompt)

    problems = [Problem(id="slow", prompt="slow", answer="7"), GUESS]
    spec = EnvironmentSpec(name="tests.some_environments:Guess", options={"slow_below": 3})
    with EnvironmentHost(spec, workers=2) as host:
        ended: list[int] = []
        groups = play(
            ScriptedEngine(script, text.tokenizer), problems, text=text, sampling=sampling_of(text), n=1,
            budget=Budget(max_turns=4, max_tokens=1000), host=host, on_episode=lambda i, j, e: ended.append(i),
        )  # fmt: skip
    assert ended == [1, 0]  # all four turns of the quick one, while the slow one's first is answered
    assert all(e.verdict is not None and e.verdict.correct for group in groups for e in group)


@pytest.mark.parametrize(
    ("says", "outcome", "reason"),
    [
        ("hang", Outcome.TIMEOUT, "ran over 1 s: killed"),
        ("crash", Outcome.ERROR, "died"),
        ("raise", Outcome.ERROR, "no such luck"),
        ("nonsense", Outcome.ERROR, "neither an Observation nor a Verdict"),
    ],
)
def test_an_environment_at_fault_costs_its_own_episode_and_no_other(says: str, outcome: Outcome, reason: str) -> None:
    text = turn_text("chatml")
    engine = ScriptedEngine([says, "well"], text.tokenizer)
    began = time.monotonic()
    ((bad, good),) = play(
        engine,
        [GUESS],
        text=text,
        sampling=sampling_of(text),
        n=2,
        budget=Budget(max_turns=3),
        host=shared_host(FAULTY),
    )
    assert (bad.finish_reason, bad.verdict.outcome if bad.verdict else None) == ("tool_error", outcome)
    assert reason in bad.reason
    assert (good.finish_reason, good.verdict.correct if good.verdict else None) == ("stop", True)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("says", ["flood", "unicode"])
def test_a_flood_is_cut_and_lone_surrogates_are_replaced(says: str) -> None:
    text = turn_text("chatml")
    ((episode,),) = play(
        ScriptedEngine([says, "well"], text.tokenizer), [GUESS], text=text, sampling=sampling_of(text), n=1,
        budget=Budget(max_turns=3, max_tokens=100_000), host=shared_host(FAULTY),
    )  # fmt: skip
    told = episode.turns[0].observation
    assert episode.finish_reason == "stop"
    assert len(told) < 21_000
    assert ("characters left out" in told) is (says == "flood")


def test_messages_with_tools_are_written_by_the_chat_template_and_hold_no_control_token() -> None:
    text = turn_text("chatml")
    tools = [{"type": "function", "function": {"name": "double"}}]
    messages = [{"role": "system", "content": "Be<|im_end|> kind"}, {"role": "user", "content": "<|im_start|>2?"}]
    ids = encode_messages(text.template, messages, text.tokenizer, tools)
    expected = text.tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
    assert text.tokenizer.decode(ids) == expected
    end = text.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.count(end) == 3  # the tools', the system's and the user's own end; not the one in the text
    assert encode_messages(load("chat"), [{"role": "user", "content": "2?"}], text.tokenizer) == load("chat").encode(
        "2?", text.tokenizer
    )


def test_every_sampled_token_is_an_own_token_or_dropped_by_a_reason() -> None:
    """Over a run with faults: what the engine sampled is what the episodes hold, and what is dropped says why."""
    text = turn_text("chatml")
    engine = ScriptedEngine(["well", "raise", "unicode", "crash", "flood", "x" * 60], text.tokenizer)
    problems = [Problem(id=str(i), prompt="Say.") for i in range(4)]
    groups = play(
        engine, problems, text=text, sampling=sampling_of(text), n=3, budget=Budget(max_turns=2, max_tokens=60),
        host=shared_host(FAULTY),
    )  # fmt: skip
    episodes = [e for group in groups for e in group]
    assert len(episodes) == 12
    kept = [e for e in episodes if e.finish_reason != "tool_error"]
    dropped = [e for e in episodes if e.finish_reason == "tool_error"]
    assert dropped
    assert all(e.reason for e in dropped)
    assert engine.num_served == sum(len(e.turns) for e in episodes)
    rows = rows_of(kept)
    trained = sum(int(batch.mask.sum()) for batch in micro_batches(rows, 500))
    assert trained == sum(e.num_own_tokens for e in episodes) - sum(e.num_own_tokens for e in dropped)
