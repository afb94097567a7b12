"""Demonstrations, rankings and thumbs: a data file in, token ids ready for the loss out.

Every row is read, checked and encoded before a run begins; a bad one is named by file and line. Rows over the limit are
refused or skipped, never cut: a cut prompt asks another question, and a cut response teaches to stop in mid-sentence.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from r1zero.config import DataConfig, DemonstrationDataConfig, PreferenceDataConfig, TextDataConfig
from r1zero.data import presets, shapes
from r1zero.data.messages import Example, Message, Prompt, Tokenizer, encode_chat, encode_prompt, encode_response
from r1zero.data.miniature import arithmetic
from r1zero.data.miniature import preferences as tiny_preferences
from r1zero.data.records import Row
from r1zero.data.rows import DataRow, read_rows
from r1zero.errors import UserError, unknown_name
from r1zero.prompts import Template

TINY = "tiny:arithmetic"
_ROLES = ("system", "user", "assistant", "tool")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Responses to one prompt, best first."""

    rows: tuple[Row, ...]
    """K >= 2; all have the same prompt."""
    margin: float | None = None
    """How much better the first is, as the data says it."""

    @property
    def chosen(self) -> Row:
        return self.rows[0]

    @property
    def rejected(self) -> Row:
        return self.rows[-1]


@dataclass(frozen=True, kw_only=True)
class Thumb:
    """One response and whether it is liked."""

    row: Row
    desirable: bool


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[T]):
    """The rows of a data set, encoded, and what was left out."""

    items: list[T]
    skipped: int = 0
    """Rows over max_tokens."""
    identical: int = 0
    """Pairs of one and the same response: their gradient is 0, and their denominator is not."""

    def said(self, source: str) -> list[str]:
        """What the user has to know of what was left out."""
        lines = []
        if self.skipped:
            lines.append(f"{source}: {self.skipped} rows over max_tokens are left out")
        if self.identical:
            lines.append(f"{source}: {self.identical} pairs of identical responses are left out: nothing is in them")
        return lines


def load_demonstrations(config: DemonstrationDataConfig, template: Template, tokenizer: Tokenizer) -> Loaded[Example]:
    """Sequences to imitate. Raises UserError, in one line, for whatever in the data is the user's to mend."""

    def encode(row: DataRow) -> list[Example]:
        if config.messages_field in row.fields:
            return encode_chat(_messages(row, config.messages_field), tokenizer)
        prompt = _prompt(row, config.prompt_field)
        response = _text(row, config.response_field)
        ids = encode_response(response, prompt, template, tokenizer)
        completion = Row(prompt_ids=encode_prompt(prompt, template, tokenizer), completion_ids=ids)
        return [Example(row=completion, learnt=(True,) * len(ids))]

    encoded = _encoded(_rows(config, partial(_tiny_demonstrations, config)), encode)
    kept = [examples for examples in encoded if all(e.row.length <= config.max_tokens for e in examples)]
    _check_limit(config, len(encoded), len(kept), max(e.row.length for examples in encoded for e in examples))
    return Loaded(items=[e for examples in kept for e in examples], skipped=len(encoded) - len(kept))


