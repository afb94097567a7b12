"""The policy: a Hugging Face causal model with float32 master weights, and the log-probabilities of its completions.

Every stage takes its log-probabilities from here. Where the model's attention allows it (`packing.supports_packing`)
rows go through it packed, without padding and with each prompt once. Else they are right-padded: positions then count
from the first token and the causal mask hides the padding, so that no position ids or mask can be got wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from r1zero.config import ModelConfig
from r1zero.data.records import Row as Row
from r1zero.errors import UserError, first_line
from r1zero.models.logprobs import language_model_head, token_logprobs
from r1zero.models.packed_layout import Packed, PackedAttention, pack
from r1zero.models.packing import model_inputs, supports_packing, use_packed_attention

UNREADABLE = (OSError, ValueError, KeyError, TypeError, ImportError, SafetensorError)
"""What transformers raises for a folder it cannot make a model of."""


@dataclass(frozen=True, kw_only=True)
class Padded:
    """Right-padded rows, for a model whose attention cannot be packed."""

    input_ids: Tensor
    """(B, S) prompt, completion, padding."""
    predicting: Tensor
    """(N,) places in the flattened (B, S) whose states predict the completion tokens, in row-major order."""


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """Rows that go through the model together."""

    indices: tuple[int, ...]
    """(B,) which rows of the step these are."""
    inputs: Packed | Padded
    mask: Tensor
    """(B, T) bool, True on completion tokens (the policy's own, where a row says so); T is the longest completion."""
    targets: Tensor
    """(N,) those tokens in row-major order of `mask`; N = mask.sum()."""

    def spread(self, flat: Tensor) -> Tensor:
        """(N,) values of the completion tokens -> (B, T), 0 on padding; keeps the gradient."""
        return torch.zeros(self.mask.shape, dtype=flat.dtype, device=flat.device).masked_scatter(self.mask, flat)


def micro_batches(
    rows: Sequence[Row],
    max_tokens: int,
    device: torch.device | str = "cpu",
    *,
    packed: bool = False,
    kind: PackedAttention = "by_prompt",
) -> list[MicroBatch]:
    """Split rows into batches of at most `max_tokens` tokens, padding included, longest first.

    Padded, neighbours in length share a batch, so little is padding; packed, neighbours are rows of one prompt, which
    counts once. A single row over the limit gets a batch of its own.
    """
    if packed:
        return [_micro_batch(rows, group, device, kind) for group in _by_prompt(rows, max_tokens)]
    groups = group_by_tokens([(row,) for row in rows], max_tokens)
    return [_micro_batch(rows, group, device, None) for group in groups]


def group_by_tokens(units: Sequence[Sequence[Row]], max_tokens: int) -> list[list[int]]:
    """Indices of units (the rows of a pair, of a ranking) that go through the model together.

    At most `max_tokens` tokens, padding included, longest first; a unit is never split, as its loss needs all its rows.
    """
    longest = [max(row.length for row in unit) for unit in units]
    groups: list[list[int]] = []
    rows = 0
    for i in sorted(range(len(units)), key=lambda i: (-longest[i], i)):
        if groups and longest[groups[-1][0]] * (rows + len(units[i])) <= max_tokens:
            groups[-1].append(i)
            rows += len(units[i])
        else:
            groups.append([i])
            rows = len(units[i])
    return groups


def _by_prompt(rows: Sequence[Row], max_tokens: int) -> list[list[int]]:
    """Rows in batches of at most `max_tokens`, a batch's rows of one prompt together and the longest of them first."""
    together: dict[tuple[int, ...], list[int]] = {}
    for i in sorted(range(len(rows)), key=lambda i: (-rows[i].length, i)):
        together.setdefault(rows[i].prompt_ids, []).append(i)
    batches: list[list[int]] = [[]]
    used = 0
    for prompt, members in together.items():
        started = False  # whether the batch under way holds this prompt
        for i in members:
            size = len(rows[i].completion_ids) + (0 if started else len(prompt))
            if batches[-1] and used + size > max_tokens:
                batches.append([])
                used, size = 0, rows[i].length
            batches[-1].append(i)
            used += size
            started = True
    return [batch for batch in batches if batch]


def _micro_batch(
    rows: Sequence[Row], indices: list[int], device: torch.device | str, kind: PackedAttention | None
) -> MicroBatch:
    """`kind`: how the packed sequence is attended to; None: padded."""
    chosen = [rows[i] for i in indices]
    lengths = torch.tensor([len(row.completion_ids) for row in chosen])
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    inputs: Packed | Padded
    if kind is not None:
        inputs = pack([(row.prompt_ids, row.completion_ids) for row in chosen], device, kind)
    else:
        longest = max(row.length for row in chosen)
        ids = [[*row.prompt_ids, *row.completion_ids, *([0] * (longest - row.length))] for row in chosen]
        starts = torch.tensor([i * longest + len(row.prompt_ids) for i, row in enumerate(chosen)])
        row, offset = mask.nonzero(as_tuple=True)
        inputs = Padded(
            input_ids=torch.tensor(ids).to(device),
            predicting=(starts[row] + offset - 1).to(device),  # the state before each token
        )
    targets = torch.tensor([token for row in chosen for token in row.completion_ids])
    if any(row.own is not None for row in chosen):
        own = torch.tensor([mark for row in chosen for mark in row.own or (True,) * len(row.completion_ids)])  # (N,)
        mask = mask.masked_scatter(mask, own)
        targets = targets[own]
        inputs = replace(inputs, predicting=inputs.predicting[own.to(device)])
    return MicroBatch(indices=tuple(indices), inputs=inputs, mask=mask.to(device), targets=targets.to(device))


def states_before(backbone: nn.Module, batch: MicroBatch) -> Tensor:
    """(N, D) the backbone's last state before each completion token, in the order of `batch.targets`."""
    inputs = batch.inputs
    taken = model_inputs(inputs) if isinstance(inputs, Packed) else {"input_ids": inputs.input_ids}
    hidden: Tensor = backbone(**taken, use_cache=False).last_hidden_state  # (B, S, D), packed (1, L, D)
    return hidden.flatten(0, 1).index_select(0, inputs.predicting)


class Policy(nn.Module):
    """A causal model whose forward pass returns the log-probabilities of a micro-batch's completion tokens.

    A module of its own so that the wrappers of data parallelism see one forward call.

    trained: gradients are made by `loss.backward()` alone, as stages do, and so the head may add its own to
    `weight.grad` by itself (`token_logprobs`, into_grad). `torch.autograd.grad` would then miss it.
    """

    def __init__(self, model: PreTrainedModel, *, trained: bool = False) -> None:
        super().__init__()
        self.model = model
        self.trained = trained
        language_model_head(model)  # refuses a model whose logits are not just head(hidden)
        self.packed = supports_packing(model)
        """Whether micro-batches are packed; else they are padded."""
        if self.packed:
            use_packed_attention(model)

    def micro_batches(
        self, rows: Sequence[Row], max_tokens: int, device: torch.device | str = "cpu"
    ) -> list[MicroBatch]:
        """Micro-batches as this model takes them: see the function of this name."""
        kind: PackedAttention = getattr(self.model, "packed_attention", "by_prompt")
        return micro_batches(rows, max_tokens, device, packed=self.packed, kind=kind)

    def forward(
        self, batch: MicroBatch, *, temperature: float = 1.0, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """`(logprobs, entropy)`, both (B, T) float32: log pi of each completion token at `temperature`, and the
        entropy in nats of the distribution it was drawn from (without gradient unless asked for). 0 on padding.

        Only completion positions reach the language-model head, in chunks: see `logprobs.token_logprobs`.
        """
        head = self.head
        logprobs, entropy = token_logprobs(
            states_before(self.backbone, batch),
            head.weight,
            batch.targets,
            bias=head.bias,
            temperature=temperature,
            into_grad=self.trained and head.weight.is_leaf and not _gradients_are_exchanged(),
        )
        if not entropy_gradient:
            entropy = entropy.detach()
        return batch.spread(logprobs), batch.spread(entropy)

    @property
    def backbone(self) -> nn.Module:
        """The model without its language-model head."""
        backbone: nn.Module = self.model.base_model
        return backbone

    @property
    def head(self) -> nn.Linear:
        return language_model_head(self.model)


def _gradients_are_exchanged() -> bool:
    """Whether data parallelism may wait for each parameter's gradient."""
    return torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1


M = TypeVar("M", bound=nn.Module)


def freeze(policy: M, dtype: torch.dtype) -> M:
    """Make `policy` a reference (or a reward model), in place: no gradients, its linear layers in the compute type.

    Autocast would cast those weights in every pass, so the log-probabilities are the same to the bit, for half the
    memory. Embeddings, and a head tied to them, and norms stay as they are.
    """
    policy.requires_grad_(False)
    embeddings = {id(m.weight) for m in policy.modules() if isinstance(m, nn.Embedding)}
    for module in policy.modules():
        if isinstance(module, nn.Linear) and id(module.weight) not in embeddings:
            module.to(dtype)
    return policy


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a model folder. Raises UserError when there is none."""
    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder} holds no tokenizer that transformers can load: {first_line(error)}") from error


def load_model(folder: str | Path, config: ModelConfig) -> PreTrainedModel:
    """The model in a folder (or of a hub id) with float32 weights and without dropout.

    Raises UserError when it is no causal language model that transformers can load.
    """
    options: dict[str, Any] = {"dtype": torch.float32}
    if config.attention != "auto":
        options["attn_implementation"] = config.attention
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, **options)
    except UNREADABLE as error:
        raise UserError(f"{folder} is no model that transformers can load: {first_line(error)}") from error
    # Dropout in the trainer alone would be a difference to the engine: the policy is the function without it. The
    # probabilities are set to 0 because transformers checkpoints activations in training mode only.
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    model.packed_attention = config.packed_attention
    model.train()
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def add_lora(model: PreTrainedModel, config: ModelConfig) -> None:
    """Put LoRA adapters (arXiv 2106.09685) on all linear layers but the head, in place, and freeze the rest.

    Raises UserError where peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError("model.lora_rank needs peft: `make setup` or `pip install 'r1zero[lora]'`") from error
    lora = LoraConfig(r=config.lora_rank, lora_alpha=config.lora_alpha, target_modules="all-linear")
    inject_adapter_in_model(lora, model)


def compute_dtype(config: ModelConfig) -> torch.dtype:
    """The type the forward and backward passes run in; `auto` is bfloat16 where the device multiplies it fast."""
    if config.dtype == "auto":
        return torch.bfloat16 if torch.cuda.is_available() or _cpu_has_bfloat16() else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[config.dtype]


def _cpu_has_bfloat16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
