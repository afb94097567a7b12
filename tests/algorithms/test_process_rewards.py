"""Process supervision: where steps end in the tokens, what they earn, and the advantages by hand."""

import math

import pytest
import torch

from r1zero.algorithms.process_rewards import group_process_advantages, place_steps, text_lengths
from r1zero.algorithms.rewards import Reward, StepReward, combine
from r1zero.config import RewardConfig, RewardTerm, recipe
from r1zero.data.miniature import preferences as tiny_preferences
from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Outcome, Step, Verdict
from r1zero.errors import UserError
from tests.tiny_models import EOS, char_tokenizer


def sampled(text: str, *, ended: bool = True) -> Completion:
    ids = (*char_tokenizer()(text)["input_ids"], *([EOS] if ended else []))
    return Completion(
        token_ids=ids, text=text, logprobs=(-1.0,) * len(ids), finish_reason="stop" if ended else "length"
    )


def earned(*steps: tuple[int | None, float], keep: bool = True) -> Reward:
    made = tuple(StepReward(end=end, value=value) for end, value in steps)
    return Reward(value=0.0 if keep else None, keep=keep, parts={}, correct=None, steps=made)


def test_a_step_s_reward_stands_on_the_token_that_ends_it_and_the_whole_s_on_the_end_token() -> None:
    words = char_tokenizer()
    reward = earned((3, 1.0), (5, 0.5), (None, 0.25), (99, 0.125))
    assert place_steps(sampled("abcde"), reward, words, "") == [(2, 1.0), (4, 0.5), (5, 0.25), (5, 0.125)]
    # The verifier read two characters more, and the first step ends in them.
    assert place_steps(sampled("cde"), earned((2, 1.0), (4, 0.5)), words, "ab") == [(0, 1.0), (1, 0.5)]
    assert place_steps(sampled("abcde"), earned((3, 1.0), keep=False), words, "") == []


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8, one of them special."""

    def decode(self, ids: list[int], **_: object) -> str:
        return bytes(i for i in ids if i < 256).decode("utf-8", "replace")


def test_text_lengths_count_characters_where_a_character_takes_several_tokens() -> None:
    ids = [*"aé€".encode(), 256]
    assert text_lengths(ids, Bytes())[-1] == 3
    assert text_lengths(ids, Bytes())[0] == 1
    assert text_lengths([ord("x")] * 9, Bytes()) == list(range(1, 10))


def test_advantages_are_the_sums_of_normalised_rewards_of_this_and_later_steps_by_hand() -> None:
    words = char_tokenizer()
    # Rewards 1, 0 and 1, 0, 0 and a dropped one: mean 0.4, std sqrt(0.24).
    completions = [sampled("abcd"), sampled("abcdef"), sampled("ab")]
    rewards = [
        earned((2, 1.0), (None, 0.0)),
        earned((1, 1.0), (4, 0.0), (None, 0.0)),
        earned((1, 9.0), keep=False),
    ]
    found = group_process_advantages(completions, rewards, words, prefill="", num_positions=8, eps=0.0)
    up, down = 0.6 / math.sqrt(0.24), -0.4 / math.sqrt(0.24)
    assert found[0].tolist() == pytest.approx([up + down] * 2 + [down] * 3 + [0.0] * 3)
    assert found[1].tolist() == pytest.approx([up + 2 * down] + [2 * down] * 3 + [down] * 3 + [0.0])
    assert found[2].tolist() == [0.0] * 8
    flat = [earned((2, 1.0), (None, 1.0)), earned((None, 1.0))]
    same = group_process_advantages(completions[:2], flat, words, prefill="", num_positions=8)
    assert torch.equal(same, torch.zeros(2, 8))


def test_terms_with_steps_and_without_are_weighed_into_one_list_and_a_dropped_completion_has_none() -> None:
    config = RewardConfig(terms=[RewardTerm(verifier="a"), RewardTerm(verifier="b", weight=0.2)])
    steps = Verdict(Outcome.CORRECT, steps=(Step(3, 1.0), Step(7, 0.0)))
    reward = combine(config, {"a": steps, "b": Verdict(Outcome.CORRECT)})
    assert reward.steps == tuple(StepReward(end=e, value=v) for e, v in [(3, 1.0), (7, 0.0), (None, 0.2)])
    assert reward.value == pytest.approx(1.2)
    assert combine(config, {"a": steps, "b": Verdict(Outcome.ERROR)}).steps == ()


def test_a_verdict_s_steps_end_one_after_another_and_score_within_bounds() -> None:
    for steps in ((Step(3, 1.0), Step(3, 0.0)), (Step(0, 1.0),), (Step(1, 2.0),)):
        with pytest.raises(ValueError, match="step"):
            Verdict(Outcome.WRONG, steps=steps)


def test_the_miniature_s_steps_are_checked_one_by_one() -> None:
    problem = Problem(id="", prompt="3+4+5=")

    def scores(text: str) -> list[tuple[int, float]]:
        return [(step.end, step.score) for step in tiny_preferences.judge_steps(text, problem).steps]

    right = "<think>3+4=7,7+5=12</think><answer>12</answer>"
    assert scores(right) == [(12, 1.0), (19, 1.0), (len(right) + 1, 1.0)]
    wrong = "<think>3+4=6,6+5=11</think><answer>11</answer>"  # what follows a wrong step may be right
    assert [score for _, score in scores(wrong)] == [0.0, 1.0, 0.0]
    assert [score for _, score in scores("3+4=7,7+5=12,12+0=12")] == [1.0, 1.0, 0.0, 0.0]  # one too many, no answer
    assert scores("") == [(1, 0.0)]


def test_settings_that_do_not_go_with_process_rewards_are_refused() -> None:
    with pytest.raises(UserError, match="advantage process divides by the group's std"):
        recipe.load("tiny-process-cpu", ["--algorithm.std", "none"])
