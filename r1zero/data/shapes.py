"""Shapes of chats, demonstrations and preferences that people publish, as the fields this project reads.

    ShareGPT     conversations: [{from, value}]                       -> messages
    Alpaca       instruction, input, output                           -> prompt, response
    HH           chosen, rejected as "Human: … Assistant: …" texts    -> chosen, rejected as chats
    UltraFeedback  instruction, completions [{response, score}]       -> prompt, responses, best first
    KTO          prompt, completion, label                            -> prompt, response, label

A row that has the fields its stage was told to read is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from r1zero.config import DemonstrationDataConfig, PreferenceDataConfig, TextDataConfig
from r1zero.errors import UserError

_SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "tool": "tool",
}
_TURN = re.compile(r"(?:^|\n\n)(Human|Assistant):(?: |\n|$)")
_SCORES = ("overall_score", "fine-grained_score", "score", "rating")


def as_read(fields: Mapping[str, Any], config: TextDataConfig) -> Mapping[str, Any]:
    """`fields` with those that `config` names, where the row has one of the shapes above; else unchanged.

    Raises UserError for a row that has a shape's fields and not its values.
    """
    if isinstance(config, DemonstrationDataConfig):
        return _demonstration(fields, config)
    if isinstance(config, PreferenceDataConfig):
        return _preference(fields, config)
    return fields


def _demonstration(fields: Mapping[str, Any], config: DemonstrationDataConfig) -> Mapping[str, Any]:
    if config.messages_field in fields or config.response_field in fields:
        return fields
    if "conversations" in fields:
        return {**fields, config.messages_field: _sharegpt(fields["conversations"])}
    if "instruction" in fields and "output" in fields:
        more = fields.get("input")
        prompt = f"{fields['instruction']}\n\n{more}" if more else fields["instruction"]
        return {**fields, config.prompt_field: prompt, config.response_field: fields["output"]}
    if isinstance(fields.get("completion"), str | list):
        return {**fields, config.response_field: _last_said(fields["completion"])}
    return fields


def _preference(fields: Mapping[str, Any], config: PreferenceDataConfig) -> Mapping[str, Any]:
    chosen, rejected = fields.get(config.chosen_field), fields.get(config.rejected_field)
    if isinstance(chosen, str) and isinstance(rejected, str) and config.prompt_field not in fields:
        if not (_TURN.match(chosen) and _TURN.match(rejected)):
            return fields
        return {**fields, config.chosen_field: _transcript(chosen), config.rejected_field: _transcript(rejected)}
    if config.responses_field not in fields and "instruction" in fields and "completions" in fields:
        ranked = _by_score(fields["completions"])
        return {**fields, config.prompt_field: fields["instruction"], config.responses_field: ranked}
    if config.response_field not in fields and isinstance(fields.get("completion"), str | list):
        return {**fields, config.response_field: _last_said(fields["completion"])}
    return fields


def _sharegpt(turns: Any) -> list[dict[str, str]]:
    messages = []
    for turn in turns if isinstance(turns, list) else [{}]:
        said = turn if isinstance(turn, dict) else {}
        if said.get("from") not in _SPEAKERS or not isinstance(said.get("value"), str):
            raise UserError(f"field 'conversations': a turn needs a from ({', '.join(_SPEAKERS)}) and a text value")
        messages.append({"role": _SPEAKERS[said["from"]], "content": said["value"]})
    return messages


def _transcript(text: str) -> list[dict[str, str]]:
    """HH's "\\n\\nHuman: … \\n\\nAssistant: …" as messages."""
    _, *parts = _TURN.split(text)
    roles = {"Human": "user", "Assistant": "assistant"}
    return [
        {"role": roles[speaker], "content": said.strip()} for speaker, said in zip(parts[::2], parts[1::2], strict=True)
    ]


def _by_score(completions: Any) -> list[str]:
    """Responses, best first; of equal scores the first only, as nobody said which is better."""
    scored: dict[float, str] = {}
    for item in completions if isinstance(completions, list) else [{}]:
        one = item if isinstance(item, dict) else {}
        score = next((one[key] for key in _SCORES if one.get(key) is not None), None)
        if isinstance(score, bool) or not isinstance(score, int | float) or not isinstance(one.get("response"), str):
            raise UserError(f"field 'completions': each needs a text response and a number {', '.join(_SCORES)}")
        scored.setdefault(float(score), one["response"])
    return [scored[score] for score in sorted(scored, reverse=True)]


def _last_said(completion: Any) -> Any:
    """A completion as text: itself, or the content of its one message."""
    if isinstance(completion, list) and len(completion) == 1 and isinstance(completion[0], dict):
        return completion[0].get("content")
    return completion
