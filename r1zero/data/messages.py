"""Chats and responses as token ids, with the tokens a model learns to write told apart from those it only reads.

Text is encoded piece by piece, cut where the assistant begins and stops to speak: at generation the prompt is encoded
by itself as well, so that what is learnt is what will be seen. A row is right-padded or packed later, by `policy.py`;
no mask is ever made from pad ids, so a tokenizer whose pad is its EOS does not lose the EOS that ends a response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r1zero.data.records import Row
from r1zero.errors import UserError
from r1zero.prompts import Template
from r1zero.prompts.tokens import control_tokens, encode_pieces

Tokenizer = Any
Message = Mapping[str, str]
"""`role` and `content`."""
Prompt = str | Sequence[Message]

CHAT = Template(name="chat", kind="chat", body="{question}")
"""The tokenizer's own chat template with nothing added."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One sequence to learn from."""

    row: Row
    """The prompt is everything up to the first learnt token."""
    learnt: tuple[bool, ...]
    """(T,) of the row's completion tokens: True where the assistant wrote them, its end of turn included."""


def encode_chat(messages: Sequence[Message], tokenizer: Tokenizer) -> list[Example]:
    """A chat as sequences in which every assistant's turn is learnt: content and the token that ends the turn.

    One sequence where the chat template renders a chat as a growing text; a sequence a turn where it rewrites earlier
    turns (those of reasoning models take old thinking away), as each answer is then given after another prompt.
    Raises UserError where there is no chat template or no assistant's turn, and for text that is a control token's.
    """
    render = _renderer(tokenizer)
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns:
        raise UserError("the chat has no assistant message: there is nothing to learn from it")
    _refuse_control_tokens([m["content"] for m in messages], tokenizer)
    spans = []
    for i in turns:
        head, whole = render(messages[:i], True), render(messages[: i + 1], False)
        if not whole.startswith(head):
            raise UserError(
                f"the chat template does not continue its own generation prompt {head[-40:]!r}: it cannot be trained on"
            )
        spans.append((whole, len(head), _turn_end(whole, len(head), tokenizer)))
    full = spans[-1][0]
    # Earlier turns as the last text has them?
    if all(full.startswith(whole[:end]) for whole, _, end in spans):
        return [_example(full, [(begin, end) for _, begin, end in spans], tokenizer)]
    return [_example(whole, [(begin, end)], tokenizer) for whole, begin, end in spans]


def encode_prompt(prompt: Prompt, template: Template, tokenizer: Tokenizer) -> tuple[int, ...]:
    """A prompt's ids: a text in its template, or a chat that the assistant is to go on with."""
    if isinstance(prompt, str):
        return tuple(template.encode(prompt, tokenizer))
    _refuse_control_tokens([m["content"] for m in prompt], tokenizer)
    return tuple(encode_pieces(tokenizer, _renderer(tokenizer)(prompt, True), ()))


def encode_response(text: str, prompt: Prompt, template: Template, tokenizer: Tokenizer) -> tuple[int, ...]:
    """A response's ids with the token that ends it; an empty response is that token alone.

    What the prompt has already put into the assistant's mouth (`<think>`) is taken off the response's beginning.
    Raises UserError where the response does not begin with it, or holds a control token's text.
    """
    used = template if isinstance(prompt, str) else CHAT
    prefill = used.turn_prefill(tokenizer)
    if prefill:
        if not text.startswith(prefill.strip()):
            raise UserError(
                f"the prompt ends with {prefill!r} of the response, and the response does not begin with it: "
                f"{text[:60]!r}; choose another template"
            )
        text = text[len(prefill) :] if text.startswith(prefill) else text[len(prefill.strip()) :]
    _refuse_control_tokens([text], tokenizer)
    return (*encode_pieces(tokenizer, text, ()), used.end_token_id(tokenizer))


def _renderer(tokenizer: Tokenizer) -> Any:
    if not getattr(tokenizer, "chat_template", None):
        raise UserError(
            "the data holds chats and this tokenizer has no chat template: it is a base model's; "
            "give rows of `prompt` and `response` with a text template such as r1zero, or an instruct model"
        )

    def render(messages: Sequence[Message], generation: bool) -> str:
        text: str = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=generation)
        return text

    return render


def _turn_end(whole: str, begin: int, tokenizer: Tokenizer) -> int:
    """Where the last assistant's turn ends in `whole`: after its first control token, which is what stops a sampler."""
    found = [(whole.find(token, begin), token) for token in control_tokens(tokenizer)]
    ends = [(at, token) for at, token in found if at >= 0]
    if not ends:
        raise UserError("the chat template ends the assistant's turn with no special token: a model would never stop")
    at, token = min(ends)
    return at + len(token)


def _example(text: str, spans: Sequence[tuple[int, int]], tokenizer: Tokenizer) -> Example:
    """The sequence up to the last learnt token; `spans` are the characters that are learnt."""
    prompt: list[int] = encode_pieces(tokenizer, text[: spans[0][0]], ())
    ids: list[int] = []
    learnt: list[bool] = []
    position = spans[0][0]
    for begin, end in spans:
        for start, stop, learns in ((position, begin, False), (begin, end, True)):
            piece = encode_pieces(tokenizer, text[start:stop], ()) if stop > start else []
            ids += piece
            learnt += [learns] * len(piece)
        position = end
    return Example(row=Row(prompt_ids=tuple(prompt), completion_ids=tuple(ids)), learnt=tuple(learnt))


def _refuse_control_tokens(texts: Sequence[str], tokenizer: Tokenizer) -> None:
    """A special token's text in the data would end a turn, or open one, in the middle of it."""
    for token in control_tokens(tokenizer):
        for text in texts:
            if token and token in text:
                raise UserError(f"the text {text[:60]!r} holds {token!r}, a special token: remove it from the data")
