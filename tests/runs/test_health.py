import pytest

from r1zero.algorithms.rewards import Reward
from r1zero.config import HealthConfig
from r1zero.runs.health import Health
from r1zero.training.step_metrics import Share, rollout_metrics

WELL = {
    "policy/entropy": 1.0,
    "completion/tokens_mean": 100.0,
    "policy/ref_perplexity": 2.0,
    "policy/kl": 0.01,
    "group/zero_variance": 0.5,
    "completion/truncated": 0.1,
    "mismatch/mean_abs": 0.01,
    "dpo/chosen_logprob": -10.0,
    "dpo/rejected_logprob": -20.0,
    "reward/math/error": 0.0,
    "reward/math/timeout": 0.0,
    "optimizer/skipped": 0.0,
}


def after_five_good_steps() -> Health:
    return Health(HealthConfig(), [WELL] * 5)


def test_a_healthy_step_raises_no_alarm() -> None:
    assert after_five_good_steps().check(WELL) == {}


@pytest.mark.parametrize(
    ("name", "value", "alarm"),
    [
        ("policy/kl", 0.6, "kl"),
        ("policy/entropy", 0.049, "entropy"),
        ("policy/ref_perplexity", 6.1, "perplexity"),
        ("completion/tokens_mean", 301.0, "length"),
        ("completion/tokens_mean", 33.0, "length"),
        ("policy/kl", 0.06, "kl_spike"),  # six times the steps before
        ("mismatch/mean_abs", 0.051, "mismatch"),
        ("completion/truncated", 0.31, "truncated"),
        ("group/zero_variance", 0.96, "flat"),
        ("completion/truncated", 0.51, "truncated"),
        ("reward/math/error", 0.06, "verifier"),
        ("reward/math/timeout", 0.51, "timeouts"),
        ("optimizer/skipped", 1.0, "gradient"),
    ],
)
def test_each_alarm_goes_off_past_its_threshold_alone(name: str, value: float, alarm: str) -> None:
    assert list(after_five_good_steps().check({**WELL, name: value})) == [alarm]


def test_drifts_are_measured_against_the_first_steps_and_survive_a_resume() -> None:
    fresh = Health(HealthConfig())
    for _ in range(5):
        assert fresh.check({**WELL, "completion/tokens_mean": 10.0}) == {}  # no baseline yet
    assert list(fresh.check(WELL)) == ["length"]  # ten times as long
    resumed = Health(HealthConfig(), [{"eval/pass@1": 0.1}, *[{**WELL, "completion/tokens_mean": 10.0}] * 7])
    assert list(resumed.check(WELL)) == ["length"]


def test_a_metric_that_is_missing_raises_no_alarm() -> None:
    assert after_five_good_steps().check({"group/zero_variance": 0.2}) == {}


@pytest.mark.parametrize(("size", "alarms"), [(2, ["flat"]), (1, [])])
def test_groups_of_equal_rewards_are_an_alarm_and_groups_of_one_are_not(size: int, alarms: list[str]) -> None:
    rewards = [[Reward(value=1.0, keep=True, parts={}, correct=True)] * size] * 3
    cut, lengths = [[False] * size] * 3, [[10] * size] * 3
    figures = rollout_metrics([Share(rewards=rewards, num_tokens=lengths, truncated=cut, sampled=3)])
    assert list(Health(HealthConfig()).check(figures)) == alarms


def test_a_drift_below_what_rounding_does_is_no_mismatch() -> None:
    exact = Health(HealthConfig(), [{**WELL, "mismatch/mean_abs": 1e-7}] * 5)
    assert exact.check({**WELL, "mismatch/mean_abs": 9e-3}) == {}


def test_the_logprobs_of_dpo_are_an_alarm_when_both_fall_and_not_when_one_does() -> None:
    fallen = {"dpo/chosen_logprob": -12.1, "dpo/rejected_logprob": -24.1}
    health = after_five_good_steps()
    assert list(health.check({**WELL, **fallen})) == ["dpo_logprobs"]
    assert health.check({**WELL, "dpo/rejected_logprob": -60.0}) == {}


def judged(reward: float, truth: float) -> dict[str, float]:
    return {"reward/mean": reward, "reward/truth/score": truth}


def test_a_term_that_is_not_paid_for_and_falls_while_the_reward_rises_is_an_alarm() -> None:
    past = [judged(0.1, 0.5)] * 3
    health = Health(HealthConfig(), past, unpaid=["truth"])
    assert health.check(judged(0.2, 0.3)) == {}  # over three steps 0.433: 13% below
    (says,) = health.check(judged(0.3, 0.3)).values()  # 0.367: 27% below, and the reward at 0.2 from 0.1
    assert "fell from 0.5 to 0.367 while the reward rose from 0.1 to 0.2" in says
    both_fall = Health(HealthConfig(), past, unpaid=["truth"])
    assert [both_fall.check(judged(0.0, 0.1)) for _ in range(4)] == [{}] * 4
    paid = Health(HealthConfig(), past)
    assert [paid.check(judged(0.5, 0.1)) for _ in range(4)] == [{}] * 4
