"""Small generated models for tests: a character tokenizer and a Llama of about 0.3 M parameters, saved as a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

CHARACTERS = "\n !\"'()*+,-./0123456789:;<=>?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\\{}^_$"
PAD, EOS, CHAT_EOS = 0, 1, 2
"""Ids of the special tokens `<pad>`, `<eos>` and `<im_end>`."""


def char_tokenizer(*, pad_is_eos: bool = False) -> Any:
    """A fast tokenizer with a token a character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", "<im_end>", "<unk>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<eos>" if pad_is_eos else "<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=["<im_end>"],
    )


def tiny_llama(
    *,
    seed: int = 0,
    tied: bool = True,
    bias: bool = False,
    scale: float = 0.12,
    layers: int = 3,
    vocab_size: int = len(CHARACTERS) + 4,
) -> Any:
    """A Llama with random weights of standard deviation `scale`: at the usual 0.02 every next token would be about as
    likely as any other, and a wrong temperature or a wrong position would hardly show. `bias`: random attention biases.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=96,
        intermediate_size=192,
        num_hidden_layers=layers,
        num_attention_heads=3,
        num_key_value_heads=3,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
        initializer_range=scale,
        attention_bias=bias,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).eval()
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                torch.nn.init.normal_(parameter, std=0.3)
        return model


def tiny_gpt2(*, seed: int = 0) -> Any:
    """A GPT-2: learned absolute positions, a bias everywhere, a tied head."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(CHARACTERS) + 4,
        n_embd=64,
        n_layer=2,
        n_head=2,
        n_positions=256,
        bos_token_id=None,
        eos_token_id=EOS,
        pad_token_id=PAD,
        initializer_range=0.15,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).eval()


def save_model(folder: Path, model: Any, *, pad_is_eos: bool = False, generation: dict[str, Any] | None = None) -> str:
    """Save model and tokenizer; `generation` is written as generation_config.json as it stands."""
    model.save_pretrained(folder)
    char_tokenizer(pad_is_eos=pad_is_eos).save_pretrained(folder)
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return str(folder)
