"""What is kept of a problem's samples, and for which reason the rest is not: worked by hand."""

import pytest

from r1zero.algorithms.rejection_selection import Candidate, balanced, choose, make_pairs, unusable
from r1zero.config import PairsConfig, RewardConfig, RewardTerm, SelectionConfig
from r1zero.verifiers import Outcome

REWARD = RewardConfig(
    terms=[
        RewardTerm(verifier="math"),
        RewardTerm(verifier="answer_tags", name="tags", weight=0.5),
        RewardTerm(verifier="language", weight=0.0),
    ]
)
RIGHT, WRONG = Outcome.CORRECT, Outcome.WRONG


def sample(
    index: int,
    reward: float | None = 1.0,
    *,
    text: str | None = None,
    math: Outcome = RIGHT,
    tags: Outcome = RIGHT,
    language: Outcome = RIGHT,
    tokens: int = 10,
    truncated: bool = False,
    unfit: str = "",
) -> Candidate:
    return Candidate(
        index=index,
        text=f"answer {index}" if text is None else text,
        num_tokens=tokens,
        truncated=truncated,
        reward=reward,
        outcomes={"math": math, "tags": tags, "language": language},
        unfit=unfit,
    )


def kept(samples: list[Candidate], **select: object) -> tuple[list[int], dict[str, int]]:
    chosen, dropped = choose(samples, SelectionConfig(**select), REWARD)  # type: ignore[arg-type]
    return [c.index for c in chosen], dict(dropped)


def pairs(samples: list[Candidate], **settings: object) -> tuple[list[tuple[int, int]], str]:
    found, reason = make_pairs(samples, PairsConfig(**{"per_problem": 1, **settings}), REWARD)  # type: ignore[arg-type]
    return [(a.index, b.index) for a, b in found], reason


def test_the_best_rewards_stay_up_to_the_cap_and_the_earlier_of_equals() -> None:
    samples = [sample(0, 1.0), sample(1, 1.5), sample(2, 1.0), sample(3, 0.0, math=WRONG), sample(4, 1.5)]
    assert kept(samples, per_problem=3) == ([1, 4, 0], {"not_correct": 1, "over_cap": 1})
    assert kept(samples, per_problem=1) == ([1], {"not_correct": 1, "over_cap": 3})
    assert kept(samples, per_problem=0) == ([1, 4, 0, 2], {"not_correct": 1})


def test_every_sample_is_kept_or_dropped_for_one_reason() -> None:
    samples = [
        sample(0, text="a  b"),
        sample(1, text="a b\n"),  # the same but for spaces
        sample(2, truncated=True, math=WRONG),
        sample(3, None, math=Outcome.ERROR),
        sample(4, None, tags=Outcome.TIMEOUT),
        sample(5, None),  # dropped by reward.on_unparseable, say
        sample(6, unfit="holds <eos>"),
        sample(7, 0.5, math=WRONG),
        sample(8, 0.9),
        sample(9, 1.4),
        sample(10, 1.0),
    ]
    chosen, dropped = kept(samples, per_problem=2, min_reward=1.0)
    assert chosen == [9, 0]
    assert dropped == {
        "duplicate": 1,
        "truncated": 1,
        "error": 1,
        "timeout": 1,
        "policy": 1,
        "unfit": 1,
        "not_correct": 1,
        "low_reward": 1,
        "over_cap": 1,
    }


def test_a_verdict_that_says_nothing_is_neither_right_nor_wrong() -> None:
    silent = [sample(0), sample(1, 0.0, math=Outcome.TIMEOUT), sample(2, 0.0, math=Outcome.ERROR)]
    assert kept(silent, require=[]) == ([0], {"timeout": 1, "error": 1})
    assert pairs(silent) == ([], "unusable")
    # A term of weight 0 is only measured: its failure matters to who requires it and to no one else.
    measured = sample(0, language=Outcome.ERROR)
    assert unusable(measured, REWARD, []) == ""
    assert unusable(measured, REWARD, ["language"]) == "error"


def test_what_is_required_of_verdicts_can_be_all_terms_or_none() -> None:
    samples = [sample(0, tags=WRONG), sample(1), sample(2, 0.2, math=WRONG)]
    assert kept(samples)[0] == [0, 1]
    assert kept(samples, require=["math", "tags"]) == ([1], {"not_correct": 2})
    assert kept(samples, require=[], min_reward=0.1)[0] == [0, 1, 2]


def test_a_problem_solved_too_often_is_left_out_counted_over_what_could_be_judged() -> None:
    samples = [sample(0), sample(1), sample(2), sample(3, 0.0, math=WRONG), sample(4, None, math=Outcome.ERROR)]
    assert kept(samples, max_accuracy=0.75)[0] == [0, 1, 2]  # 3 of 4
    assert kept(samples, max_accuracy=0.7) == ([], {"not_correct": 1, "error": 1, "too_easy": 3})


def test_pairs_are_the_best_against_the_worst_and_no_completion_is_in_two() -> None:
    samples = [sample(0, 0.5), sample(1, 1.0), sample(2, 0.0), sample(3, 0.9), sample(4, 0.4)]
    assert pairs(samples) == ([(1, 2)], "")
    assert pairs(samples, per_problem=9) == ([(1, 2), (3, 4)], "")  # 1 - 0, then 0.9 - 0.4; 0.5 has no one left
    assert pairs(samples, per_problem=9, min_gap=0.6) == ([(1, 2)], "")
    assert pairs(samples, min_gap=1.1) == ([], "gap")


def test_equals_and_copies_make_no_pair() -> None:
    assert pairs([sample(0, 1.0), sample(1, 1.0)]) == ([], "gap")
    assert pairs([sample(0, 1.0, text="x"), sample(1, 0.0, text="x ")]) == ([], "unusable")


def test_length_control_takes_the_widest_gap_among_responses_of_like_length() -> None:
    samples = [sample(0, 1.0, tokens=30), sample(1, 0.0, tokens=10), sample(2, 0.4, tokens=20)]
    assert pairs(samples) == ([(0, 1)], "")
    assert pairs(samples, max_length_ratio=1.5) == ([(0, 2)], "")
    assert pairs(samples, max_length_ratio=1.2) == ([], "length")


def test_balance_makes_the_chosen_longer_as_often_as_shorter_and_keeps_ties() -> None:
    short, long = sample(0, tokens=5), sample(1, tokens=9)
    found = [(long, short)] * 4 + [(short, long)] + [(short, short)]
    keep = balanced(found, seed=0)
    assert keep == balanced(found, seed=0)
    assert (sum(keep[:4]), keep[4:]) == (1, [True, True])


@pytest.mark.parametrize("settings", [{"max_length_ratio": 0.5}, {"min_gap": -1.0}, {"per_problem": -1}])
def test_pair_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        PairsConfig(**settings)  # type: ignore[arg-type]
