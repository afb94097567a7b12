from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from r1zero.config import ModelConfig
from r1zero.errors import UserError
from r1zero.models.policy import MicroBatch, Policy, Row, freeze, load_model, load_tokenizer, micro_batches
from r1zero.models.reward_model import load_reward_model
from tests.tiny_models import save_model, tiny_llama

ROWS = [
    Row(prompt_ids=(5, 6, 7), completion_ids=(8, 9)),
    Row(prompt_ids=(5,), completion_ids=(10, 11, 12, 13)),
    Row(prompt_ids=(5, 6), completion_ids=(14,)),
]


def alone(model: torch.nn.Module, row: Row, temperature: float) -> torch.Tensor:
    """The row's completion logprobs from a plain forward pass without padding."""
    ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
    logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1].float() / temperature
    taken: torch.Tensor = logits.log_softmax(-1)[
        torch.arange(len(row.completion_ids)), torch.tensor(row.completion_ids)
    ]
    return taken


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_padded_batch_gives_each_row_the_logprobs_it_has_alone(temperature: float) -> None:
    model = tiny_llama()
    (batch,) = micro_batches(ROWS, 100)
    with torch.no_grad():
        logprobs, entropy = Policy(model)(batch, temperature=temperature)
        for place, index in enumerate(batch.indices):
            expected = alone(model, ROWS[index], temperature)
            assert torch.allclose(logprobs[place, : len(expected)], expected, atol=1e-5)
            assert logprobs[place, len(expected) :].eq(0).all()
    assert (entropy[batch.mask] > 0).all()
    assert entropy[~batch.mask].eq(0).all()


def test_micro_batches_hold_every_row_once_within_the_budget() -> None:
    rows = [Row(prompt_ids=(1,) * (1 + i % 5), completion_ids=(2,) * (1 + i % 11)) for i in range(60)]
    batches = micro_batches(rows, 64)
    assert sorted(i for b in batches for i in b.indices) == list(range(60))
    assert all(b.inputs.input_ids.numel() <= 64 for b in batches)
    used = sum(row.length for row in rows)
    assert used / sum(b.inputs.input_ids.numel() for b in batches) > 0.9  # sorted by length: little is padding


def test_a_row_over_the_budget_goes_alone() -> None:
    batches = micro_batches([*ROWS, Row(prompt_ids=(1,) * 50, completion_ids=(2,) * 50)], 16)
    assert [len(b.indices) for b in batches if b.inputs.input_ids.shape[1] == 100] == [1]


def test_spread_puts_values_in_row_major_order() -> None:
    (batch,) = micro_batches(ROWS, 100)
    spread = batch.spread(torch.arange(1.0, 8.0))
    assert isinstance(batch, MicroBatch)
    assert spread.shape == batch.mask.shape
    assert spread[batch.mask].tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("tied", [True, False])
def test_a_frozen_reference_has_the_same_logprobs_to_the_bit_in_less_memory(tied: bool) -> None:
    policy = Policy(tiny_llama(tied=tied))
    (batch,) = policy.micro_batches(ROWS, 100)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected, _ = policy(batch)
        held = sum(p.nbytes for p in policy.parameters())
        found, _ = freeze(policy, torch.bfloat16)(batch)
    assert torch.equal(found, expected)
    assert sum(p.nbytes for p in policy.parameters()) < 0.6 * held
    assert not any(p.requires_grad for p in policy.parameters())
    policy.load_state_dict(tiny_llama(tied=tied, seed=1).state_dict(prefix="model."))  # how a reference is replaced
    assert policy.model.model.layers[0].mlp.up_proj.weight.dtype == torch.bfloat16


def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no model that transformers can load"):
        load_model(tmp_path, ModelConfig())
    with pytest.raises(UserError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("load", [load_model, partial(load_reward_model, pad_token_id=0, seed=0)])
def test_weights_that_are_cut_short_are_refused_by_name(
    load: Callable[[Path, ModelConfig], object], tmp_path: Path
) -> None:
    save_model(tmp_path, tiny_llama(layers=1))
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"is no model that transformers can [\w ]+: .*(incomplete|Invalid|invalid)"):
        load(tmp_path, ModelConfig())


@pytest.mark.parametrize("tied", [True, False])
def test_a_trained_policy_s_backward_makes_the_gradient_that_autograd_makes_of_any(tied: bool) -> None:
    gradients = []
    for trained in (False, True):
        model = tiny_llama(tied=tied)
        policy = Policy(model, trained=trained)
        (batch,) = policy.micro_batches(ROWS, 100)
        loss = policy(batch)[0].sum()
        if trained:
            loss.backward()
            gradients.append([p.grad for p in model.parameters()])
        else:
            gradients.append(list(torch.autograd.grad(loss, list(model.parameters()))))
    for any_, own in zip(*gradients, strict=True):
        torch.testing.assert_close(own, any_)
