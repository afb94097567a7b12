"""Distillation's divergences on distributions small enough for paper and pencil."""

from __future__ import annotations

import math

import pytest
import torch

from r1zero.algorithms.distillation import (
    distillation_loss,
    forward_kl,
    generalized_jsd,
    reverse_kl,
    reverse_kl_advantages,
)

LN2, LN3 = math.log(2), math.log(3)
TEACHER = torch.tensor([0.5, 0.5]).log()  # P
STUDENT = torch.tensor([0.75, 0.25]).log()  # Q


def test_the_two_kls_are_those_worked_out_by_hand() -> None:
    # KL(P||Q) = 1/2 ln(2/3) + 1/2 ln 2 = ln 2 - 1/2 ln 3;  KL(Q||P) = 3/4 ln(3/2) + 1/4 ln(1/2) = 3/4 ln 3 - ln 2
    assert forward_kl(STUDENT, TEACHER).item() == pytest.approx(LN2 - LN3 / 2, abs=1e-6)
    assert reverse_kl(STUDENT, TEACHER).item() == pytest.approx(0.75 * LN3 - LN2, abs=1e-6)


def test_the_jsd_of_two_certain_and_different_tokens_is_the_entropy_of_beta() -> None:
    never = -math.inf
    teacher, student = torch.tensor([0.0, never]), torch.tensor([never, 0.0])
    # M = (beta, 1 - beta): KL(P||M) = -ln beta, KL(Q||M) = -ln(1 - beta)
    assert generalized_jsd(student, teacher, beta=0.5).item() == pytest.approx(LN2)
    assert generalized_jsd(student, teacher, beta=0.25).item() == pytest.approx(0.25 * 2 * LN2 + 0.75 * (2 * LN2 - LN3))
    assert reverse_kl(student, teacher).item() == math.inf


def test_the_jsd_weighs_the_teacher_by_beta() -> None:
    # beta 1/2: M = (5/8, 3/8); 1/2 [1/2 ln(4/5) + 1/2 ln(4/3)] + 1/2 [3/4 ln(6/5) + 1/4 ln(2/3)]
    half = 0.25 * math.log(16 / 15) + 0.375 * math.log(1.2) + 0.125 * math.log(2 / 3)
    assert generalized_jsd(STUDENT, TEACHER, beta=0.5).item() == pytest.approx(half, abs=1e-6)
    # beta 0.2: M = 0.2 P + 0.8 Q = (0.7, 0.3)
    weighed = 0.2 * (0.5 * math.log(5 / 7) + 0.5 * math.log(5 / 3)) + 0.8 * (
        0.75 * math.log(7.5 / 7) + 0.25 * math.log(2.5 / 3)
    )
    assert generalized_jsd(STUDENT, TEACHER, beta=0.2).item() == pytest.approx(weighed, abs=1e-6)


def test_the_ends_of_beta_are_the_kls_and_near_them_the_jsd_over_beta() -> None:
    student, teacher = STUDENT.double(), TEACHER.double()
    forward, reverse = forward_kl(student, teacher), reverse_kl(student, teacher)
    assert generalized_jsd(student, teacher, beta=0) == forward
    assert generalized_jsd(student, teacher, beta=1) == reverse
    assert (generalized_jsd(student, teacher, beta=1e-5) / 1e-5).item() == pytest.approx(forward.item(), rel=1e-3)
    assert (generalized_jsd(student, teacher, beta=1 - 1e-5) / 1e-5).item() == pytest.approx(reverse.item(), rel=1e-3)
    with pytest.raises(ValueError, match=r"beta lies in \[0, 1\]"):
        generalized_jsd(student, teacher, beta=1.5)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_the_loss_is_zero_without_gradient_where_the_student_is_the_teacher(beta: float) -> None:
    logits = torch.tensor([[[1.0, 0.0, -2.0], [0.5, 0.5, 3.0]]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    teacher = logits.detach().log_softmax(-1)
    teacher[0, 1] = torch.tensor([0.0, -math.inf, -math.inf])  # an observation: whatever the teacher says of it
    loss, metrics = distillation_loss(logits.log_softmax(-1), teacher, mask, beta=beta, num_tokens=1)
    loss.backward()
    assert logits.grad is not None
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert metrics["distill/divergence"].item() == pytest.approx(0, abs=1e-6)
    assert logits.grad.abs().max().item() < 1e-6
    assert logits.grad[0, 1].tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_of_the_forward_kl_is_student_minus_teacher() -> None:
    logits = torch.tensor([[[LN3, 0.0]]], requires_grad=True)  # Q = (3/4, 1/4)
    loss, _ = distillation_loss(
        logits.log_softmax(-1), TEACHER[None, None], torch.tensor([[True]]), beta=0, num_tokens=2
    )
    loss.backward()
    assert logits.grad is not None
    assert loss.item() == pytest.approx((LN2 - LN3 / 2) / 2, abs=1e-6)
    assert logits.grad.flatten().tolist() == pytest.approx([0.125, -0.125])


def test_a_jsd_with_impossible_tokens_has_a_finite_gradient() -> None:
    logits = torch.tensor([0.0, 0.0, -math.inf], requires_grad=True)
    teacher = torch.tensor([0.0, -math.inf, -math.inf])
    generalized_jsd(logits.log_softmax(-1), teacher, beta=0.5).backward()
    assert logits.grad is not None
    assert logits.grad[:2].isfinite().all()
    assert logits.grad[0] < 0 < logits.grad[1]


def test_the_advantage_is_the_teacher_s_logprob_less_the_student_s_on_own_tokens() -> None:
    student = torch.tensor([[-1.0, -2.0, -0.5, -3.0]], requires_grad=True)
    teacher = torch.tensor([[-0.5, -math.inf, -0.25, -9.0]])
    mask = torch.tensor([[True, True, True, False]])
    found = reverse_kl_advantages(student, teacher, mask, scale=2.0, clip=5.0)
    assert found.tolist() == [[1.0, -10.0, 0.5, 0.0]]
    assert not found.requires_grad


def test_the_advantage_s_mean_over_the_student_s_samples_is_minus_the_reverse_kl() -> None:
    tokens = torch.tensor([[0, 0, 0, 1]])  # in the student's proportions, 3 to 1
    found = reverse_kl_advantages(STUDENT[tokens], TEACHER[tokens], torch.ones(1, 4, dtype=torch.bool))
    assert found.mean().item() == pytest.approx(-reverse_kl(STUDENT, TEACHER).item(), abs=1e-6)
