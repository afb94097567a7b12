"""Losses of SFT, DPO and its relatives, and the reward model: worked numbers, and NumPy beside each."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from r1zero.algorithms.losses import Metrics, StepTotals
from r1zero.algorithms.preference_losses import (
    bradley_terry_loss,
    dpo_loss,
    ipo_loss,
    kto_baseline,
    kto_loss,
    nll_loss,
    orpo_loss,
    response_logprobs,
    simpo_loss,
)

LN2 = math.log(2)


def logs(*probabilities: float) -> Tensor:
    return torch.tensor([math.log(p) for p in probabilities], dtype=torch.float64)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_the_sft_loss_is_the_mean_over_all_tokens_whatever_the_split_and_padding_counts_for_nothing() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, float("-inf")], [-6.0, float("nan"), float("nan")]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    totals = StepTotals.of(mask)
    loss, metrics = nll_loss(logprobs, mask, totals)
    assert loss.item() == pytest.approx(3.0)  # (1 + 2 + 6) / 3; a mean of the rows' means would be 3.75
    assert metrics["nll"].item() == pytest.approx(3.0)
    parts = [nll_loss(logprobs[i : i + 1], mask[i : i + 1], totals)[0].item() for i in (0, 1)]
    assert parts == pytest.approx([1.0, 2.0])
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[pytest.approx(-1 / 3)] * 2 + [0.0], [pytest.approx(-1 / 3), 0.0, 0.0]]


def test_a_response_s_logprob_is_the_sum_or_the_mean_of_its_tokens() -> None:
    logprobs, mask = torch.tensor([[-1.0, -3.0], [-4.0, float("-inf")]]), torch.tensor([[True, True], [True, False]])
    assert response_logprobs(logprobs, mask).tolist() == [-4.0, -4.0]
    assert response_logprobs(logprobs, mask, length_normalised=True).tolist() == [-2.0, -4.0]


@pytest.mark.parametrize(
    ("policy", "reference", "margin", "loss"),
    [
        ((0.3, 0.1), (0.3, 0.1), 0.0, LN2),  # pi = ref
        ((0.20, 0.08), (0.15, 0.12), 0.0693, 0.6591),
        ((math.exp(-1), math.exp(-5)), (math.exp(-3), math.exp(-3)), 0.4, 0.5130),  # log-ratios +2 and -2
    ],
)
def test_dpo_s_worked_numbers(
    policy: tuple[float, float], reference: tuple[float, float], margin: float, loss: float
) -> None:
    value, metrics = dpo_loss(*(logs(p) for p in policy), *(logs(p) for p in reference), beta=0.1, num_pairs=1)
    assert value.item() == pytest.approx(loss, abs=5e-5)
    assert metrics["margin"].item() == pytest.approx(margin, abs=5e-5)


def test_dpo_s_implicit_rewards_and_accuracy_in_which_a_tie_is_half() -> None:
    _, metrics = dpo_loss(logs(0.20, 0.5), logs(0.08, 0.5), logs(0.15, 0.5), logs(0.12, 0.5), beta=0.1, num_pairs=2)
    assert metrics["chosen_reward"].item() == pytest.approx(0.0288 / 2, abs=5e-5)
    assert metrics["rejected_reward"].item() == pytest.approx(-0.0405 / 2, abs=5e-5)
    assert metrics["accuracy"].item() == 0.75


def test_a_policy_that_is_its_reference_but_for_rounding_prefers_neither() -> None:
    chosen, rejected = torch.tensor([-64.7, -3.1, -250.0]), torch.tensor([-68.7, -90.2, -31.0])
    inf = torch.tensor(float("inf"))
    up, down = torch.nextafter(chosen, inf), torch.nextafter(rejected, -inf)
    metrics = dpo_loss(up, down, chosen, rejected, beta=0.1, num_pairs=3)[1]
    assert metrics["accuracy"].item() == 0.5
    metrics = dpo_loss(chosen + 0.01, rejected, chosen, rejected, beta=0.1, num_pairs=3)[1]
    assert metrics["accuracy"].item() == 1.0


@pytest.mark.parametrize("name", ["dpo", "cdpo", "simpo", "orpo", "ipo"])
def test_a_pair_of_one_and_the_same_response_has_no_gradient(name: str) -> None:
    logp = torch.tensor([-3.0], requires_grad=True)
    ref = torch.tensor([-2.5])
    loss = {
        "dpo": lambda: dpo_loss(logp, logp, ref, ref, beta=0.1, num_pairs=1),
        "cdpo": lambda: dpo_loss(logp, logp, ref, ref, beta=0.1, num_pairs=1, label_smoothing=0.2),
        "simpo": lambda: simpo_loss(logp, logp, beta=2.0, gamma=0.0, num_pairs=1),
        "orpo": lambda: orpo_loss(logp, logp, weight=1.0, num_pairs=1),
        "ipo": lambda: ipo_loss(logp, logp, ref, ref, beta=0.1, num_pairs=1),
    }[name]()[0]
    loss.backward()  # type: ignore[no-untyped-call]
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(0.0, abs=1e-7)  # both sides pull at the same tokens
    assert loss.item() == pytest.approx({"ipo": 25.0}.get(name, LN2))


def test_cdpo_has_its_minimum_at_the_log_odds_of_a_right_label() -> None:
    def at(margin: float) -> float:
        zero = torch.zeros(1, dtype=torch.float64)
        chosen = zero + margin / 0.1
        return dpo_loss(chosen, zero, zero, zero, beta=0.1, num_pairs=1, label_smoothing=0.2)[0].item()

    best = math.log(0.8 / 0.2)
    assert at(best) < min(at(best - 0.1), at(best + 0.1), at(10.0))
    assert at(best) == pytest.approx(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2)))


def test_ipo_is_zero_at_its_target_and_simpo_and_orpo_have_their_worked_numbers() -> None:
    zero = torch.zeros(1)
    assert ipo_loss(zero + 5.0, zero, zero, zero, beta=0.1, num_pairs=1)[0].item() == 0.0  # 1 / (2 * 0.1)
    assert ipo_loss(zero + 8.0, zero, zero, zero, beta=0.1, num_pairs=1)[0].item() == pytest.approx(9.0)  # past it
    # 2 * (-1 + 2) - 1 = 1
    assert simpo_loss(zero - 1, zero - 2, beta=2.0, gamma=1.0, num_pairs=1)[0].item() == pytest.approx(
        0.31326, abs=1e-5
    )
    # Odds 1 against 1/3: sigma(log 3) = 3/4.
    assert orpo_loss(logs(0.5), logs(0.25), weight=1.0, num_pairs=1)[0].item() == pytest.approx(-math.log(0.75))
    certain = torch.zeros(1, requires_grad=True)
    loss = orpo_loss(certain, logs(0.5).float(), weight=1.0, num_pairs=1)[0]
    loss.backward()  # type: ignore[no-untyped-call]
    assert math.isfinite(loss.item())
    assert certain.grad is not None
    assert math.isfinite(certain.grad.item())


def test_kto_s_loss_is_half_at_the_baseline_and_its_weights_are_of_their_kind() -> None:
    ref, desirable = torch.zeros(2), torch.tensor([True, False])
    loss, metrics = kto_loss(
        torch.full((2,), 0.3),
        ref,
        desirable,
        0.3,
        beta=0.1,
        desirable_weight=1.0,
        undesirable_weight=3.0,
        num_examples=2,
    )
    assert loss.item() == pytest.approx((0.5 + 3 * 0.5) / 2)
    assert metrics["accuracy"].item() == 0.5  # neither is on its side of the baseline
    up, _ = kto_loss(torch.tensor([2.0]), torch.zeros(1), torch.tensor([True]), 0.0, beta=0.5, num_examples=1)
    assert up.item() == pytest.approx(1 - 1 / (1 + math.exp(-1)))
    down, _ = kto_loss(torch.tensor([2.0]), torch.zeros(1), torch.tensor([False]), 0.0, beta=0.5, num_examples=1)
    assert down.item() == pytest.approx(1 / (1 + math.exp(-1)))
    assert kto_baseline(torch.tensor([-1.0, -3.0]), torch.zeros(2)) == 0.0  # a KL is not below 0
    assert kto_baseline(torch.tensor([1.0, 3.0]), torch.zeros(2)) == 2.0


def rng_logps(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [-3 * torch.rand(6, generator=generator, dtype=torch.float64) - 0.05 for _ in range(4)]


def test_every_loss_is_numpy_s() -> None:
    chosen, rejected, ref_chosen, ref_rejected = rng_logps(0)
    w, l, rw, rl = (x.numpy() for x in (chosen, rejected, ref_chosen, ref_rejected))  # noqa: E741
    h = (w - rw) - (l - rl)
    both = (chosen, rejected, ref_chosen, ref_rejected)
    assert dpo_loss(*both, beta=0.3, num_pairs=6)[0].item() == pytest.approx(-np.log(sigmoid(0.3 * h)).mean())
    smooth = -0.9 * np.log(sigmoid(0.3 * h)) - 0.1 * np.log(sigmoid(-0.3 * h))
    assert dpo_loss(*both, beta=0.3, num_pairs=6, label_smoothing=0.1)[0].item() == pytest.approx(smooth.mean())
    assert ipo_loss(*both, beta=0.3, num_pairs=6)[0].item() == pytest.approx(((h - 1 / 0.6) ** 2).mean())
    simpo = -np.log(sigmoid(2 * w - 2 * l - 0.7)).mean()
    assert simpo_loss(chosen, rejected, beta=2.0, gamma=0.7, num_pairs=6)[0].item() == pytest.approx(simpo)
    odds = np.log(np.exp(w) / (1 - np.exp(w))) - np.log(np.exp(l) / (1 - np.exp(l)))
    orpo = -0.1 * np.log(sigmoid(odds)).mean()
    assert orpo_loss(chosen, rejected, weight=0.1, num_pairs=6)[0].item() == pytest.approx(orpo)
    thumbs = np.array([True, False, True, True, False, False])
    value = np.where(thumbs, sigmoid(0.3 * (w - rw - 0.2)), sigmoid(0.3 * (0.2 - w + rw)))
    kto = kto_loss(chosen, ref_chosen, torch.tensor(thumbs), 0.2, beta=0.3, num_examples=6)[0].item()
    assert kto == pytest.approx((1 - value).mean())
    # The first ranks three responses, the other two are pairs; each prompt weighs a third.
    better, worse, share = np.array([0, 0, 1, 3, 0]), np.array([1, 2, 2, 4, 5]), np.array([1 / 3] * 3 + [1.0, 1.0])
    margins = np.array([0.0, 0.5, 0.2, 1.0, 0.3])
    each = -np.log(sigmoid(w[better] - w[worse] - margins)) + 0.05 * (w[better] + w[worse]) ** 2
    tensors = (torch.tensor(x) for x in (better, worse, share))
    found = bradley_terry_loss(chosen, *tensors, num_prompts=3, margins=torch.tensor(margins), centre=0.05)[0]
    assert found.item() == pytest.approx((share * each).sum() / 3)
    lengths = [1, 4, 0, 2, 3, 4]
    logprobs, learnt = -np.random.default_rng(0).exponential(1, (6, 4)), np.arange(4) < np.array(lengths)[:, None]
    mask = torch.tensor(learnt)
    nll = nll_loss(torch.tensor(logprobs), mask, StepTotals.of(mask))[0].item()
    assert nll == pytest.approx(-logprobs[learnt].sum() / sum(lengths))
    means = [-logprobs[i, :n].mean() for i, n in enumerate(lengths) if n]
    by_sequence = nll_loss(torch.tensor(logprobs), mask, StepTotals.of(mask), aggregation="sequence")[0].item()
    assert by_sequence == pytest.approx(np.mean(means))


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda w, y, rw, ry: dpo_loss(w, y, rw, ry, beta=0.1, num_pairs=6, label_smoothing=0.1),
        lambda w, y, rw, ry: ipo_loss(w, y, rw, ry, beta=0.1, num_pairs=6),
        lambda w, y, _r, _s: simpo_loss(w, y, beta=2.0, gamma=1.0, num_pairs=6),
        lambda w, y, _r, _s: orpo_loss(w, y, weight=0.1, num_pairs=6),
        lambda w, y, rw, ry: kto_loss(w, rw, y > ry, 0.1, beta=0.1, num_examples=6),
    ],
)
def test_losses_and_metrics_of_micro_batches_add_up_to_the_step_s(
    loss_of: Callable[..., tuple[Tensor, Metrics]],
) -> None:
    tensors = rng_logps(1)
    whole, metrics = loss_of(*tensors)
    parts = [loss_of(*(x[part] for x in tensors)) for part in (slice(0, 1), slice(1, 6))]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item())
    for name, value in metrics.items():
        assert sum(m[name].item() for _, m in parts) == pytest.approx(value.item()), name


def test_a_ranking_of_three_is_three_pairs_that_weigh_as_much_as_one_pair() -> None:
    scores = torch.tensor([2.0, 1.0, 0.0, 5.0, 5.0], dtype=torch.float64)  # a ranking, then a pair scored alike
    better, worse = torch.tensor([0, 0, 1, 3]), torch.tensor([1, 2, 2, 4])
    weights = torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0], dtype=torch.float64)
    loss, metrics = bradley_terry_loss(scores, better, worse, weights, num_prompts=2)
    softplus = [math.log1p(math.exp(-d)) for d in (1, 2, 1, 0)]
    assert loss.item() == pytest.approx((sum(softplus[:3]) / 3 + softplus[3]) / 2)
    assert metrics["accuracy"].item() == 0.75  # 1 of the ranking, half of the tie
    assert metrics["margin"].item() == pytest.approx((4 / 3 + 0) / 2)


def test_a_margin_asks_for_more_and_centring_holds_the_level_that_pairs_leave_free() -> None:
    one, better, worse = torch.ones(1), torch.tensor([0]), torch.tensor([1])
    scores = torch.tensor([3.0, 2.0], requires_grad=True)
    loss, _ = bradley_terry_loss(scores, better, worse, one, num_prompts=1, margins=torch.tensor([1.0]))
    assert loss.item() == pytest.approx(LN2)
    centred, metrics = bradley_terry_loss(scores, better, worse, one, num_prompts=1, centre=0.01)
    assert centred.item() == pytest.approx(math.log1p(math.exp(-1)) + 0.25)
    assert metrics["nll"].item() == pytest.approx(math.log1p(math.exp(-1)))
    (gradient,) = torch.autograd.grad(centred, scores)
    assert gradient.sum().item() == pytest.approx(0.01 * 2 * 2 * 5.0)  # the level moves down, by the second term alone
