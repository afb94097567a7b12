"""Encoding a prompt so that no text in it turns into a control token by accident. Used by `template.py`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from r1zero.errors import UserError

Tokenizer = Any


def control_tokens(tokenizer: Tokenizer, frame: str = "") -> dict[str, int]:
    """Text -> id of the tokens a user's text must not hold: the special ones, and any added token the frame uses.

    DeepSeek-R1's role tokens are added but not marked special: only the frame tells that they steer the model.
    """
    found = {}
    for index, token in tokenizer.added_tokens_decoder.items():
        if token.special or (frame and token.content in frame):
            found[token.content] = index
    return found


def cut_points(text: str, region: tuple[int, int], control: Mapping[str, int]) -> tuple[int, ...]:
    """Where to cut `text` so that no control token's text that touches `region` stays whole. Sorted offsets.

    Raises UserError for a control token of one character, which nothing can cut.
    """
    begin, end = region
    cuts = set()
    for token in (token for token in control if token in text):
        for match in re.finditer(f"(?={re.escape(token)})", text):  # lookahead: overlapping occurrences too
            if match.start() < end and match.start() + len(token) > begin:
                if len(token) < 2:
                    raise UserError(f"the question holds {token!r}, which is a special token: remove it from the data")
                cuts.add(match.start() + 1)
    return tuple(sorted(cuts))


def encode_pieces(tokenizer: Tokenizer, text: str, cuts: Sequence[int]) -> list[int]:
    """Token ids of `text` encoded piece by piece, without BOS or EOS. Without cuts: the usual encoding.

    Raises UserError where the pieces do not add up to the text (tokenizers that put a space before each).
    """
    bounds = [0, *cuts, len(text)]
    ids: list[int] = []
    for begin, end in pairwise(bounds):
        ids += _encode(tokenizer, text[begin:end])
    if cuts and _decode(tokenizer, ids) != _decode(tokenizer, _encode(tokenizer, text)):
        raise UserError(
            f"the prompt {text[:80]!r} holds the text of a special token, and this tokenizer cannot write it as plain "
            "text: remove it from the data"
        )
    return ids


def special_prefix(tokenizer: Tokenizer) -> list[int]:
    """What the tokenizer puts before any text: its BOS, or nothing."""
    ids = tokenizer("", add_special_tokens=True)["input_ids"]
    return [tokenizer.bos_token_id] if ids and ids[0] == tokenizer.bos_token_id else []


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _decode(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    text: str = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return text


def decode(tokenizer: Any, token_ids: Sequence[int]) -> str:
    """Text of the very tokens, special ones left out, nothing tidied up (some tokenizers eat spaces by default)."""
    text: str = tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text
