"""Bytes and FLOPs by hand for a small shape, and against what autograd really keeps."""

from typing import Any

import pytest
import torch
import transformers

from r1zero.models.memory_plan import (
    Shape,
    activation_bytes,
    forward_flops,
    lora_weights,
    read_shape,
    training_bytes,
    training_flops,
)
from r1zero.models.policy import Policy, Row

SMALL = Shape(layers=2, hidden=8, intermediate=16, heads=2, kv_heads=1, head_dim=4, vocab=10, tied=True)


def test_the_weights_of_a_small_shape() -> None:
    # Attention 8*8 + 2 * 8*4 + 8*8, feed-forward 3 * 8*16; embedding 10 * 8, counted once.
    assert SMALL.block == 192 + 384
    assert SMALL.total == 2 * 576 + 80
    assert SMALL.kv_bytes(2) == 2 * 2 * 4 * 2
    # q and o: (8 + 8), k and v: (8 + 4), gate, up, down: (8 + 16), times rank 2 and two layers.
    assert lora_weights(SMALL, 2) == 2 * 2 * (2 * 16 + 2 * 12 + 3 * 24)


def test_a_mixture_stores_all_experts_and_uses_a_few() -> None:
    config = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    config |= {"vocab_size": 10, "intermediate_size": 16, "num_local_experts": 4, "num_experts_per_tok": 2}
    shape = read_shape(config)
    assert shape.total == 192 + 4 * 3 * 8 * 16 + 2 * 80
    assert shape.used == 192 + 2 * 3 * 8 * 16 + 80


def test_flops_are_two_a_weight_and_token_and_three_or_four_times_that_in_training() -> None:
    assert forward_flops(SMALL, 5, 0) == 5 * 2 * SMALL.total
    assert forward_flops(SMALL, 1, 10) - forward_flops(SMALL, 1, 0) == 4 * 2 * 2 * 4 * 5
    assert training_flops(SMALL, 5, 0, checkpointing=False) == 3 * forward_flops(SMALL, 5, 0)
    assert training_flops(SMALL, 5, 0, checkpointing=True) == 4 * forward_flops(SMALL, 5, 0)


def test_shards_divide_the_states_and_checkpointing_the_activations() -> None:
    options: dict[str, Any] = {"compute": 4, "tokens": 10}
    whole = training_bytes(SMALL, **options, checkpointing=False)
    assert whole["weights"] == 4 * 1232
    assert whole["optimizer"] == 8 * 1232
    parts = training_bytes(SMALL, **options, checkpointing=True, shards=4)
    assert parts["gradients"] == 1232
    assert parts["activations"] == 10 * (2 * 4 * 8 + activation_bytes(SMALL, 4))
    assert training_bytes(SMALL, **options, checkpointing=False, lora_rank=2)["gradients"] == 4 * lora_weights(SMALL, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations_are_what_autograd_keeps_within_a_twentieth(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=96, intermediate_size=256, num_hidden_layers=3, num_attention_heads=6
    )
    config.num_key_value_heads = 2
    policy = Policy(transformers.LlamaForCausalLM(config).train(), trained=True)
    rows = [Row(prompt_ids=(i + 1,) * 20, completion_ids=(7,) * 41) for i in range(8) for _ in range(4)]
    (batch,) = policy.micro_batches(rows, 10_000)
    own = {p.untyped_storage().data_ptr() for p in policy.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        logprobs, _ = policy(batch)
    logprobs.sum().backward()
    shape = read_shape(config.to_dict())
    tokens = 8 * (20 + 4 * 40)
    found = training_bytes(shape, compute=dtype.itemsize, tokens=tokens, checkpointing=False, block_elements=0)
    expected = found["activations"] + found["cast weights"] + found["logits"]
    assert sum(kept.values()) == pytest.approx(expected, rel=0.05)
