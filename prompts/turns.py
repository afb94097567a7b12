"""The text between two turns of the policy, in a tokenizer's own chat template or as fenced text for a base model.

Only the new piece is encoded and appended to the ids that are there: the episode's earlier tokens stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from r1zero.errors import UserError
from r1zero.prompts.template import QUESTION, Template, Tokenizer
from r1zero.prompts.tokens import control_tokens, cut_points, encode_pieces

Role = Literal["user", "tool"]
Message = Mapping[str, str]
"""`role` (system, user, assistant) and `content`."""

_SAID, _TOLD = "\ue000said\ue001", "\ue002told\ue003"  # in no data set, and stripped by no chat template
OUTPUT_FENCE = "```output"
"""How a text template shows a tool's output (ToRL, arXiv 2503.23383; ToRA, arXiv 2309.17452)."""


@dataclass(frozen=True)
class TurnText:
    """Writes observations as `template` and `tokenizer` would, after a completion and before the next."""

    template: Template
    tokenizer: Tokenizer

    def encode(self, observation: str, *, role: Role, last_token_id: int, said: str) -> list[int]:
        """The ids that follow a completion: the rest of its turn, the observation's turn, and the next turn's opening.

        last_token_id, said: the completion's last id and its text, which may hold a part of what would follow.
        A special token's text in `observation` becomes ordinary text: a tool cannot end a turn.
        Raises UserError where the chat template cannot be continued.
        """
        text, region, frame = self._render(observation, role, said)
        control = control_tokens(self.tokenizer, frame=frame)
        ended = next((t for t, index in control.items() if index == last_token_id and text.startswith(t)), "")
        start = len(ended)  # the policy's own token: already there
        region = (region[0] - start, region[1] - start)
        return encode_pieces(self.tokenizer, text[start:], cut_points(text[start:], region, control))

    def _render(self, observation: str, role: Role, said: str) -> tuple[str, tuple[int, int], str]:
        """The piece, where the observation stands in it, and what is around it."""
        if self.template.kind == "text":
            before = "\n" if said.rstrip(" ").endswith(OUTPUT_FENCE) else f"\n{OUTPUT_FENCE}\n"
            after = "\n```\n"
            if role == "user":
                before, after = "\n", "\n"
            return before + observation + after, (len(before), len(before) + len(observation)), before + after
        head, told, tail = self._chat(_TOLD, role).partition(_TOLD)
        if not told:
            raise UserError(f"the chat template leaves out messages of role {role!r}: choose a text template")
        text = self._chat(observation, role)
        if not (text.startswith(head) and text.endswith(tail) and len(text) >= len(head) + len(tail)):
            raise UserError("the chat template changes with the observation; it cannot be continued turn by turn")
        return text, (len(head), len(text) - len(tail)), head + tail

    def _chat(self, observation: str, role: Role) -> str:
        """What the chat template writes after an assistant's message when an observation follows."""
        messages = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": _SAID}]
        messages.append({"role": role, "content": observation})
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        _, said, after = text.partition(_SAID)
        if not said:
            raise UserError("the chat template leaves out the assistant's message: choose a text template")
        prefill = self.template.prefill
        return after if not prefill or after.rstrip().endswith(prefill) else after + prefill


def encode_messages(
    template: Template, messages: Sequence[Message], tokenizer: Tokenizer, tools: Sequence[Mapping[str, Any]] = ()
) -> list[int]:
    """The ids of an episode's prompt. One user message and no tools: exactly `template.encode`.

    The first user message goes into the template's body. `tools`: their schemas, for chat templates that write them.
    No content can hold a control token. Raises UserError where the template does not write the messages as they are.
    """
    if len(messages) == 1 and messages[0]["role"] == "user" and not tools:
        return template.encode(messages[0]["content"], tokenizer)
    if template.kind == "text":
        raise UserError(
            f"template {template.name!r} is a text: it takes one user message, not {len(messages)}, and no tool schemas"
        )
    filled = [dict(message) for message in messages]
    first = next((message for message in filled if message["role"] == "user"), None)
    if first is None:
        raise UserError("an environment's messages need one of role user")
    first["content"] = template.body.replace(QUESTION, first["content"])
    if template.system and filled[0]["role"] != "system":
        filled.insert(0, {"role": "system", "content": template.system})

    def render(contents: Sequence[str]) -> str:
        said = [{**message, "content": content} for message, content in zip(filled, contents, strict=True)]
        text: str = tokenizer.apply_chat_template(
            said, tools=list(tools) or None, tokenize=False, add_generation_prompt=True
        )
        return text if not template.prefill or text.rstrip().endswith(template.prefill) else text + template.prefill

    contents = [message["content"] for message in filled]
    probes = [f"\ue000{index}\ue001" for index in range(len(filled))]
    frame = render(probes)
    text = render(contents)
    for said in (contents, [content.strip() for content in contents]):  # many templates strip
        built, regions, rest = "", [], frame
        for probe, content in zip(probes, said, strict=True):
            before, _, rest = rest.partition(probe)
            built += before
            regions.append((len(built), len(built) + len(content)))
            built += content
        if built + rest == text:
            break
    else:
        raise UserError(f"template {template.name!r}: the chat template does not write messages as they are")
    control = control_tokens(tokenizer, frame=frame)
    cuts = sorted({cut for region in regions for cut in cut_points(text, region, control)})
    return encode_pieces(tokenizer, text, cuts)
