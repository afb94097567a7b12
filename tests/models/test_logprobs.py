"""Log-probabilities without logits: equal to log_softmax in value and gradient, in memory that does not grow."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from r1zero.errors import UserError
from r1zero.models.logprobs import MIN_BLOCK_WORDS, language_model_head, require_neutral_sampling, token_logprobs

INF = float("inf")


def plain(
    hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, temperature: float
) -> tuple[Tensor, Tensor]:
    """The textbook way, with all logits."""
    logits = nn.functional.linear(hidden, weight, bias)
    logits = logits.to(torch.float64 if logits.dtype == torch.float64 else torch.float32) / temperature
    logprobs = logits.log_softmax(-1)
    p = logprobs.exp()
    entropy = -torch.where(p > 0, p * logprobs, 0.0).sum(-1)
    return logprobs.gather(1, targets[:, None])[:, 0], entropy


def head(
    n: int = 9, d: int = 6, v: int = 300, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """hidden, weight, bias, targets; 300 words are three blocks of 128 at the least block size."""
    make = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (torch.randn(*s, generator=make, dtype=torch.float64) for s in ((n, d), (v, d), (v,)))
    targets = torch.randint(0, v, (n,), generator=make)
    targets[:3] = torch.tensor([0, 127, v - 1])[:n]  # ends of blocks
    return (
        hidden.to(dtype).requires_grad_(),
        weight.to(dtype).requires_grad_(),
        bias.to(dtype).requires_grad_(),
        targets,
    )


def test_two_words_by_hand() -> None:
    weight = torch.tensor([[math.log(3.0)], [0.0]])  # odds 3 : 1
    logprobs, entropy = token_logprobs(torch.ones(2, 1), weight, torch.tensor([0, 1]))
    assert logprobs.tolist() == pytest.approx([math.log(0.75), math.log(0.25)])
    assert entropy.tolist() == pytest.approx([-0.75 * math.log(0.75) - 0.25 * math.log(0.25)] * 2)
    logprobs, _ = token_logprobs(torch.ones(1, 1), weight, torch.tensor([0]), temperature=0.5)
    assert logprobs.item() == pytest.approx(math.log(0.9))  # odds 9 : 1


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_equal_log_softmax_for_any_block_size(temperature: float, with_bias: bool) -> None:
    hidden, weight, bias, targets = head()
    inputs = [hidden, weight, bias] if with_bias else [hidden, weight]
    up = torch.linspace(-1, 2, 9).double()
    expected = plain(hidden, weight, targets, bias if with_bias else None, temperature)
    # Gradients of the log-probabilities, of the entropy, and of both at once: three branches.
    wanted = [torch.autograd.grad(f(*expected), inputs, retain_graph=True) for f in mixes(up)]
    for block_elements in (1, 9 * 150, 9 * 299, 10**6):
        got = token_logprobs(
            hidden,
            weight,
            targets,
            bias=bias if with_bias else None,
            temperature=temperature,
            block_elements=block_elements,
        )
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        for mix, want in zip(mixes(up), wanted, strict=True):
            grads = torch.autograd.grad(mix(*got), inputs, retain_graph=True)
            for a, b in zip(grads, want, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def mixes(up: Tensor) -> list[Any]:
    return [
        lambda logprobs, entropy: (up * logprobs).sum(),
        lambda logprobs, entropy: (up * entropy).sum(),
        lambda logprobs, entropy: (up * logprobs - 0.3 * entropy).sum(),
    ]


def test_gradcheck_in_float64() -> None:
    hidden, weight, bias, targets = head(n=3, d=2, v=140)

    def function(hidden: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(hidden, weight, targets, bias=bias, temperature=0.7, block_elements=1)

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))


def test_float32_is_close_to_float64() -> None:
    hidden, weight, _, targets = head(n=200, d=64, v=2000, dtype=torch.float32)
    got = token_logprobs(hidden, weight, targets, block_elements=200 * 256)
    expected = plain(hidden.double(), weight.double(), targets, None, 1.0)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=2e-5)


def test_bfloat16_autocast_equals_the_plain_way_with_float32_sums() -> None:
    hidden, weight, _, targets = head(n=64, d=64, v=1000, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = token_logprobs(hidden, weight, targets, block_elements=64 * 200)
        expected = plain(hidden, weight, targets, None, 1.0)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)  # the same rounded logits
    up = torch.linspace(-1, 1, 64)
    grads = torch.autograd.grad((up * got[0]).sum(), [hidden, weight])
    exact = torch.autograd.grad((up * plain(hidden, weight, targets, None, 1.0)[0]).sum(), [hidden, weight])
    for a, b in zip(grads, exact, strict=True):
        assert a.dtype == torch.float32
        assert ((a - b).norm() / b.norm()).item() < 0.02
    # Weights and states that are bfloat16 themselves, without autocast: the same numbers.
    low = token_logprobs(hidden.bfloat16(), weight.bfloat16(), targets, block_elements=64 * 200)
    torch.testing.assert_close(low, got, rtol=0, atol=0)


def test_the_gradient_of_a_sure_token_survives_bfloat16() -> None:
    """p = 0.9995 rounds to 1 in bfloat16: were it rounded before 1 - p is formed, the gradient would be 0."""
    weight = torch.tensor([[7.6], [0.0]])
    hidden = torch.ones(1, 1, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logprobs, _ = token_logprobs(hidden, weight, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(logprobs.sum(), hidden)
    assert gradient.item() == pytest.approx(7.6 / (1 + math.exp(7.6)), rel=0.05)


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Elements of the largest tensor that any operation inside makes, backward pass included."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.largest = max(self.largest, leaf.numel())
        return result


@pytest.mark.parametrize("entropy_weight", [0.0, 0.1])
def test_no_tensor_of_tokens_times_words_is_ever_made(entropy_weight: float) -> None:
    n, d, v, block = 512, 4, 4096, 512 * 256
    hidden, weight, _, targets = head(n, d, v, torch.float32)
    with LargestTensor() as measured:  # type: ignore[no-untyped-call]
        logprobs, entropy = token_logprobs(hidden, weight, targets, block_elements=block)
        (logprobs - entropy_weight * entropy if entropy_weight else logprobs).sum().backward()  # type: ignore[no-untyped-call]
    assert measured.largest == block
    with LargestTensor() as measured:  # type: ignore[no-untyped-call]
        plain(hidden, weight, targets, None, 1.0)
    assert measured.largest == n * v  # the measure does see it where it is made


def test_no_logits_are_kept_for_the_backward_pass() -> None:
    hidden, weight, _, targets = head(512, 4, 4096, torch.float32)
    kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        token_logprobs(hidden, weight, targets)
    assert kept == hidden.numel() + weight.numel() + 3 * 512  # targets, log-sum-exp, entropy


def test_frozen_heads_and_frozen_states_get_no_gradient_and_the_other_gets_the_same() -> None:
    hidden, weight, _, targets = head()
    both = torch.autograd.grad(token_logprobs(hidden, weight, targets)[0].sum(), [hidden, weight])
    (only_hidden,) = torch.autograd.grad(token_logprobs(hidden, weight.detach(), targets)[0].sum(), [hidden])
    (only_weight,) = torch.autograd.grad(token_logprobs(hidden.detach(), weight, targets)[0].sum(), [weight])
    assert torch.equal(only_hidden, both[0])
    assert torch.equal(only_weight, both[1])
    with torch.no_grad():
        assert not token_logprobs(hidden, weight, targets)[0].requires_grad


def test_a_tied_embedding_gets_both_its_gradients() -> None:
    embedding = torch.randn(50, 4, dtype=torch.float64, requires_grad=True)
    tokens, targets = torch.tensor([3, 7, 3]), torch.tensor([7, 3, 1])
    got = torch.autograd.grad(token_logprobs(embedding[tokens], embedding, targets)[0].sum(), embedding)
    want = torch.autograd.grad(plain(embedding[tokens], embedding, targets, None, 1.0)[0].sum(), embedding)
    torch.testing.assert_close(got, want)


def test_the_head_s_gradient_goes_into_the_one_there_is_without_a_second_copy() -> None:
    want = torch.randn(500, 64, dtype=torch.float64, requires_grad=True)
    got = want.detach().clone().requires_grad_()
    tokens, targets = torch.tensor([3, 7, 3]), torch.tensor([7, 3, 1])
    largest: list[int] = []
    for weight in (want, got):

        def loss(hidden: Tensor, weight: Tensor = weight) -> Tensor:
            options = {"temperature": 0.7, "block_elements": 1, "into_grad": weight is got}
            return token_logprobs(hidden, weight, targets, **options)[0].sum()  # type: ignore[arg-type]

        for _ in range(2):  # the second adds to the first; tied: the embedding's gradient follows the head's
            loss(weight[tokens] + 1).backward()  # type: ignore[no-untyped-call]
        untied = loss(torch.ones(3, 64, dtype=torch.float64))
        with LargestTensor() as measured:  # type: ignore[no-untyped-call]
            untied.backward()  # type: ignore[no-untyped-call]
        largest.append(measured.largest)
    torch.testing.assert_close(got.grad, want.grad)
    assert largest == [500 * 64, MIN_BLOCK_WORDS * 64]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_words_ruled_out_by_the_bias_have_no_probability_and_make_no_nan(temperature: float) -> None:
    hidden, weight, bias, targets = head(n=5)
    with torch.no_grad():
        bias[:128] = -INF  # all of the first block
        bias[200] = -INF
    targets[:] = torch.tensor([130, 140, 199, 201, 299])
    got = token_logprobs(hidden, weight, targets, bias=bias, temperature=temperature, block_elements=1)
    live = torch.tensor([i for i in range(128, 300) if i != 200])
    places = torch.tensor([int((live == t).nonzero()) for t in targets])
    expected = plain(hidden, weight[live], places, bias[live], temperature)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)
    grads = torch.autograd.grad((got[0] + 0.1 * got[1]).sum(), [hidden, weight, bias])
    assert all(bool(g.isfinite().all()) for g in grads)
    assert grads[1][:128].abs().sum() == 0


def test_huge_logits_do_not_overflow() -> None:
    weight = torch.tensor([[1000.0], [-1000.0], [999.0]])
    logprobs, entropy = token_logprobs(torch.ones(2, 1), weight, torch.tensor([0, 1]))
    p = 1 / (1 + math.exp(-1))
    assert logprobs.tolist() == pytest.approx([math.log(p), -2000 + math.log(p)])
    assert entropy.tolist() == pytest.approx([-p * math.log(p) - (1 - p) * math.log(1 - p)] * 2, rel=1e-4)


def test_no_tokens_give_empty_results_and_zero_gradients() -> None:
    hidden, weight, _, _ = head(n=3)
    logprobs, entropy = token_logprobs(hidden[:0], weight, torch.zeros(0, dtype=torch.long))
    assert logprobs.shape == entropy.shape == (0,)
    grads = torch.autograd.grad(logprobs.sum() + entropy.sum(), [hidden, weight])
    assert all(g.abs().sum() == 0 for g in grads)


def test_a_nan_state_is_not_hidden() -> None:
    logprobs, _ = token_logprobs(torch.full((1, 1), float("nan")), torch.ones(3, 1), torch.tensor([0]))
    assert math.isnan(logprobs.item())


def test_bad_targets_and_temperatures_are_refused() -> None:
    hidden, weight, _, targets = head()
    for temperature in (0.0, -1.0, INF, float("nan")):
        with pytest.raises(ValueError, match="temperature"):
            token_logprobs(hidden, weight, targets, temperature=temperature)
    for target in (-100, 300):
        with pytest.raises(ValueError, match=r"targets must be in 0 \.\. 299"):
            token_logprobs(hidden, weight, torch.full_like(targets, target))


def test_the_smallest_block_has_enough_words_to_be_fast() -> None:
    hidden, weight, _, targets = head(n=4, v=1000, dtype=torch.float32)
    with LargestTensor() as measured, torch.no_grad():  # type: ignore[no-untyped-call]
        token_logprobs(hidden, weight, targets, block_elements=1)
    assert measured.largest == MIN_BLOCK_WORDS * 6  # a block of the head's rows; logits are 4 * 128


def llama(**config: Any) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model: nn.Module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=200,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=64,
            **config,
        )
    )
    return model


def test_a_llama_s_logprobs_equal_those_of_its_own_logits() -> None:
    for tied in (False, True):
        model: Any = llama(tie_word_embeddings=tied)
        tokens = torch.randint(0, 200, (2, 9))
        logits = model(input_ids=tokens).logits[:, :-1]
        expected = logits.log_softmax(-1).gather(2, tokens[:, 1:, None]).flatten()
        hidden = model.base_model(input_ids=tokens).last_hidden_state[:, :-1].flatten(0, 1)
        got, _ = token_logprobs(hidden, language_model_head(model).weight, tokens[:, 1:].flatten())
        torch.testing.assert_close(got, expected)
        expected.sum().backward()
        want = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        got.sum().backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.grad, want[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"),
    [("final_logit_softcapping", 30.0), ("logit_scale", 0.0625), ("logits_scaling", 8.0), ("lm_head_multiplier", 0.5)],
)
def test_a_model_that_changes_its_logits_is_refused(name: str, value: float) -> None:
    model: Any = llama()
    setattr(model.config, name, value)
    with pytest.raises(UserError, match=name):
        language_model_head(model)
    setattr(model.config, name, None)
    assert language_model_head(model) is model.lm_head


def test_a_head_that_is_no_plain_linear_layer_is_refused() -> None:
    class Wrapped(nn.Linear):
        """Such as a LoRA layer."""

    model: Any = llama()
    model.set_output_embeddings(Wrapped(16, 200))
    with pytest.raises(UserError, match="Wrapped"):
        language_model_head(model)


def test_sampling_that_cuts_the_distribution_is_refused_in_training() -> None:
    require_neutral_sampling(top_p=1.0, top_k=0, min_p=0.0)
    require_neutral_sampling(top_k=-1)  # vLLM's way to say off
    for cut in ({"top_p": 0.95}, {"top_k": 50}, {"min_p": 0.05}):
        with pytest.raises(UserError, match=next(iter(cut))):
            require_neutral_sampling(**cut)
