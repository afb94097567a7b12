"""`tiny:arithmetic`: a base model of a tenth of a million parameters, pretrained here in about a minute and cached.

It is to R1-Zero on a laptop what a pretrained base is on a node: it has seen questions with worked reasoning, right
and wrong, with and without the tags, so it sometimes thinks, sometimes errs and sometimes ignores the format. The
folder it leaves is an ordinary Hugging Face one: transformers and vLLM load it as it is.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from r1zero.data.miniature import arithmetic
from r1zero.models.made.cache import make_once

EOS, PAD, UNKNOWN = "<|endoftext|>", "<|pad|>", "<|unknown|>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = "0123456789+=,"
IGNORED = -100
"""Target of a position that is not trained on."""


@dataclass(frozen=True, kw_only=True)
class TinyConfig:
    """What the base is and how it is pretrained."""

    hidden_size: int = 96
    num_layers: int = 3
    num_heads: int = 3
    head_size: int = 32
    """The smallest that vLLM's CPU attention takes."""
    intermediate_size: int = 256
    max_positions: int = 512
    documents: int = 48_000
    """Documents seen, each once."""
    batch_documents: int = 64
    muon_lr: float = 0.02
    """Learning rate of the matrices. Muon (kellerjordan.github.io/posts/muon): at 50,000 documents 79% of the base's
    steps are right, near the corpus's own 80%; with AdamW alone 65%."""
    adam_lr: float = 4e-3
    """Learning rate of embeddings and norms."""
    weight_decay: float = 0.1
    warmup_steps: int = 50
    seed: int = 0


def ensure(config: TinyConfig | None = None) -> Path:
    """The base's folder, pretrained at first use. Another config or other code makes another folder."""
    config = config or TinyConfig()
    return make_once(f"tiny-arithmetic-{_key(config)}", lambda folder: make(config, folder))


def make(config: TinyConfig, folder: Path) -> None:
    """Pretrain the base and save it into `folder`. The same config gives the same weights on the same machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(4, threads))  # more only get in each other's way on matrices this small
    try:
        tokenizer = make_tokenizer(config)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            model = LlamaForCausalLM(_llama_config(config, tokenizer))
            pretrain(model, tokenizer, config)
    finally:
        torch.set_num_threads(threads)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "pretraining.json").write_text(json.dumps(asdict(config), indent=2) + "\n", encoding="utf-8")


def make_tokenizer(config: TinyConfig) -> PreTrainedTokenizerFast:
    """One token a character, one a tag; no BOS. Text that is not arithmetic becomes unknown tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    texts = [EOS, PAD, UNKNOWN, *TAGS, *CHARACTERS]
    vocabulary = {text: index for index, text in enumerate(texts)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()
    # Not special: a tag is text, decoded and seen by verifiers.
    backend.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNKNOWN,
        model_max_length=config.max_positions,
        clean_up_tokenization_spaces=False,
    )


def pretrain(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, config: TinyConfig) -> None:
    """Next-token training on the corpus, in place, with a line of progress every tenth."""
    steps = config.documents // config.batch_documents
    print(f"tiny:arithmetic: pretraining {model.num_parameters():,} parameters …", file=sys.stderr, flush=True)
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    optimizers = [
        torch.optim.Muon(matrices, lr=config.muon_lr, momentum=0.95, weight_decay=config.weight_decay),
        torch.optim.AdamW(others, lr=config.adam_lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda step: _lr_factor(step, steps, config)) for o in optimizers]
    model.train()
    began = time.monotonic()
    for step, (ids, targets) in enumerate(_batches(tokenizer, config, steps), 1):
        logits = model(input_ids=ids, use_cache=False).logits  # (B, T, V)
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten(), ignore_index=IGNORED
        )
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        model.zero_grad()
        if step % max(1, steps // 10) == 0 or step == steps:
            seconds = time.monotonic() - began
            left = seconds / step * (steps - step)
            line = f"{step / steps:4.0%}  loss {loss.item():.3f}  {seconds:3.0f} s, {left:3.0f} s left"
            print(f"tiny:arithmetic: {line}", file=sys.stderr, flush=True)
    model.eval()


def _batches(tokenizer: PreTrainedTokenizerFast, config: TinyConfig, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """`steps` batches of (ids, targets), both (B, T), padded right.

    A batch holds questions of one length, so that little is padding, but every kind of document: sorted by their own
    length, the short unformatted ones would make batches of few tokens, count for more each, and be learnt too well.
    The question's own tokens are no targets: its digits are random, and there is nothing to learn in them.
    """
    rng = random.Random(config.seed)
    size = config.batch_documents
    pools: dict[int, list[tuple[list[int], list[int]]]] = {}
    for _ in range(steps):
        full = None
        while full is None:
            documents = [arithmetic.corpus_document(rng) for _ in range(size)]
            questions = tokenizer([question for question, _ in documents])["input_ids"]
            texts = tokenizer([text + EOS for _, text in documents])["input_ids"]
            for question, text in zip(questions, texts, strict=True):
                pools.setdefault(len(question), []).append((question, text))
            full = max(pools, key=lambda length: len(pools[length]))
            if len(pools[full]) < size:
                full = None
        batch, pools[full] = pools[full][:size], pools[full][size:]
        longest = max(len(question) + len(text) for question, text in batch)
        ids = torch.full((size, longest), tokenizer.pad_token_id)
        targets = torch.full((size, longest), IGNORED)
        for row, (question, text) in enumerate(batch):
            end = len(question) + len(text)
            ids[row, :end] = torch.tensor(question + text)
            targets[row, len(question) : end] = torch.tensor(text)
        yield ids, targets


def _lr_factor(step: int, steps: int, config: TinyConfig) -> float:
    """Linear warm-up, cosine to 0."""
    return min(1.0, (step + 1) / config.warmup_steps) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _llama_config(config: TinyConfig, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=32,  # 20 are in use; a round number costs nothing and pads evenly
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_heads,
        head_dim=config.head_size,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _key(config: TinyConfig) -> str:
    """Hash of the settings and of the code that makes the base: a change in either makes a new one."""
    digest = hashlib.sha256(json.dumps(asdict(config), sort_keys=True).encode())
    for path in (Path(__file__), Path(arithmetic.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
