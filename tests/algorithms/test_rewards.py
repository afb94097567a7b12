"""Verdicts to rewards: weights, gates and the policy of each outcome, with verdicts that are given, not computed."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from r1zero.algorithms.rewards import Reward, Rewarder, check_verifiers, combine, reward_metrics, with_scores
from r1zero.config import RewardConfig, RewardModelTerm, RewardTerm
from r1zero.data.records import Completion, Problem
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, Verdict, VerifierPool, VerifierSpec
from r1zero.verifiers.running.by_value import NAME

CORRECT = Verdict(Outcome.CORRECT)
WRONG = Verdict(Outcome.WRONG)
ERROR = Verdict(Outcome.ERROR, reason="no bubblewrap")


def two_terms(**policies: str) -> RewardConfig:
    return RewardConfig(
        terms=[
            RewardTerm(verifier="answer", name="accuracy"),
            RewardTerm(verifier="answer_tags", name="format", weight=0.2),
        ],
        **policies,  # type: ignore[arg-type]
    )


def reward_of(config: RewardConfig, accuracy: Verdict, format: Verdict = WRONG) -> Reward:
    return combine(config, {"accuracy": accuracy, "format": format})


def completion(text: str) -> Completion:
    return Completion(token_ids=(1, 2), text=text, logprobs=(0.0, 0.0), finish_reason="stop")


class ScriptedPool(VerifierPool):
    """Gives out verdicts from lists by verifier name; keeps the samples it was asked about."""

    def __init__(self, verdicts: Mapping[str, list[Verdict]]) -> None:
        self.verdicts = {name: list(of_name) for name, of_name in verdicts.items()}
        self.asked: list[tuple[str, Sample]] = []

    def submit(self, spec: VerifierSpec, sample: Sample) -> Future[Verdict]:
        self.asked.append((spec.name, sample))
        future: Future[Verdict] = Future()
        future.set_result(self.verdicts[spec.name].pop(0))
        return future


def test_the_reward_is_the_weighted_sum_of_scores() -> None:
    config = two_terms()
    assert reward_of(config, CORRECT, CORRECT).value == pytest.approx(1.2)
    assert reward_of(config, CORRECT, WRONG).value == 1.0
    assert reward_of(config, WRONG, CORRECT).value == pytest.approx(0.2)
    assert reward_of(config, WRONG, Verdict(Outcome.WRONG, score=-0.5)).value == pytest.approx(-0.1)


def test_a_gated_term_counts_only_when_its_gate_is_correct() -> None:
    config = RewardConfig(
        terms=[
            RewardTerm(verifier="answer", name="accuracy", gate="format"),
            RewardTerm(verifier="answer_tags", name="format", weight=0.2),
        ]
    )
    assert reward_of(config, CORRECT, CORRECT).value == pytest.approx(1.2)
    hidden = reward_of(config, CORRECT, WRONG)
    assert hidden.value == 0.0
    assert hidden.correct is True  # pass@1 is of the answer, not of the reward


def test_the_policy_of_a_term_behind_a_closed_gate_is_not_consulted() -> None:
    config = RewardConfig(
        terms=[
            RewardTerm(verifier="answer", name="accuracy", gate="format"),
            RewardTerm(verifier="answer_tags", name="format", weight=0.2),
        ],
        on_timeout="drop",
    )
    assert reward_of(config, Verdict(Outcome.TIMEOUT), WRONG).value == 0.0
    assert not reward_of(config, Verdict(Outcome.TIMEOUT), CORRECT).keep


@pytest.mark.parametrize("outcome", [Outcome.UNPARSEABLE, Outcome.TRUNCATED, Outcome.TIMEOUT])
def test_each_outcome_has_its_own_policy(outcome: Outcome) -> None:
    verdict = Verdict(outcome, reason="cut off")
    scored = reward_of(two_terms(**{f"on_{outcome}": "score"}), verdict, CORRECT)
    assert (scored.value, scored.keep) == (pytest.approx(0.2), True)
    dropped = reward_of(two_terms(**{f"on_{outcome}": "drop"}), verdict, CORRECT)
    assert (dropped.value, dropped.keep) == (None, False)
    with pytest.raises(UserError, match=rf"on_{outcome} is stop, and verifier 'answer' says {outcome}: cut off"):
        reward_of(two_terms(**{f"on_{outcome}": "stop"}), verdict)


def test_an_error_is_dropped_or_stops_but_is_never_scored() -> None:
    for policy in ("drop", "retry"):
        dropped = reward_of(two_terms(on_error=policy), ERROR)
        assert (dropped.value, dropped.keep, dropped.correct) == (None, False, None)
    with pytest.raises(UserError, match="no bubblewrap"):
        reward_of(two_terms(on_error="stop"), ERROR)


def test_a_term_of_weight_0_is_measured_and_drops_or_stops_nothing() -> None:
    judge = RewardTerm(verifier="answer", name="accuracy", weight=0)
    config = RewardConfig(terms=[judge, RewardTerm(verifier="answer_tags", name="format")], on_error="stop")
    measured = reward_of(config, ERROR, CORRECT)
    assert (measured.value, measured.keep, measured.correct) == (1.0, True, None)
    assert reward_of(config, CORRECT, CORRECT).value == 1.0
    assert reward_of(config, CORRECT, CORRECT).correct is True


def test_reward_models_add_their_weighted_score_and_a_completion_without_its_end_gets_the_penalty() -> None:
    rewards = [reward_of(two_terms(), CORRECT)] * 2 + [reward_of(two_terms(on_error="drop"), ERROR)]
    terms = [
        RewardModelTerm(path="a", name="a", weight=0.5),
        RewardModelTerm(path="b", name="b", weight=2.0, truncated="score"),
    ]
    whole, cut, dropped = with_scores(terms, rewards, {"a": [3.0, 3.0, 3.0], "b": [0.1, 0.1, 0.1]}, [False, True, True])
    assert whole.value == pytest.approx(1 + 1.5 + 0.2)
    assert cut.value == pytest.approx(1 - 0.5 + 0.2)
    assert (dropped.value, dropped.keep) == (None, False)
    assert cut.scores == {"a": -1.0, "b": 0.1}
    figures = reward_metrics([whole, cut])
    assert figures["reward/a/score"] == pytest.approx(1.0)
    assert figures["reward/a/score_std"] == pytest.approx(2.0)
    drop = [RewardModelTerm(path="a", name="a", truncated="drop")]
    kept, lost = with_scores(drop, rewards[:2], {"a": [3.0, 3.0]}, [False, True])
    assert (kept.value, lost.value, lost.keep) == (4.0, None, False)


def test_correct_is_the_first_terms_outcome_and_unknown_after_a_timeout() -> None:
    config = two_terms(on_timeout="score")
    assert reward_of(config, CORRECT, WRONG).correct is True
    assert reward_of(config, WRONG, CORRECT).correct is False
    assert reward_of(config, Verdict(Outcome.UNPARSEABLE), CORRECT).correct is False
    assert reward_of(config, Verdict(Outcome.TIMEOUT), CORRECT).correct is None


def test_an_error_is_tried_once_more() -> None:
    pool = ScriptedPool({"answer": [ERROR, CORRECT, ERROR, ERROR], "answer_tags": [WRONG] * 2})
    rewarder = Rewarder(two_terms(max_error_share=1.0), pool)
    problem = Problem(id="1", prompt="1+1?", answer="2")
    # The script hands out verdicts in order: completion a gets ERROR, b gets CORRECT; then a's retry fails again.
    rewards = rewarder.collect([rewarder.submit(problem, "p", completion(text)) for text in ("a", "b")])
    assert [reward.keep for reward in rewards] == [False, True]
    assert [sample.completion for name, sample in pool.asked if name == "answer"] == ["a", "b", "a"]


def test_an_error_that_passes_the_second_time_counts_as_usual() -> None:
    pool = ScriptedPool({"answer": [ERROR, CORRECT], "answer_tags": [CORRECT]})
    rewarder = Rewarder(two_terms(), pool)
    (reward,) = rewarder.collect([rewarder.submit(Problem(id="1", prompt=""), "p", completion("a"))])
    assert reward.value == pytest.approx(1.2)


def test_a_verifier_that_fails_on_most_of_a_step_ends_the_run() -> None:
    # 2 of 3 is over one half, though it is only 2 of 6 verdicts: the share is counted term by term.
    pool = ScriptedPool({"answer": [ERROR, ERROR, CORRECT], "answer_tags": [CORRECT] * 3})
    rewarder = Rewarder(two_terms(on_error="drop"), pool)
    pending = [rewarder.submit(Problem(id="1", prompt=""), "p", completion("a")) for _ in range(3)]
    with pytest.raises(UserError, match=r"failed on 2 of 3 completions.*no bubblewrap"):
        rewarder.collect(pending)


def test_the_verifier_sees_prefill_gold_and_how_the_completion_ended() -> None:
    pool = ScriptedPool({"answer": [CORRECT], "answer_tags": [CORRECT]})
    problem = Problem(id="1", prompt="1+1?", answer="2", data={"level": 1})
    cut = Completion(token_ids=(5, 6, 7), text="so</think>", logprobs=(0.0,) * 3, finish_reason="length")
    Rewarder(two_terms(), pool).submit(problem, "User: 1+1?", cut, prefill="<think>")
    _, sample = pool.asked[0]
    assert sample == Sample(
        completion="<think>so</think>",
        answer="2",
        problem=problem,
        prompt="User: 1+1?",
        finish_reason="length",
        num_tokens=3,
    )


def test_an_unknown_verifier_or_option_or_a_senseless_policy_fails_before_the_run() -> None:
    pool = ScriptedPool({})
    with pytest.raises(UserError, match="did you mean 'answer_tags'"):
        Rewarder(RewardConfig(terms=[RewardTerm(verifier="answer_tag")]), pool)
    with pytest.raises(UserError, match="did you mean 'min_think_chars'"):
        Rewarder(RewardConfig(terms=[RewardTerm(verifier="answer_tags", options={"min_think_char": 3})]), pool)
    with pytest.raises(UserError, match="on_truncated"):
        Rewarder(two_terms(on_truncated="retry"), pool)


def test_metrics_count_every_outcome_and_never_take_a_dropped_reward_for_zero() -> None:
    config = two_terms()
    rewards = [
        reward_of(config, CORRECT, CORRECT),
        reward_of(config, WRONG, CORRECT),
        reward_of(config, Verdict(Outcome.TIMEOUT, seconds=10.0), WRONG),
        reward_of(config, ERROR, WRONG),
    ]
    figures = reward_metrics(rewards)
    assert figures["reward/mean"] == pytest.approx((1.2 + 0.2) / 2)
    assert figures["reward/accuracy"] == 0.5
    assert figures["reward/dropped"] == 2
    assert figures["reward/accuracy/correct"] == figures["reward/accuracy/error"] == 0.25
    assert figures["reward/accuracy/unparseable"] == 0.0
    assert figures["reward/accuracy/score"] == pytest.approx(1 / 3)  # the error has no score
    assert figures["reward/accuracy/seconds"] == 2.5
    assert figures["reward/format/score"] == 0.5


def test_a_mean_over_nothing_is_left_out() -> None:
    assert reward_metrics([]) == {"reward/dropped": 0.0}
    figures = reward_metrics([reward_of(two_terms(), ERROR)])
    assert "reward/mean" not in figures
    assert "reward/accuracy" not in figures


def test_completions_are_scored_in_worker_processes_from_several_threads() -> None:
    problem = Problem(id="1", prompt="1+1?", answer="2")
    with VerifierPool(workers=1) as pool, ThreadPoolExecutor(4) as threads:
        rewarder = Rewarder(two_terms(), pool)
        texts = [f"{n}</think><answer>{2 if n % 2 else 3}</answer>" for n in range(12)]
        pending = list(threads.map(lambda text: rewarder.submit(problem, "p", completion(text), "<think>"), texts))
        rewards = rewarder.collect(pending)
    assert [reward.value for reward in rewards] == pytest.approx([0.2, 1.2] * 6)


def test_a_term_whose_gate_failed_for_a_reason_of_ours_drops_the_completion_through_any_chain_of_gates() -> None:
    config = RewardConfig(
        terms=[
            RewardTerm(verifier="answer_tags", name="format"),
            RewardTerm(verifier="answer", name="accuracy", gate="format"),
            RewardTerm(verifier="repetition", name="repetition", gate="accuracy"),
        ]
    )
    reward = combine(config, {"format": WRONG, "accuracy": ERROR, "repetition": CORRECT})
    assert (reward.keep, reward.value) == (False, None)


def test_a_problems_own_verifier_stands_in_for_the_accuracy_term() -> None:
    pool = ScriptedPool({"answer": [WRONG], "code": [CORRECT], "answer_tags": [WRONG, WRONG]})
    rewarder = Rewarder(two_terms(), pool)
    problems = [Problem(id="m", prompt="q", answer="1"), Problem(id="c", prompt="q", verifier="code")]
    rewards = rewarder.collect([rewarder.submit(problem, "q", completion("x")) for problem in problems])
    assert [name for name, _ in pool.asked] == ["answer", "answer_tags", "code", "answer_tags"]
    assert [reward.value for reward in rewards] == [0.0, 1.0]
    assert [reward.correct for reward in rewards] == [False, True]


def test_one_broken_verifier_of_a_mixed_run_is_named_though_the_others_judge() -> None:
    pool = ScriptedPool({"answer": [CORRECT] * 9, "code": [ERROR, ERROR], "answer_tags": [WRONG] * 10})
    rewarder = Rewarder(two_terms(max_error_share=0.5), pool)
    problems = [Problem(id=str(i), prompt="q", answer="1") for i in range(9)]
    problems.append(Problem(id="c", prompt="q", verifier="code"))
    pending = [rewarder.submit(problem, "q", completion("x")) for problem in problems]
    with pytest.raises(UserError, match=r"verifier 'code' .* failed on 1 of 1"):
        rewarder.collect(pending)


def test_a_function_given_from_python_is_named_as_its_author_knows_it() -> None:
    term = RewardTerm(verifier=NAME, name="my_reward")
    rewarder = Rewarder(RewardConfig(terms=[term]), ScriptedPool({NAME: [ERROR, ERROR]}))
    with pytest.raises(UserError, match=r"^reward function 'my_reward' failed on 1 of 1"):
        rewarder.collect([rewarder.submit(Problem(id="1", prompt="q"), "q", completion("x"))])


def test_a_verifier_that_a_problem_names_and_nobody_has_is_refused_by_problem() -> None:
    with pytest.raises(UserError, match=r"problem 'p7' of rows.jsonl: .*did you mean 'math'"):
        check_verifiers([Problem(id="p7", prompt="q", source="rows.jsonl", verifier="maths")])
