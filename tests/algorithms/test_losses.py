"""Losses: hand-worked numbers, a float64 NumPy reference with plain loops, and the same gradient for any split."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from r1zero.algorithms import losses
from r1zero.algorithms.losses import StepTotals

INF = float("inf")
Array = np.ndarray[Any, np.dtype[np.float64]]


def one_token(rho: float, advantage: float, **options: Any) -> tuple[float, float, dict[str, Tensor]]:
    """Objective (minus the loss), its gradient by log pi, and metrics, of one token with this ratio."""
    logprobs = torch.tensor([[math.log(rho)]], dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    advantages = torch.tensor([advantage], dtype=torch.float64)
    loss, metrics = losses.clipped_policy_loss(
        logprobs, torch.zeros(1, 1, dtype=torch.float64), advantages, mask, StepTotals.of(mask), **options
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    return -loss.item(), -logprobs.grad.item(), metrics


# --- worked numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rho", "objective", "gradient"),
    [(1.1, 2.2, 2.2), (1.3, 2.4, 0.0), (2.0, 2.4, 0.0)],
)
def test_the_clip_of_a_good_token_stops_at_one_plus_eps(rho: float, objective: float, gradient: float) -> None:
    value, slope, _ = one_token(rho, 2.0, clip_low=0.2, clip_high=0.2)
    assert value == pytest.approx(objective)
    assert slope == pytest.approx(gradient)  # d rho A / d log pi = rho A


@pytest.mark.parametrize(
    ("advantage", "rho", "objective", "gradient", "clipped"),
    [
        (1.0, 1.5, 1.2, 0.0, "clip_frac_high"),
        (1.0, 0.5, 0.5, 0.5, None),
        (-1.0, 1.5, -1.5, -1.5, None),
        (-1.0, 0.5, -0.8, 0.0, "clip_frac_low"),
    ],
)
def test_the_clip_binds_in_two_of_its_four_cases(
    advantage: float, rho: float, objective: float, gradient: float, clipped: str | None
) -> None:
    value, slope, metrics = one_token(rho, advantage, clip_low=0.2, clip_high=0.2)
    assert value == pytest.approx(objective)
    assert slope == pytest.approx(gradient)
    for name in ("clip_frac_low", "clip_frac_high"):
        assert metrics[name].item() == (1.0 if name == clipped else 0.0)


def test_the_bounds_are_set_apart_and_either_can_be_infinite() -> None:
    assert one_token(1.25, 1.0, clip_low=0.2, clip_high=0.28)[0] == pytest.approx(1.25)
    assert one_token(1.3, 1.0, clip_low=0.2, clip_high=0.28)[0] == pytest.approx(1.28)
    assert one_token(9.0, 1.0, clip_low=0.2, clip_high=INF)[0] == pytest.approx(9.0)
    assert one_token(0.01, -1.0, clip_low=INF, clip_high=0.2)[0] == pytest.approx(-0.01)


def test_with_eps_10_as_in_r1_the_low_side_never_binds_and_the_high_side_is_11() -> None:
    assert one_token(1e-6, -1.0, clip_low=10, clip_high=10)[0] == pytest.approx(-1e-6)
    assert one_token(10.9, 1.0, clip_low=10, clip_high=10)[0] == pytest.approx(10.9)
    assert one_token(12.0, 1.0, clip_low=10, clip_high=10)[0] == pytest.approx(11.0)


def test_dual_clip_bounds_a_bad_token_of_high_ratio_and_nothing_else() -> None:
    value, slope, metrics = one_token(5.0, -1.0, dual_clip=3.0)
    assert value == pytest.approx(-3.0)
    assert slope == 0.0
    assert metrics["clip_frac_dual"].item() == 1.0
    assert one_token(2.5, -1.0, dual_clip=3.0)[0] == pytest.approx(-2.5)
    assert one_token(5.0, 1.0, dual_clip=3.0)[0] == pytest.approx(1.2)
    with pytest.raises(ValueError, match="above 1"):
        one_token(5.0, -1.0, dual_clip=0.5)


def test_the_three_aggregations_of_a_long_and_a_short_completion() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0, 6.0], [10.0, INF, float("nan"), -INF]])  # row means 3 and 10
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    totals = StepTotals.of(mask, max_tokens=8)
    assert totals == StepTotals(num_tokens=5, num_sequences=2, max_tokens=8)
    assert losses.aggregate(values, mask, totals, "sequence").item() == pytest.approx((3 + 10) / 2)
    assert losses.aggregate(values, mask, totals, "token").item() == pytest.approx(22 / 5)
    assert losses.aggregate(values, mask, totals, "constant").item() == pytest.approx(22 / 16)
    with pytest.raises(ValueError, match="aggregation"):
        losses.aggregate(values, mask, totals, "mean")  # type: ignore[arg-type]


def test_a_masked_completion_counts_in_no_denominator() -> None:
    mask = torch.tensor([[True, True], [False, False], [True, False]])
    assert StepTotals.of(mask) == StepTotals(num_tokens=3, num_sequences=2)


def test_a_ratio_over_the_upper_bound_has_no_gradient_and_padding_none_either() -> None:
    logprobs = torch.tensor([[0.5, 0.0, -INF]], requires_grad=True)  # last: padding
    mask = torch.tensor([[True, True, False]])
    loss, metrics = losses.clipped_policy_loss(
        logprobs, torch.zeros(1, 3), torch.ones(1), mask, StepTotals.of(mask), aggregation="token"
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(-(1.2 + 1.0) / 2)  # e^0.5 is cut to 1.2
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == [[0.0, -0.5, 0.0]]
    assert metrics["clip_frac_high"].item() == 0.5
    assert metrics["ratio_max"].item() == pytest.approx(math.exp(0.5))
    assert metrics["ratio_mean"].item() == pytest.approx((math.exp(0.5) + 1) / 2)
    assert metrics["approx_kl"].item() == pytest.approx((math.exp(0.5) - 1 - 0.5) / 2)


def test_gspo_uses_the_geometric_mean_of_the_token_ratios() -> None:
    logprobs = torch.tensor([[0.3, 0.0, -0.1, 7.0]])
    mask = torch.tensor([[True, True, True, False]])
    s = math.exp(0.2 / 3)
    for clip, expected in ((INF, s), (0.01, 1.01)):
        loss, metrics = losses.gspo_loss(
            logprobs, torch.zeros(1, 4), torch.ones(1), mask, StepTotals.of(mask), clip_low=INF, clip_high=clip
        )
        assert loss.item() == pytest.approx(-expected)
        assert metrics["ratio_max"].item() == pytest.approx(s)
        assert metrics["clip_frac_high"].item() == (1.0 if clip == 0.01 else 0.0)


def test_cispo_keeps_the_gradient_of_a_clipped_token() -> None:
    logprobs = torch.tensor([[math.log(2.0)]], requires_grad=True)
    mask = torch.ones(1, 1, dtype=torch.bool)
    loss, metrics = losses.cispo_loss(
        logprobs, torch.zeros(1, 1), torch.ones(1), mask, StepTotals.of(mask), clip_high=0.2
    )
    loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-1.2)  # clip(2) times A; PPO's would be 0
    assert metrics["clip_frac_high"].item() == 1.0


def test_kl_estimators_at_a_ratio_of_two() -> None:
    p, q = torch.tensor([[math.log(0.5)]]), torch.tensor([[math.log(0.25)]])
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert losses.kl_k1(p, q, mask).item() == pytest.approx(math.log(2))
    assert losses.kl_k2(p, q, mask).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert losses.kl_k3(p, q, mask).item() == pytest.approx(0.5 + math.log(2) - 1)


def test_metrics_of_micro_batches_add_up_and_maxima_take_the_maximum() -> None:
    parts = [{"kl": torch.tensor(0.25), "ratio_max": torch.tensor(3.0)}, {"kl": torch.tensor(0.5)}]
    parts.append({"kl": torch.tensor(0.0), "ratio_max": torch.tensor(2.0)})
    assert {k: v.item() for k, v in losses.add_metrics(parts).items()} == {"kl": 0.75, "ratio_max": 3.0}


def test_truncated_weights_are_capped_and_masked_ones_dropped() -> None:
    trainer = torch.tensor([[math.log(4.0), math.log(0.25), 0.0, 50.0]])
    mask = torch.tensor([[True, True, True, False]])
    engine = torch.zeros(1, 4)
    totals = StepTotals.of(mask)
    weights, metrics = losses.importance_weights(trainer, engine, mask, totals, cap=2.0)
    assert weights[0, :3].tolist() == pytest.approx([2.0, 0.25, 1.0])
    assert metrics["is_weight_mean"].item() == pytest.approx(3.25 / 3)
    assert metrics["is_ratio_max"].item() == pytest.approx(4.0)
    assert metrics["is_outside_frac"].item() == pytest.approx(1 / 3)
    weights, metrics = losses.importance_weights(trainer, engine, mask, totals, outside="mask", cap=5.0, floor=0.5)
    assert weights[0, :3].tolist() == pytest.approx([4.0, 0.0, 1.0])
    assert metrics["is_outside_frac"].item() == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="level"):
        losses.importance_weights(trainer, engine, mask, totals, level="batch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="outside"):
        losses.importance_weights(trainer, engine, mask, totals, outside="drop")  # type: ignore[arg-type]


def test_a_sequence_weight_does_not_drift_with_length() -> None:
    """A mismatch of -0.01 a token gives 0.990 at any length; a product over 1,000 tokens would give 0.00005."""
    trainer, engine = torch.full((2, 1000), -1.01), torch.full((2, 1000), -1.0)
    mask = torch.arange(1000)[None, :] < torch.tensor([[1000], [10]])
    weights, _ = losses.importance_weights(trainer, engine, mask, StepTotals.of(mask), level="sequence")
    assert weights[mask].tolist() == pytest.approx([math.exp(-0.01)] * 1010, rel=1e-4)


def test_mismatch_is_measured_on_real_tokens_only() -> None:
    trainer, engine = torch.tensor([[-1.0, -2.0, 9.0]]), torch.tensor([[-1.2, -1.9, INF]])
    mask = torch.tensor([[True, True, False]])
    metrics = losses.mismatch_metrics(trainer, engine, mask, StepTotals.of(mask))
    assert metrics["mismatch_abs_mean"].item() == pytest.approx(0.15)
    assert metrics["mismatch_abs_max"].item() == pytest.approx(0.2)
    assert metrics["mismatch_ratio_mean"].item() == pytest.approx((math.exp(0.2) + math.exp(-0.1)) / 2)
    k3 = [math.exp(0.2) - 1 - 0.2, math.exp(-0.1) - 1 + 0.1]  # trainer / engine - log(trainer / engine) - 1
    assert metrics["mismatch_kl"].item() == pytest.approx(sum(k3) / 2, rel=1e-5)


def test_the_value_loss_is_the_worse_of_the_free_and_the_held_error() -> None:
    values = torch.tensor([[1.0, 0.1]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss, metrics = losses.value_loss(values, torch.zeros(1, 2), torch.ones(1, 2), mask, StepTotals.of(mask), clip=0.2)
    # First value: free error 0, held at 0.2: 0.64. Second: 0.81 either way.
    assert loss.item() == pytest.approx(0.5 * (0.64 + 0.81) / 2)
    assert metrics["value_clip_frac"].item() == 0.5
    loss.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist()[0] == pytest.approx([0.0, -0.45])


# --- what the KL terms' gradients really are --------------------------------------------------------------------------


def expected_kl_gradient(estimator: Any, sampler: Tensor, corrected: bool, logits: Tensor, ref: Tensor) -> Tensor:
    """The exact mean, over words drawn from `sampler`, of the gradient of a KL term by the logits."""
    logits = logits.clone().requires_grad_()
    logprobs = logits.log_softmax(0)[:, None]  # (V, 1): every word once, as a completion of one token
    mask = torch.ones_like(logprobs, dtype=torch.bool)
    total = torch.zeros((), dtype=torch.float64)
    for j in range(len(logits)):
        row = slice(j, j + 1)
        term, _ = losses.kl_loss(
            logprobs[row],
            ref.log_softmax(0)[row, None],
            mask[row],
            StepTotals.of(mask[row]),
            beta=1.0,
            estimator=estimator,
            old_logprobs=sampler.log()[row, None] if corrected else None,
        )
        total = total + sampler[j] * term
    (gradient,) = torch.autograd.grad(total, logits)
    return gradient


def test_mean_gradients_of_the_kl_terms_are_what_the_docstring_says() -> None:
    logits, ref = torch.tensor([0.3, -1.0, 2.0, 0.1]).double(), torch.tensor([1.0, 0.5, -0.7, 0.2]).double()
    p, q = logits.softmax(0), ref.softmax(0)
    forward = p * ((p / q).log() - (p * (p / q).log()).sum())  # d KL(pi || ref) / d logits
    reverse = p - q  # d KL(ref || pi) / d logits
    old = torch.tensor([0.4, 0.3, 0.2, 0.1]).double()
    assert torch.allclose(expected_kl_gradient("k1", p, False, logits, ref), torch.zeros(4).double(), atol=1e-12)
    assert torch.allclose(expected_kl_gradient("k2", p, False, logits, ref), forward)
    assert torch.allclose(expected_kl_gradient("k3", p, False, logits, ref), reverse)
    for estimator in ("k1", "k3"):
        assert torch.allclose(expected_kl_gradient(estimator, old, True, logits, ref), forward)


# --- NumPy reference --------------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "clip": {"clip_low": 0.2, "clip_high": 0.28},
    "clip_one_sided": {"clip_low": INF, "clip_high": 0.1},
    "dual": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": 1.5},
    "gspo": {"clip_low": 0.05, "clip_high": 0.08},
    "cispo": {"clip_low": 0.3, "clip_high": 0.2},
    "reinforce": {},
    "k1": {},
    "k2": {},
    "k3": {},
    "k3_corrected": {},
    "entropy": {},
    "value": {"clip": 0.2},
}
TORCH_LOSS: dict[str, Callable[..., tuple[Tensor, dict[str, Tensor]]]] = {
    "clip": losses.clipped_policy_loss,
    "clip_one_sided": losses.clipped_policy_loss,
    "dual": losses.clipped_policy_loss,
    "gspo": losses.gspo_loss,
    "cispo": losses.cispo_loss,
}


def torch_loss(name: str, step: dict[str, Tensor], totals: StepTotals, aggregation: Any) -> tuple[Tensor, Any]:
    x, mask, options = step["logprobs"], step["mask"], OPTIONS[name]
    if name in TORCH_LOSS:
        return TORCH_LOSS[name](
            x,
            step["old"],
            step["advantages"],
            mask,
            totals,
            weights=step["weights"],
            aggregation=aggregation,
            **options,
        )
    if name == "reinforce":
        return losses.reinforce_loss(
            x, step["advantages"], mask, totals, weights=step["weights"], aggregation=aggregation
        )
    if name == "entropy":
        return losses.entropy_loss(x, mask, totals, coefficient=0.3, aggregation=aggregation)
    if name == "value":
        return losses.value_loss(x, step["old"], step["ref"], mask, totals, **options)
    return losses.kl_loss(
        x,
        step["ref"],
        mask,
        totals,
        beta=0.04,
        estimator=name[:2],  # type: ignore[arg-type]
        old_logprobs=step["old"] if name == "k3_corrected" else None,
        aggregation=aggregation,
    )


def numpy_loss(name: str, step: dict[str, Array], aggregation: str, max_tokens: int, x: Array, frozen: Array) -> float:
    """The formulas of the papers with loops; `frozen` is a copy of `x` for factors that take no gradient."""
    total = 0.0
    lengths = [int(row.sum()) for row in step["mask"]]
    sequences = sum(n > 0 for n in lengths)
    for b, length in enumerate(lengths):
        adv = step["advantages"][b]
        s = math.exp(sum(x[b, u] - step["old"][b, u] for u in range(length)) / length) if length else 1.0
        for t in range(length):
            lp, old, ref, w = x[b, t], step["old"][b, t], step["ref"][b, t], step["weights"][b, t]
            low, high = OPTIONS[name].get("clip_low", 0), OPTIONS[name].get("clip_high", 0)
            rho = s if name == "gspo" else math.exp(lp - old)
            if name in ("clip", "clip_one_sided", "dual", "gspo"):
                term = min(rho * adv, min(max(rho, 1 - low), 1 + high) * adv)
                if name == "dual" and adv < 0:
                    term = max(term, 1.5 * adv)
                term = -term * w
            elif name == "cispo":
                term = -min(max(math.exp(frozen[b, t] - old), 1 - low), 1 + high) * adv * lp * w
            elif name == "reinforce":
                term = -adv * lp * w
            elif name == "k1":
                term = 0.04 * (lp - ref)
            elif name == "k2":
                term = 0.04 * (lp - ref) ** 2 / 2
            elif name in ("k3", "k3_corrected"):
                term = 0.04 * (math.exp(ref - lp) - (ref - lp) - 1)
                term *= math.exp(lp - old) if name == "k3_corrected" else 1.0
            elif name == "entropy":
                term = -0.3 * lp
            else:
                held = old + min(max(lp - old, -0.2), 0.2)
                term = 0.5 * max((lp - ref) ** 2, (held - ref) ** 2)
            if aggregation == "token" or name == "value":
                total += term / sum(lengths)
            elif aggregation == "sequence":
                total += term / length / sequences
            else:
                total += term / (sequences * max_tokens)
    return total


def random_step(seed: int) -> dict[str, Array]:
    """Eight completions of 0 to 7 tokens, one without any and one of one token, on both sides of every bound."""
    rng = np.random.default_rng(seed)
    b, t = 8, 7
    lengths = rng.integers(1, t + 1, size=b)
    lengths[0], lengths[1] = 0, 1
    old = -rng.exponential(1.0, (b, t))
    return {
        "logprobs": old + rng.normal(0, 0.4, (b, t)),
        "old": old,
        "ref": old + rng.normal(0, 0.6, (b, t)),
        "advantages": rng.normal(0, 1, b),
        "weights": rng.uniform(0, 2, (b, t)),
        "mask": (np.arange(t)[None, :] < lengths[:, None]).astype(np.float64),
    }


def as_tensors(step: dict[str, Array], rows: Any = slice(None), pad: int = 0) -> dict[str, Tensor]:
    """Some rows of the step with `pad` more positions of garbage; `logprobs` takes a gradient."""
    tensors: dict[str, Tensor] = {}
    for key, array in step.items():
        x = torch.tensor(array[rows])
        if x.dim() == 2:
            x = torch.cat([x, torch.full((len(x), pad), 0.0 if key == "mask" else INF, dtype=x.dtype)], 1)
        tensors[key] = x.bool() if key == "mask" else x
    garbage = torch.tensor([INF, -INF, float("nan"), 88.0]).double()
    for key in ("logprobs", "old", "ref", "weights"):
        hidden = ~tensors["mask"]
        tensors[key][hidden] = garbage[torch.arange(int(hidden.sum())) % 4]
    tensors["logprobs"].requires_grad_()
    return tensors


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_loss_and_gradient_equal_the_numpy_reference(name: str, aggregation: str) -> None:
    for seed in range(3):
        step = random_step(seed)
        if name == "gspo":  # one weight a completion: the plain form of GSPO knows no other
            step["weights"][:] = step["weights"][:, :1]
        tensors = as_tensors(step)
        loss, _ = torch_loss(name, tensors, StepTotals.of(tensors["mask"], max_tokens=9), aggregation)
        (gradient,) = torch.autograd.grad(loss, tensors["logprobs"])
        x = step["logprobs"]
        assert loss.item() == pytest.approx(numpy_loss(name, step, aggregation, 9, x, x), rel=1e-10)
        expected = np.zeros_like(x)
        for place in np.ndindex(*x.shape):
            for sign in (1, -1):
                moved = x.copy()
                moved[place] += sign * 1e-6
                expected[place] += sign * numpy_loss(name, step, aggregation, 9, moved, x) / 2e-6
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6, atol=1e-8)


SPLITS = [
    [[0, 1, 2, 3, 4, 5, 6, 7]],
    [[i] for i in range(8)],
    [[7, 2, 5], [0], [6, 1, 3, 4]],
    [[3, 6, 1, 0, 7, 5, 2, 4]],
]


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
@pytest.mark.parametrize("name", list(OPTIONS))
def test_loss_gradient_and_metrics_are_the_same_for_any_split_order_and_padding(name: str, aggregation: str) -> None:
    step = random_step(7)
    whole = as_tensors(step)
    totals = StepTotals.of(whole["mask"], max_tokens=9)
    results = []
    for split in SPLITS:
        for pad in (0, 5):
            loss, gradient, parts = 0.0, torch.zeros(8, 7, dtype=torch.float64), []
            for rows in split:
                tensors = as_tensors(step, rows, pad)
                part, metrics = torch_loss(name, tensors, totals, aggregation)
                (slope,) = torch.autograd.grad(part, tensors["logprobs"])
                assert slope[~tensors["mask"]].abs().sum() == 0
                gradient[rows] = slope[:, :7]
                loss += part.item()
                parts.append(metrics)
            results.append((loss, gradient, losses.add_metrics(parts)))
    for loss, gradient, metrics in results:
        assert loss == pytest.approx(results[0][0], rel=1e-12)
        torch.testing.assert_close(gradient, results[0][1], rtol=1e-12, atol=0)
        assert metrics.keys() == results[0][2].keys()
        for key, value in metrics.items():
            assert value.item() == pytest.approx(results[0][2][key].item(), rel=1e-6, abs=1e-12), key


def test_metrics_equal_their_definitions_on_a_random_step() -> None:
    step = random_step(3)
    tensors = as_tensors(step)
    totals = StepTotals.of(tensors["mask"])
    _, metrics = torch_loss("clip", tensors, totals, "sequence")
    on = step["mask"] == 1
    rho = np.exp(step["logprobs"] - step["old"])[on]
    adv = np.broadcast_to(step["advantages"][:, None], on.shape)[on]
    assert metrics["ratio_mean"].item() == pytest.approx(rho.mean())
    assert metrics["ratio_max"].item() == pytest.approx(rho.max())
    assert metrics["approx_kl"].item() == pytest.approx((rho - 1 - np.log(rho)).mean())
    assert metrics["clip_frac_low"].item() == pytest.approx(((adv < 0) & (rho < 0.8)).mean())
    assert metrics["clip_frac_high"].item() == pytest.approx(((adv > 0) & (rho > 1.28)).mean())
    assert 0 < metrics["clip_frac_low"].item() < 1  # the case is not empty
    for name, key in (("k1", "kl"), ("k2", "kl"), ("k3", "kl"), ("entropy", "entropy")):
        delta = (step["ref"] - step["logprobs"])[on]
        value = {
            "k1": -delta.mean(),
            "k2": (delta**2 / 2).mean(),
            "k3": (np.exp(delta) - delta - 1).mean(),
            "entropy": step["logprobs"][on].mean(),
        }[name]
        assert torch_loss(name, tensors, totals, "sequence")[1][key].item() == pytest.approx(value)


def test_one_advantage_a_token_equals_one_a_completion_when_they_are_the_same() -> None:
    for name in ("clip", "gspo", "cispo", "reinforce"):
        tensors = as_tensors(random_step(1))
        totals = StepTotals.of(tensors["mask"])
        by_row, _ = torch_loss(name, tensors, totals, "token")
        spread = tensors["advantages"][:, None].expand(8, 7).masked_fill(~tensors["mask"], float("nan"))
        by_token, _ = torch_loss(name, {**tensors, "advantages": spread}, totals, "token")
        assert by_token.item() == by_row.item()


# --- edges ------------------------------------------------------------------------------------------------------------


def edge_step(logprobs: Tensor, old: Tensor, mask: Tensor) -> dict[str, Tensor]:
    return {
        "logprobs": logprobs.requires_grad_(),
        "old": old,
        "ref": old.clone(),
        "advantages": torch.linspace(-1, 1, len(mask)),
        "weights": torch.ones(mask.shape),
        "mask": mask,
    }


@pytest.mark.parametrize("aggregation", ["sequence", "token", "constant"])
@pytest.mark.parametrize("name", list(OPTIONS))
@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (3, 0), (0, 4)])
def test_a_fully_masked_or_empty_batch_gives_zero_with_a_graph(
    name: str, aggregation: str, shape: tuple[int, int]
) -> None:
    step = edge_step(torch.full(shape, -INF), torch.full(shape, -INF), torch.zeros(shape, dtype=torch.bool))
    step["advantages"] = torch.full(shape[:1], float("nan"))  # of a dropped completion
    loss, metrics = torch_loss(name, step, StepTotals.of(step["mask"]), aggregation)
    assert loss.item() == 0.0
    (gradient,) = torch.autograd.grad(loss, step["logprobs"])
    assert gradient.abs().sum().item() == 0.0
    assert all(value.item() == 0.0 for value in metrics.values())


@pytest.mark.parametrize("name", list(OPTIONS))
def test_impossible_tokens_and_huge_ratios_give_finite_losses_and_gradients(name: str) -> None:
    logprobs = torch.tensor([[-INF, -INF, -1.0, 0.0, -200.0], [-INF, -INF, -1.0, 0.0, -200.0]])
    old = torch.tensor([[-INF, -1.0, -INF, -200.0, 0.0], [-INF, -1.0, -INF, -200.0, 0.0]])
    step = edge_step(logprobs, old, torch.ones(2, 5, dtype=torch.bool))
    loss, metrics = torch_loss(name, step, StepTotals.of(step["mask"]), "sequence")
    (gradient,) = torch.autograd.grad(loss, step["logprobs"])
    if name not in ("entropy", "value"):  # these take no log-probabilities
        assert math.isfinite(loss.item())
        assert all(math.isfinite(value.item()) for value in metrics.values())
    assert bool(gradient.isfinite().all()) or name == "value"


def test_logits_of_minus_infinity_on_other_words_leave_every_gradient_finite() -> None:
    logits = torch.tensor([[[1.0, -INF, 0.5], [0.2, 0.1, -INF]]], requires_grad=True)
    tokens = torch.tensor([[[0], [1]]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    logprobs = logits.log_softmax(-1).gather(2, tokens)[..., 0]
    totals = StepTotals.of(mask)
    policy, _ = losses.clipped_policy_loss(logprobs, logprobs.detach() - 0.1, torch.ones(1), mask, totals)
    kl, _ = losses.kl_loss(logprobs, logprobs.detach() + 0.2, mask, totals, beta=0.1)
    (policy + kl).backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


def test_a_nan_on_a_real_token_is_not_hidden() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    loss, _ = losses.clipped_policy_loss(
        torch.tensor([[float("nan"), 0.0]]), torch.zeros(1, 2), torch.ones(1), mask, StepTotals.of(mask)
    )
    assert math.isnan(loss.item())
