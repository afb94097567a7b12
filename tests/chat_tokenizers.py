"""Byte tokenizers with chat templates in the forms of Qwen2.5 and Llama 3.1, and one without a template."""

from __future__ import annotations

from typing import Any

from r1zero.prompts.template import Template
from r1zero.prompts.turns import TurnText
from r1zero.rollout.base import Sampling

CHATML = (
    "{% if tools %}<|im_start|>system\nTools:{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|im_end|>\n"
    "{% endif %}{% for m in messages %}"
    "{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% set role = 'ipython' if m.role == 'tool' else m.role %}"
    "<|start_header_id|>{{ role }}<|end_header_id|>\n\n"
    "{% if m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content | trim }}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
SPECIAL = {
    "chatml": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama": ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "plain": ["<|endoftext|>"],
}
CHAT_TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "plain": None}


def byte_tokenizer(form: str) -> Any:
    """A token a byte, ids 0 to 255, then the form's special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = SPECIAL[form]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=special[2] if form == "chatml" else special[4] if form == "llama" else special[0],
        bos_token=special[1] if form == "llama" else None,
        additional_special_tokens=special,
    )
    fast.chat_template = CHAT_TEMPLATES[form]
    return fast


TEMPLATES = {
    "chatml": Template(name="chat", kind="chat", body="{question}"),
    "llama": Template(name="chat", kind="chat", body="{question}"),
    "plain": Template(name="plain", kind="text", body="Q: {question}\nA:"),
}


def turn_text(form: str) -> TurnText:
    return TurnText(TEMPLATES[form], byte_tokenizer(form))


def sampling_of(text: TurnText, **more: Any) -> Sampling:
    return Sampling(**({"max_tokens": 40, "stop_token_ids": text.template.stop_token_ids(text.tokenizer)} | more))
