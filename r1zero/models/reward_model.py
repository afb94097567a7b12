"""The reward model: a causal backbone with a linear head on the last real token of prompt and response.

It is a plain `AutoModelForSequenceClassification` with one label, so that what is saved loads anywhere. That class
takes the last token of a padded row that is not the pad token: where the pad is the EOS that ends every response, it
would score the token before. Hence `scorable_pad`.

`Scorer` is a trained one as a reward: tokens in as they were sampled, scores out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from r1zero.config import ModelConfig, RewardModelTerm
from r1zero.errors import UserError, first_line
from r1zero.models.packing import supports_packing, use_packed_attention
from r1zero.models.policy import UNREADABLE, MicroBatch, Row, freeze, load_tokenizer, micro_batches, states_before
from r1zero.runs.checkpoint import resolve_checkpoint


class RewardModel(nn.Module):
    """Scores whole responses."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model
        self.packed = supports_packing(model)
        """Whether it takes packed rows; else they have to be padded."""
        if self.packed:
            use_packed_attention(model)

    def forward(self, batch: MicroBatch) -> Tensor:
        """(B,) float32 scores of a micro-batch of `whole_rows`, in the micro-batch's order."""
        return score_last(self.model.base_model, self.model.score, batch)


def score_last(backbone: nn.Module, head: nn.Linear, batch: MicroBatch) -> Tensor:
    """(B,) float32: what `head` makes of the backbone's state at the last real token of each row."""
    ends = batch.mask.sum(1).cumsum(0) - 1  # (B,) the state before the token that `whole_rows` added
    scores: Tensor = head(states_before(backbone, batch)[ends])[:, 0].float()
    return scores


def whole_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows as `policy.micro_batches` has to see them: with one more token each.

    A micro-batch has the states before tokens, and a score is of the state after the last one. The token is never
    looked at, so it may be any.
    """
    return [Row(prompt_ids=row.prompt_ids, completion_ids=(*row.completion_ids, 0)) for row in rows]


def load_reward_model(folder: str | Path, config: ModelConfig, pad_token_id: int, seed: int) -> PreTrainedModel:
    """A reward model's checkpoint, or a causal model's backbone with a new head, in float32 and without dropout.

    The new head is drawn with standard deviation 1 / sqrt(D + 1) (arXiv 2009.01325): scores of order 1 from the start.
    Raises UserError where the folder holds no model that transformers can score with.
    """
    options = {} if config.attention == "auto" else {"attn_implementation": config.attention}
    try:
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, dtype=torch.float32, output_loading_info=True, **options
        )
    except UNREADABLE as error:
        raise UserError(f"{folder} is no model that transformers can score with: {first_line(error)}") from error
    head = getattr(model, "score", None)
    if not isinstance(head, nn.Linear):
        raise UserError(f"{type(model).__name__} has no linear `score` head on its last token: choose another model")
    if any(name.startswith("score.") for name in info["missing_keys"]):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            head.weight.normal_(0.0, (head.in_features + 1) ** -0.5, generator=generator)
            if head.bias is not None:
                head.bias.zero_()
    model.config.pad_token_id = pad_token_id
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0
    model.train()
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    loaded: PreTrainedModel = model
    return loaded


def scorable_pad(tokenizer: PreTrainedTokenizerBase, ends: set[int]) -> int:
    """A pad token that no response ends with: the tokenizer's own, or another special one, which becomes its own.

    Raises UserError where there is none: a saved model could not tell the end of a padded response.
    """
    own = tokenizer.pad_token_id
    if own is not None and own not in ends:
        return int(own)
    special = [(tokenizer.unk_token, tokenizer.unk_token_id), (tokenizer.bos_token, tokenizer.bos_token_id)]
    special += [(t.content, i) for i, t in sorted(tokenizer.added_tokens_decoder.items()) if t.special]
    for token, index in special:
        if index is not None and index not in ends:
            tokenizer.pad_token = token
            return int(index)
    raise UserError("the tokenizer has no special token that could be the pad token besides the one that ends a text")


ScoreRows = Callable[[Sequence[Row]], list[float]]
"""Prompts with their completions in, one score each out."""


@torch.no_grad()
def score_rows(
    module: nn.Module, rows: Sequence[Row], max_tokens: int, accelerator: Accelerator, *, packed: bool
) -> list[float]:
    """The score of each row, at its last token, without gradient; `max_tokens`, padding included, go in together."""
    found = [0.0] * len(rows)
    for batch in micro_batches(whole_rows(rows), max_tokens, accelerator.device, packed=packed):
        with accelerator.autocast():
            scores = module(batch)
        for i, score in zip(batch.indices, scores.tolist(), strict=True):
            found[i] = score
    return found


class Scorer:
    """A trained reward model as a reward.

        path = find_reward_model(term.path, tokenizer)      # before the run's folder is made
        scores = Scorer(path, term, config.model, accelerator, max_tokens=16384)(rows)

    It sees the very tokens that were sampled, and scores them where it was trained to: at the last real one, which is
    the EOS of a completion that has ended. One that was cut off is scored at its last token all the same: what to make
    of that is `rewards.with_scores`'s.
    """

    def __init__(
        self,
        folder: Path,
        term: RewardModelTerm,
        config: ModelConfig,
        accelerator: Accelerator,
        *,
        max_tokens: int,
    ) -> None:
        model = load_reward_model(folder, config, pad_token_id=0, seed=0)
        self.accelerator = accelerator
        self.max_tokens = max_tokens
        self.mean, self.std = score_scale(folder) if term.normalise else (0.0, 1.0)
        dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else torch.float32
        self.module = freeze(RewardModel(model), dtype).to(accelerator.device)

    def __call__(self, rows: Sequence[Row]) -> list[float]:
        packed = self.module.packed
        scores = score_rows(self.module, rows, self.max_tokens, self.accelerator, packed=packed)
        return [(score - self.mean) / self.std for score in scores]


def score_scale(folder: Path) -> tuple[float, float]:
    """Mean and deviation of its held-out scores that a checkpoint of ours keeps; 0 and 1 where there are none."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    mean, std = config.get("reward_mean", 0.0), config.get("reward_std", 1.0)
    return (mean, std) if std > 0 and math.isfinite(mean / std) else (0.0, 1.0)


def find_reward_model(path: str, tokenizer: PreTrainedTokenizerBase) -> Path:
    """The checkpoint folder `path` means, checked without loading its weights: a reward model, of one score, with the
    policy's tokens.

    Raises UserError where it is not: the tokens are scored as they were sampled, so a model that means other text by
    them cannot score them.
    """
    folder = Path(resolve_checkpoint(path))
    if not folder.is_dir():
        raise UserError(
            f"no reward model {path}: train one first (`make reward-model` makes runs/rm-tiny-cpu), or name a run or "
            "checkpoint folder of stage reward_model"
        )
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} is no reward model: its config.json cannot be read ({error})") from error
    kinds = config.get("architectures") or ["a model of unknown kind"]
    if not kinds[0].endswith("ForSequenceClassification"):
        raise UserError(f"{folder} is no reward model: it holds {kinds[0]}, which has no score")
    if len(config.get("id2label", [0])) != 1:
        raise UserError(f"{folder} has {len(config['id2label'])} labels, and a reward model has one score")
    own = load_tokenizer(folder).get_vocab()
    foreign = [token for token, index in tokenizer.get_vocab().items() if own.get(token) != index]
    if foreign:
        raise UserError(
            f"the reward model {folder} has another tokenizer than the policy ({len(foreign)} tokens differ, such as "
            f"{foreign[0]!r}): train one from a model with the policy's tokenizer"
        )
    return folder
