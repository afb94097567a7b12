"""Packed micro-batches against each row alone: the same states, the same gradients, on every kind of model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers

from r1zero.models import packed_layout, packing
from r1zero.models.packed_layout import pack
from r1zero.models.packing import flexible, packed_attention, supports_packing
from r1zero.models.policy import Policy, Row, micro_batches
from tests.tiny_models import tiny_gpt2, tiny_llama

ROWS = [
    Row(prompt_ids=(5, 6, 7), completion_ids=(8, 9, 3)),
    Row(prompt_ids=(4,), completion_ids=(3,)),
    Row(prompt_ids=(5, 6, 7), completion_ids=(1, 2, 3, 4, 5)),
    Row(prompt_ids=(1, 2), completion_ids=(7, 6, 5, 4)),
    Row(prompt_ids=(5, 6, 7), completion_ids=(9,)),
    Row(prompt_ids=(1, 2), completion_ids=(3, 4)),
]
SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}


def qwen2() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SHAPE))


def qwen3() -> Any:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SHAPE, head_dim=16))


def mixture() -> Any:
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(**SHAPE, num_local_experts=4, sliding_window=None)
    )


def alone(model: Any, temperature: float = 1.0) -> list[torch.Tensor]:
    """Each row's completion logprobs from a plain forward pass of it alone, with sdpa."""
    found = []
    for row in ROWS:
        ids = torch.tensor([[*row.prompt_ids, *row.completion_ids]])
        logits = model(input_ids=ids, use_cache=False).logits[0, len(row.prompt_ids) - 1 : -1].float() / temperature
        found.append(logits.log_softmax(-1)[torch.arange(len(row.completion_ids)), torch.tensor(row.completion_ids)])
    return found


def gradient(model: Any) -> torch.Tensor:
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad()
    return flat


def weighted(logprobs: list[torch.Tensor]) -> torch.Tensor:
    """A loss in which every token has another weight."""
    return sum(((1 + i + torch.arange(len(x))) * x).sum() for i, x in enumerate(logprobs))  # type: ignore[return-value]


def packed_logprobs(policy: Policy, max_tokens: int) -> list[torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    for batch in policy.micro_batches(ROWS, max_tokens):
        logprobs, _ = policy(batch)
        found |= {i: logprobs[k][batch.mask[k]] for k, i in enumerate(batch.indices)}
    return [found[i] for i in range(len(ROWS))]


@pytest.mark.parametrize("make", [tiny_llama, tiny_gpt2, qwen2, qwen3, mixture])
@pytest.mark.parametrize(
    "way", ["matrix products", "one completion a segment", "whole rows", "small batches", "joined", "joined at most"]
)
def test_packed_rows_have_the_logprobs_and_gradients_they_have_alone(
    make: Callable[[], Any], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = make().eval()
    expected = alone(model)
    weighted(expected).backward()  # type: ignore[no-untyped-call]
    expected_gradient = gradient(model)
    if way == "whole rows":
        monkeypatch.setattr(packing, "MAX_SHORT", 0)
    if way == "one completion a segment":
        monkeypatch.setattr(packed_layout, "SEGMENT_ELEMENTS", 1)
    if way.startswith("joined"):
        model.packed_attention = "joined"
    if way == "joined at most":
        monkeypatch.setattr(packed_layout, "FREE_ELEMENTS", 2**30)
        monkeypatch.setattr(packed_layout, "JOINED_ELEMENTS", 2**30)
    policy = Policy(model)
    assert policy.packed
    found = packed_logprobs(policy, 8 if way == "small batches" else 1000)
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=2e-5)
    weighted(found).backward()  # type: ignore[no-untyped-call]
    assert (gradient(model) - expected_gradient).norm() < 1e-5 * expected_gradient.norm()


def test_gradient_checkpointing_goes_through_the_packed_attention_again() -> None:
    model = tiny_llama()
    policy = Policy(model)
    weighted(packed_logprobs(policy, 1000)).backward()  # type: ignore[no-untyped-call]
    expected = gradient(model)
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    weighted(packed_logprobs(policy, 1000)).backward()  # type: ignore[no-untyped-call]
    assert torch.allclose(gradient(model), expected, rtol=1e-4, atol=1e-6)


def test_in_bfloat16_packed_rows_are_as_near_to_float32_as_padded_rows() -> None:
    model = tiny_llama()
    expected = torch.cat([x.detach() for x in alone(model)])
    policy = Policy(model)
    errors = {}
    for packed in (True, False):
        found: dict[int, torch.Tensor] = {}
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            for batch in micro_batches(ROWS, 1000, packed=packed):
                logprobs, _ = policy(batch)
                found |= {i: logprobs[k][batch.mask[k]] for k, i in enumerate(batch.indices)}
        errors[packed] = float((torch.cat([found[i] for i in range(len(ROWS))]) - expected).abs().mean())
    assert 0 < errors[True] < 2 * errors[False]


def test_joined_prompts_share_their_matrix_products_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(row.prompt_ids, row.completion_ids) for row in sorted(ROWS, key=lambda row: row.prompt_ids)]
    apart, joined = pack(rows).layout.blocks, pack(rows, kind="joined").layout.blocks
    # Three prompts by themselves; completions with something to predict from: those of two.
    assert [block.prompts for block in apart] == [1] * 5
    assert [block.prompts for block in joined] == [3, 2]
    assert joined[1].padding is not None
    assert joined[1].padding.tolist() == [[False, False, False], [False, False, True]]
    assert [len(block.inverse) for block in joined] == [3 + 2 + 1, (2 + 4 + 0) + (3 + 1)]
    monkeypatch.setattr(packed_layout, "JOINED_ELEMENTS", 0)
    assert [block.prompts for block in pack(rows, kind="joined").layout.blocks] == [1] * 5


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_mask_of_flex_attention_knows_the_shared_prompt() -> None:
    torch.manual_seed(0)
    rows = [(row.prompt_ids, row.completion_ids) for row in sorted(ROWS, key=lambda row: row.prompt_ids)]
    layout = pack(rows).layout
    q = torch.randn(len(layout.row), 4, 16)
    k, v = torch.randn(2, len(layout.row), 2, 16)
    expected, _ = packed_attention(
        torch.nn.Identity(), *(x.transpose(0, 1)[None] for x in (q, k, v)), None, scaling=0.25, layout=layout
    )
    assert torch.allclose(flexible(q, k, v, layout, 0.25), expected[0], atol=1e-6)
    # By hand: prompt (1, 2), its completions 7 6 5 (4) and 3 (4).
    small = pack([((1, 2), (7, 6, 5, 4)), ((1, 2), (3, 4))]).layout
    mask = packing.block_mask(small)
    found = [[bool(mask.mask_mod(0, 0, torch.tensor(i), torch.tensor(j))) for j in range(6)] for i in range(6)]
    wanted = ["100000", "110000", "111000", "111100", "111110", "110001"]
    assert found == [[c == "1" for c in line] for line in wanted]