def demonstration_rows(
    config: DemonstrationDataConfig, template: Template, tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """The rows `load_demonstrations` makes sequences of, checked by it, under the default field names."""
    load_demonstrations(config, template, tokenizer)
    rows: list[dict[str, Any]] = []
    for row in _rows(config, partial(_tiny_demonstrations, config)):
        if config.messages_field in row.fields:
            rows.append({"messages": _messages(row, config.messages_field)})
        else:
            response = _text(row, config.response_field)
            rows.append({"prompt": _prompt(row, config.prompt_field), "response": response})
    return rows


def load_rankings(config: PreferenceDataConfig, template: Template, tokenizer: Tokenizer) -> Loaded[Ranking]:
    """Pairs and longer rankings."""

    def encode(row: DataRow) -> Ranking:
        prompt, responses = _prompt_and_responses(row, config)
        prompt_ids = encode_prompt(prompt, template, tokenizer)
        rows = tuple(
            Row(prompt_ids=prompt_ids, completion_ids=encode_response(text, prompt, template, tokenizer))
            for text in responses
        )
        return Ranking(rows=rows, margin=_margin(row, config.margin_field))

    def generate() -> Iterable[dict[str, Any]]:
        count = config.generated_responses
        for question, texts in tiny_preferences.rankings(config.split, config.size, config.seed, count):
            yield {config.prompt_field: question, config.responses_field: texts}

    encoded = _encoded(_rows(config, generate), encode)
    kept = [r for r in encoded if max(row.length for row in r.rows) <= config.max_tokens]
    _check_limit(config, len(encoded), len(kept), max(row.length for r in encoded for row in r.rows))
    different = [r for r in kept if len({row.completion_ids for row in r.rows}) == len(r.rows)]
    if not different:
        raise UserError(f"{config.source}: every pair is of identical responses")
    return Loaded(
        items=_swapped(different, config.swapped_share, config.seed),
        skipped=len(encoded) - len(kept),
        identical=len(kept) - len(different),
    )


def load_thumbs(config: PreferenceDataConfig, template: Template, tokenizer: Tokenizer) -> Loaded[Thumb]:
    """Responses liked or not: rows with a label, or the two (or more: first and last) sides of each ranking."""
    if config.source.startswith("tiny:") or not _has_labels(config):
        loaded = load_rankings(config, template, tokenizer)
        thumbs = [
            Thumb(row=row, desirable=up) for r in loaded.items for row, up in ((r.chosen, True), (r.rejected, False))
        ]
        return Loaded(items=thumbs, skipped=loaded.skipped, identical=loaded.identical)

    def encode(row: DataRow) -> Thumb:
        label = row.fields.get(config.label_field)
        if not isinstance(label, bool | int) or label not in (0, 1):
            raise UserError(f"field {config.label_field!r} must be true or false, is {label!r}")
        prompt = _prompt(row, config.prompt_field)
        ids = encode_response(_text(row, config.response_field), prompt, template, tokenizer)
        encoded = Row(prompt_ids=encode_prompt(prompt, template, tokenizer), completion_ids=ids)
        swap = config.swapped_share > 0 and random.Random(f"{config.seed} {row.where}").random() < config.swapped_share
        return Thumb(row=encoded, desirable=bool(label) != swap)

    encoded = _encoded(_rows(config, list), encode)
    kept = [thumb for thumb in encoded if thumb.row.length <= config.max_tokens]
    _check_limit(config, len(encoded), len(kept), max(thumb.row.length for thumb in encoded))
    if len({thumb.desirable for thumb in kept}) < 2:
        raise UserError(f"{config.source}: every {config.label_field!r} is the same: kto needs responses of both kinds")
    return Loaded(items=kept, skipped=len(encoded) - len(kept))


def fingerprint(rows: Iterable[Row]) -> str:
    """Hash of token ids in their order: what reference log-probabilities depend on. 16 hex digits."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.prompt_ids}{row.completion_ids}".encode())
    return digest.hexdigest()[:16]


def refuse_overlap(train: Iterable[Row], held_out: Iterable[Row]) -> None:
    """Raises UserError where a held-out prompt is also a training prompt: its loss would say nothing."""
    seen = {row.prompt_ids for row in train}
    shared = {row.prompt_ids for row in held_out} & seen
    if shared:
        raise UserError(f"{len(shared)} held-out prompts are also training prompts: choose another held_out.source")


# -- rows ------------------------------------------------------------------------------------------------------------


def _rows(config: TextDataConfig, generate: Callable[[], Iterable[dict[str, Any]]]) -> list[DataRow]:
    """Shuffled and limited raw rows of a file, the hub, or `generate`."""
    if not config.source:
        raise UserError(f"data.source is empty: name a file, a hub dataset or {TINY}")
    if config.source.startswith("tiny:"):
        if config.source != TINY:
            raise unknown_name("generated source", config.source, [TINY])
        if config.split not in arithmetic.SPLITS:
            raise unknown_name(f"split of {TINY}", config.split, arithmetic.SPLITS)
        if config.filter or config.options:
            raise UserError(f"filter and options are for other sources: {TINY} takes neither")
        rows = [DataRow(f"{TINY} {config.split}, row {i}", fields) for i, fields in enumerate(generate(), 1)]
        if len(rows) < config.size:
            raise UserError(f"{TINY}, split {config.split}, has only {len(rows)} rows of the {config.size} asked for")
    else:
        rows = _read(config)
    random.Random(config.seed).shuffle(rows)
    return rows[: config.limit] if config.limit else rows


def _tiny_demonstrations(config: DemonstrationDataConfig) -> Iterable[dict[str, Any]]:
    for question, response in tiny_preferences.demonstrations(config.split, config.size, config.seed):
        yield {config.prompt_field: question, config.response_field: response}


def _encoded(rows: Sequence[DataRow], encode: Callable[[DataRow], T]) -> list[T]:
    """Each row through `encode`, whose errors get the row's place put before them."""
    encoded = []
    for row in rows:
        try:
            encoded.append(encode(row))
        except UserError as error:
            raise UserError(f"{row.where}: {error}") from error
    return encoded


def _check_limit(config: TextDataConfig, count: int, kept: int, longest: int) -> None:
    if kept < count and config.too_long == "error":
        raise UserError(
            f"{count - kept} of {count} rows of {config.source} are over max_tokens={config.max_tokens} "
            f"(longest: {longest}): raise the limit, or set too_long to skip"
        )
    if not kept:
        raise UserError(f"every row of {config.source} is over max_tokens={config.max_tokens}")


def _prompt_and_responses(row: DataRow, config: PreferenceDataConfig) -> tuple[Prompt, list[str]]:
    """The prompt and its responses, best first."""
    if config.responses_field in row.fields:
        texts = row.fields[config.responses_field]
        if not isinstance(texts, list) or len(texts) < 2 or not all(isinstance(text, str) for text in texts):
            raise UserError(f"field {config.responses_field!r} must be a list of two or more texts, best first")
        return _prompt(row, config.prompt_field), list(texts)
    if isinstance(row.fields.get(config.chosen_field), list):
        return _from_chats(row, config)
    chosen, rejected = _text(row, config.chosen_field), _text(row, config.rejected_field)
    return _prompt(row, config.prompt_field), [chosen, rejected]


def _from_chats(row: DataRow, config: PreferenceDataConfig) -> tuple[Prompt, list[str]]:
    """Both sides as chats: their last messages are the responses, what stands before is the prompt."""
    chosen, rejected = _messages(row, config.chosen_field), _messages(row, config.rejected_field)
    for side in (chosen, rejected):
        if side[-1]["role"] != "assistant":
            raise UserError("a chosen or rejected chat must end with an assistant's message")
    if chosen[:-1] != rejected[:-1]:
        raise UserError("the chosen and the rejected chat differ before their last message: they are no pair")
    prompt: Prompt = chosen[:-1] or _prompt(row, config.prompt_field)
    return prompt, [chosen[-1]["content"], rejected[-1]["content"]]


def _prompt(row: DataRow, name: str) -> Prompt:
    if isinstance(row.fields.get(name), list):
        return _messages(row, name)
    text = _text(row, name)
    if not text.strip():
        raise UserError(f"field {name!r} is empty")
    return text


def _text(row: DataRow, name: str) -> str:
    """A text field; an empty one is a response of nothing, which is allowed."""
    if name not in row.fields:
        known = ", ".join(sorted(map(str, row.fields))) or "none"
        raise UserError(f"no field {name!r} (it has {known}); name the right one with the data's *_field settings")
    value = row.fields[name]
    if not isinstance(value, str):
        raise UserError(f"field {name!r} is a {type(value).__name__}, not text")
    return value


def _messages(row: DataRow, name: str) -> list[Message]:
    value = row.fields[name] if name in row.fields else _text(row, name)
    if not isinstance(value, list) or not value:
        raise UserError(f"field {name!r} must be a list of messages")
    messages: list[Message] = []
    for message in value:
        role = message.get("role") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if role not in _ROLES or not isinstance(content, str):
            raise UserError(f"field {name!r}: a message needs a role ({', '.join(_ROLES)}) and a text content")
        messages.append({"role": role, "content": content})
    return messages


def _margin(row: DataRow, name: str) -> float | None:
    value = row.fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"field {name!r} must be a number, is {value!r}")
    return float(value)


def _has_labels(config: PreferenceDataConfig) -> bool:
    return config.label_field in _read(config)[0].fields


def _read(config: TextDataConfig) -> list[DataRow]:
    config = presets.resolve(config)
    names = ("source", "config", "split", "filter", "seed", "size", "options")
    read = []
    for row in read_rows(DataConfig(**{name: getattr(config, name) for name in names})):
        try:
            read.append(DataRow(row.where, shapes.as_read(row.fields, config)))
        except UserError as error:
            raise UserError(f"{row.where}: {error}") from error
    return read


def _swapped(rankings: list[Ranking], share: float, seed: int) -> list[Ranking]:
    """Exactly `share` of the rankings turned round."""
    count = round(share * len(rankings))
    turned = set(random.Random(f"swap {seed}").sample(range(len(rankings)), count))
    return [Ranking(rows=r.rows[::-1], margin=r.margin) if i in turned else r for i, r in enumerate(rankings)]
