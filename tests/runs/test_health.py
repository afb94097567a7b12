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
    "reward/math/error": 0.0,
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
        ("group/zero_variance", 0.96, "flat"),
        ("completion/truncated", 0.51, "truncated"),
        ("reward/math/error", 0.06, "verifier"),
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