def test_a_prompt_counts_once_and_a_last_token_not_at_all() -> None:
    packed = pack([((5, 6, 7), (8, 9, 3)), ((5, 6, 7), (1,)), ((4,), (2, 2))])
    assert packed.input_ids.tolist() == [[5, 6, 7, 8, 9, 4, 2]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 4, 0, 1]]
    assert packed.predicting.tolist() == [2, 3, 4, 2, 5, 6]


def test_packed_micro_batches_hold_every_row_once_within_the_budget() -> None:
    rows = [Row(prompt_ids=(i // 8,) * (1 + i // 8), completion_ids=(2,) * (1 + i * 7 % 11)) for i in range(40)]
    batches = micro_batches(rows, 48, packed=True)
    assert sorted(i for b in batches for i in b.indices) == list(range(40))
    assert all(b.inputs.input_ids.numel() <= 48 for b in batches)
    apart = sum(row.length for row in rows)
    assert sum(b.inputs.input_ids.numel() for b in batches) < 0.7 * apart
    for batch in batches:
        targets = [token for i in batch.indices for token in rows[i].completion_ids]
        assert batch.targets.tolist() == targets
        assert len(batch.inputs.predicting) == len(targets) == int(batch.mask.sum())


def test_a_model_with_a_sliding_window_or_another_attention_is_padded() -> None:
    windowed = transformers.MistralForCausalLM(transformers.MistralConfig(**SHAPE, sliding_window=4))
    gemma = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**SHAPE, head_dim=8))
    chosen = tiny_llama()
    chosen.set_attn_implementation("eager")
    assert [supports_packing(model) for model in (windowed, gemma, chosen)] == [False] * 3
    assert not Policy(windowed).packed
    assert Policy(windowed).micro_batches(ROWS, 100)[0].inputs.input_ids.shape == (6, 8)


def test_a_kind_of_attention_that_is_not_known_is_refused() -> None:
    layout = pack([((1,), (2, 3))]).layout
    x = torch.zeros(1, 2, 2, 4)
    with pytest.raises(ValueError, match="packed attention knows no softcap"):
        packed_attention(torch.nn.Identity(), x, x, x, None, layout=layout, softcap=30.0)


def test_a_model_in_a_policy_generates_and_saves_as_before(tmp_path: Any) -> None:
    model = tiny_llama()
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    options: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": False}
    expected = model.generate(ids, **options)
    Policy(model)
    assert torch.equal(model.generate(ids, **options), expected)
    model.save_pretrained(tmp_path)
    assert packing.ATTENTION not in (tmp_path / "config.json").read_text()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_packed_rows_on_a_gpu_have_the_logprobs_they_have_padded_on_a_cpu() -> None:
    model = tiny_llama()
    expected = torch.cat([x.detach() for x in alone(model)])
    policy = Policy(model.cuda())
    (batch,) = policy.micro_batches(ROWS, 1000, "cuda")
    logprobs, _ = policy(batch)
    logprobs.sum().backward()
    found = {i: logprobs[k][batch.mask[k]].detach().cpu() for k, i in enumerate(batch.indices)}
    assert torch.allclose(torch.cat([found[i] for i in range(len(ROWS))]), expected, atol=1e-3)
    assert all(bool(p.grad.isfinite().all()) for p in policy.parameters() if p.grad is not None)
