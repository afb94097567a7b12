"""Advantages: hand-worked numbers, a float64 NumPy reference, and nothing that is dropped enters a mean or a std."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from r1zero.algorithms import advantages as adv

NAN = float("nan")


def test_grpo_of_three_right_and_one_wrong() -> None:
    got = adv.group_advantages(torch.tensor([[1.0, 0.0, 1.0, 1.0]]))[0].tolist()
    assert got == pytest.approx([0.5774, -1.7321, 0.5774, 0.5774], abs=1e-4)  # (r - 0.75) / 0.4330


def test_the_std_has_ddof_0_and_eps_is_added_to_it() -> None:
    got = adv.group_advantages(torch.tensor([[1.0, 0.0]], dtype=torch.float64), eps=0.1)
    assert got[0].tolist() == pytest.approx([0.5 / 0.6, -0.5 / 0.6])
    assert adv.STD_EPS == 1e-6


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -3.3, 1e6])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_equal_rewards_give_exact_zeros(reward: float, scale: Any) -> None:
    rewards = torch.tensor([[reward] * 7, [0.0, 1.0, 0.3, 0.2, 0.1, 0.9, 0.5]])
    assert adv.group_advantages(rewards, scale=scale)[0].tolist() == [0.0] * 7
    assert adv.rloo_advantages(rewards)[0].tolist() == [0.0] * 7
    assert adv.group_advantages(rewards[:1], scale=scale)[0].tolist() == [0.0] * 7  # the whole batch is equal
    assert adv.flat_groups(rewards).tolist() == [True, False]
    three = torch.tensor([[reward] * 3], dtype=torch.float64)  # the float64 mean of three 0.1 is not 0.1
    assert adv.group_advantages(three, scale=scale)[0].tolist() == [0.0] * 3
    assert adv.rloo_advantages(three)[0].tolist() == [0.0] * 3


def test_without_std_the_advantage_is_the_distance_to_the_mean() -> None:
    got = adv.group_advantages(torch.tensor([[1.0, 0.0, 1.0, 1.0]]), scale="none")
    assert got[0].tolist() == pytest.approx([0.25, -0.75, 0.25, 0.25])


def test_batch_std_is_of_all_rewards_around_their_common_mean() -> None:
    got = adv.group_advantages(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), scale="batch", eps=0.0)
    std = math.sqrt(3) / 4  # of 1, 0, 1, 1
    assert got[0].tolist() == pytest.approx([0.5 / std, -0.5 / std])
    assert got[1].tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="scale"):
        adv.group_advantages(torch.zeros(1, 2), scale="std")  # type: ignore[arg-type]


def test_rloo_compares_with_the_mean_of_the_others() -> None:
    got = adv.rloo_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]]))
    assert got[0].tolist() == pytest.approx([1 - 1 / 3, -2 / 3, -2 / 3, 1 - 1 / 3])


def test_reinforce_baselines() -> None:
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    keep = torch.tensor([[True, True], [True, False]])
    assert adv.reinforce_advantages(rewards, baseline="group").tolist() == [[0.5, -0.5], [0.0, 0.0]]
    assert adv.reinforce_advantages(rewards, baseline="batch").tolist() == [[0.25, -0.75], [0.25, 0.25]]
    assert adv.reinforce_advantages(rewards, baseline="none").tolist() == rewards.tolist()
    got = adv.reinforce_advantages(rewards, keep, baseline="batch").flatten().tolist()
    assert got == pytest.approx([1 / 3, -2 / 3, 1 / 3, 0.0])
    with pytest.raises(ValueError, match="baseline"):
        adv.reinforce_advantages(rewards, baseline="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("dropped", [NAN, float("inf"), 100.0])
def test_a_dropped_completion_is_as_if_it_had_not_been_sampled(dropped: float) -> None:
    rewards = torch.tensor([[1.0, dropped, 0.0, 1.0], [0.0, 1.0, dropped, 0.0]])
    keep = torch.tensor([[True, False, True, True], [True, True, False, True]])
    without = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    for function in (
        adv.group_advantages,
        lambda *x: adv.group_advantages(*x, scale="batch"),
        lambda *x: adv.group_advantages(*x, scale="none"),
        adv.rloo_advantages,
        lambda *x: adv.reinforce_advantages(*x, baseline="batch"),
        lambda *x: adv.reinforce_advantages(*x, baseline="none"),
    ):
        got = function(rewards, keep)
        assert got[keep].tolist() == function(without).flatten().tolist()
        assert got[~keep].tolist() == [0.0, 0.0]


def test_a_group_with_one_or_no_kept_completion_is_flat_and_zero() -> None:
    rewards = torch.tensor([[1.0, NAN, NAN], [NAN, NAN, NAN], [1.0, 0.0, NAN]])
    keep = torch.tensor([[True, False, False], [False, False, False], [True, True, False]])
    assert adv.flat_groups(rewards, keep).tolist() == [True, True, False]
    for got in (adv.group_advantages(rewards, keep), adv.rloo_advantages(rewards, keep)):
        assert got[:2].tolist() == [[0.0] * 3] * 2
        assert got[2].tolist() == pytest.approx([1.0, -1.0, 0.0], abs=1e-5)


def test_group_functions_equal_the_numpy_reference() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rewards = rng.normal(0, 1, (6, 5))
        keep = rng.random((6, 5)) < 0.8
        batch_std = rewards[keep].std()
        expected = {name: np.zeros((6, 5)) for name in ("group", "batch", "none", "rloo")}
        for i in range(6):
            kept = [float(rewards[i, j]) for j in range(5) if keep[i, j]]
            for j in range(5):
                if not keep[i, j] or len(kept) < 2:
                    continue
                centred = rewards[i, j] - sum(kept) / len(kept)
                expected["none"][i, j] = centred
                expected["group"][i, j] = centred / (np.std(kept, ddof=0) + 1e-6)
                expected["batch"][i, j] = centred / (batch_std + 1e-6)
                expected["rloo"][i, j] = rewards[i, j] - (sum(kept) - rewards[i, j]) / (len(kept) - 1)
        r, k = torch.tensor(rewards), torch.tensor(keep)
        for scale in ("group", "batch", "none"):
            got = adv.group_advantages(r, k, scale=scale)
            np.testing.assert_allclose(got.numpy(), expected[scale], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(adv.rloo_advantages(r, k).numpy(), expected["rloo"], rtol=1e-10, atol=1e-12)


def test_the_token_reward_lands_on_the_last_real_token() -> None:
    kl = torch.tensor([[0.1, 0.2, NAN], [NAN, NAN, NAN], [0.5, NAN, NAN]])
    mask = torch.tensor([[True, True, False], [False, False, False], [True, False, False]])
    got = adv.token_rewards(torch.tensor([1.0, NAN, 2.0]), kl, mask, beta=0.5)
    assert got.flatten().tolist() == pytest.approx([-0.05, 0.9, 0, 0, 0, 0, 1.75, 0, 0])
    shaped = adv.kl_shaped_rewards(torch.tensor([1.0, 1.0, 2.0]), kl, mask, beta=0.5)
    assert shaped.tolist() == pytest.approx([0.85, 1.0, 1.75])
    assert adv.token_rewards(torch.ones(2), torch.zeros(2, 0), torch.zeros(2, 0, dtype=torch.bool), beta=1).numel() == 0


def test_ppo_reward_09_value_06_gives_advantage_03() -> None:
    got, returns = adv.gae(torch.tensor([[0.9]]), torch.tensor([[0.6]]), torch.ones(1, 1).bool(), gamma=1.0, lam=1.0)
    assert got.item() == pytest.approx(0.3)
    assert returns.item() == pytest.approx(0.9)


def test_gae_of_two_tokens_by_hand() -> None:
    rewards, values = torch.tensor([[0.0, 1.0, 7.0]]), torch.tensor([[0.5, 0.4, 9.0]])
    mask = torch.tensor([[True, True, False]])
    got, returns = adv.gae(rewards, values, mask, gamma=0.9, lam=0.5)
    # Second: 1 - 0.4 = 0.6. First: 0 + 0.9 * 0.4 - 0.5 = -0.14, plus 0.45 * 0.6 = 0.13.
    assert got[0].tolist() == pytest.approx([0.13, 0.6, 0.0])
    assert returns[0].tolist() == pytest.approx([0.63, 1.0, 0.0])
    cut, _ = adv.gae(rewards, values, mask, gamma=0.9, lam=0.5, last_values=torch.tensor([2.0]))
    assert cut[0, 1].item() == pytest.approx(1 + 0.9 * 2.0 - 0.4)


def test_gae_equals_the_sum_of_discounted_deltas() -> None:
    rng = np.random.default_rng(1)
    lengths, (b, t), gamma, lam = [0, 1, 4, 6], (4, 6), 0.97, 0.9
    rewards, values = rng.normal(0, 1, (b, t)), rng.normal(0, 1, (b, t))
    expected = np.zeros((b, t))
    returns = np.zeros((b, t))
    for i, n in enumerate(lengths):
        delta = [rewards[i, u] + (gamma * values[i, u + 1] if u + 1 < n else 0) - values[i, u] for u in range(n)]
        for u in range(n):
            expected[i, u] = sum((gamma * lam) ** k * delta[u + k] for k in range(n - u))
            returns[i, u] = expected[i, u] + values[i, u]
    mask = torch.arange(t)[None, :] < torch.tensor(lengths)[:, None]
    garbage = torch.full((b, t), NAN).double()
    r, v = (torch.where(mask, torch.tensor(x), garbage) for x in (rewards, values))
    got = adv.gae(r, v, mask, gamma=gamma, lam=lam)
    np.testing.assert_allclose(got[0].numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(got[1].numpy(), returns, rtol=1e-10)


def test_a_hole_in_the_mask_is_stepped_over() -> None:
    mask = torch.tensor([[True, False, True]])
    got = adv.discounted_returns(torch.tensor([[1.0, 50.0, 1.0]]), mask, gamma=0.5)
    assert got[0].tolist() == [1.5, 0.0, 1.0]


def test_reinforce_pp_normalises_the_returns_of_all_tokens() -> None:
    rewards = torch.tensor([1.0, 0.0, NAN], dtype=torch.float64)
    kl = torch.tensor([[0.1, 0.2], [0.3, NAN], [NAN, NAN]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    got = adv.reinforce_pp_advantages(rewards, kl, mask, beta=1.0, eps=0.0)
    returns = np.array([1 - 0.2 - 0.1, 1 - 0.2, -0.3])  # to the end of each completion
    expected = (returns - returns.mean()) / returns.std()
    assert got[mask].tolist() == pytest.approx(expected.tolist())
    assert got[~mask].tolist() == [0.0] * 3


def test_whitening_of_equal_values_or_of_none_is_zero() -> None:
    mask = torch.tensor([[True, True, False]])
    assert adv.whiten(torch.tensor([[0.1, 0.1, NAN]]), mask).tolist() == [[0.0] * 3]
    assert adv.whiten(torch.full((1, 3), NAN), torch.zeros(1, 3).bool()).tolist() == [[0.0] * 3]


def test_ppo_s_token_rewards_and_whitening_equal_the_numpy_reference() -> None:
    rng = np.random.default_rng(2)
    lengths, (b, t), beta = [0, 1, 4, 6], (4, 6), 0.07
    score, kl = rng.normal(0, 1, b), rng.normal(0, 1, (b, t))
    rewards = np.zeros((b, t))
    for i, n in enumerate(lengths):
        for u in range(n):
            rewards[i, u] = -beta * kl[i, u] + (score[i] if u == n - 1 else 0.0)
    real = [rewards[i, u] for i, n in enumerate(lengths) for u in range(n)]
    mean = sum(real) / len(real)
    std = math.sqrt(sum((x - mean) ** 2 for x in real) / len(real))
    mask = torch.arange(t)[None, :] < torch.tensor(lengths)[:, None]
    garbage = torch.full((b, t), NAN).double()
    got = adv.token_rewards(torch.tensor(score), torch.where(mask, torch.tensor(kl), garbage), mask, beta=beta)
    np.testing.assert_allclose(got.numpy(), rewards, rtol=1e-12, atol=1e-15)
    whitened = adv.whiten(torch.where(mask, got, garbage), mask, eps=0.0)
    np.testing.assert_allclose(whitened[mask].numpy(), (np.array(real) - mean) / std, rtol=1e-10)
    assert whitened[~mask].abs().max() == 0.0


def test_process_supervision_sums_the_normalised_rewards_of_this_and_later_steps() -> None:
    rewards = torch.tensor([[[1.0, 0.0], [1.0, NAN]]])  # two completions: two steps, one step
    ends = torch.tensor([[[1, 3], [2, 99]]])
    steps = torch.tensor([[[True, True], [True, False]]])
    got = adv.process_advantages(rewards, ends, steps, num_positions=5, eps=0.0)
    std = math.sqrt(2) / 3  # of 1, 0, 1; mean 2/3
    good, bad = (1 / 3) / std, (-2 / 3) / std
    assert got[0, 0].tolist() == pytest.approx([good + bad, good + bad, bad, bad, 0.0], abs=1e-6)
    assert got[0, 1].tolist() == pytest.approx([good, good, good, 0.0, 0.0], abs=1e-6)


def test_process_supervision_equals_the_numpy_reference() -> None:
    rng = np.random.default_rng(2)
    n, g, s, t = 3, 4, 3, 12
    rewards = rng.normal(0, 1, (n, g, s))
    count = rng.integers(0, s + 1, (n, g))
    ends = np.sort(rng.permuted(np.broadcast_to(np.arange(t), (n, g, t)), axis=2)[:, :, :s], axis=2)
    expected = np.zeros((n, g, t))
    for i in range(n):
        pool = np.array([rewards[i, j, k] for j in range(g) for k in range(count[i, j])])
        for j in range(g):
            for u in range(t):
                for k in range(count[i, j]):
                    if ends[i, j, k] >= u:
                        expected[i, j, u] += (rewards[i, j, k] - pool.mean()) / (pool.std() + 1e-6)
    mask = torch.arange(s) < torch.tensor(count)[..., None]
    got = adv.process_advantages(torch.tensor(rewards), torch.tensor(ends), mask, num_positions=t)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_results_keep_the_type_and_the_shape_of_the_rewards() -> None:
    for dtype in (torch.float32, torch.float64):
        rewards = torch.rand(3, 4, dtype=dtype)
        for got in (adv.group_advantages(rewards), adv.rloo_advantages(rewards), adv.reinforce_advantages(rewards)):
            assert got.dtype == dtype
            assert got.shape == (3, 4)
    assert adv.group_advantages(torch.zeros(0, 4)).shape == (0, 4)
