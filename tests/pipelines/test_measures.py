"""What a pipeline measures: means over problems, what says nothing left out; and the taste of the miniature of R1."""

import pytest

from r1zero.algorithms.rewards import Reward
from r1zero.data.miniature.style import concludes, demonstrations, helpful
from r1zero.data.records import Completion, Problem
from r1zero.pipelines.measures import summarised
from r1zero.training.groups import ScoredGroup
from r1zero.verifiers import Outcome, Verdict

RIGHT, WRONG = Verdict(Outcome.CORRECT), Verdict(Outcome.WRONG)
SILENT, LATE = Verdict(Outcome.ERROR), Verdict(Outcome.TIMEOUT)


def group(*verdicts: Verdict, scores: tuple[float, ...] = ()) -> ScoredGroup:
    rewards = [
        Reward(
            value=None,
            keep=True,
            parts={"math": verdict},
            correct=None,
            scores={"judge": scores[i]} if scores else {},
        )
        for i, verdict in enumerate(verdicts)
    ]
    completion = Completion(token_ids=(1, 2), text="", logprobs=(0.0, 0.0), finish_reason="stop")
    return ScoredGroup(
        problem=Problem(id="p", prompt="1+1="),
        prompt_ids=(1,),
        completions=(completion,) * len(verdicts),
        rewards=tuple(rewards),
    )


def test_a_mean_is_over_problems_and_a_verdict_that_says_nothing_is_counted_and_left_out() -> None:
    # 1/2, 1 of the one that was judged, nothing known, 0: the mean of three problems.
    found = summarised([group(RIGHT, WRONG), group(RIGHT, SILENT), group(LATE, SILENT), group(WRONG, WRONG)])
    score = found["scores"]["math"]
    assert score["mean"] == pytest.approx(0.5)
    assert (score["unknown"], score["share"], found["tokens"]) == (3, True, 2.0)
    assert 0 < score["low"] < 0.5 < score["high"] < 1
    assert summarised([group(SILENT)])["scores"]["math"]["mean"] is None


def test_a_reward_model_s_scores_are_no_shares() -> None:
    score = summarised([group(RIGHT, scores=(-1.0,)), group(RIGHT, scores=(3.0,))])["scores"]["judge"]
    assert (score["mean"], score["share"]) == (1.0, False)
    # 1.96 * sqrt(8) / sqrt(2) on either side
    assert (score["low"], score["high"]) == (pytest.approx(-2.92), pytest.approx(4.92))


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<think>3+4=7,7+5=12,12</think><answer>12</answer>", 1.0),
        ("<think>3+4=7,7+5=12</think><answer>12</answer>", 0.5),
        ("<think>3+4=7,7+5=12,12,12</think><answer>12</answer>", 0.5),  # twice is padding
        ("<think>3+4=7,7+5=13,13</think><answer>13</answer>", 0.5),  # concludes, and is wrong
        ("<think>3+4=7,7+5=13,12</think><answer>12</answer>", 0.5),  # not what the last step came to
        ("<think>3+4=7,7+5=13</think><answer>13</answer>", 0.0),
    ],
)
def test_the_taste_is_a_conclusion_and_half_of_it_a_right_answer(response: str, score: float) -> None:
    verdict = helpful(response, Problem(id="p", prompt="3+4+5="))
    assert (verdict.score, verdict.correct) == (score, score == 1.0)


def test_the_wanted_share_of_demonstrations_is_in_the_taste_and_all_are_right() -> None:
    rows = demonstrations(split="train", size=400, seed=0, concluded=0.3)
    assert sum(concludes(row["response"]) for row in rows) == pytest.approx(120, abs=30)
    scores = [helpful(row["response"], Problem(id="p", prompt=row["prompt"])).score for row in rows]
    assert set(scores) == {0.5, 1.0}
