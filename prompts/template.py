"""A prompt template: what stands around the question, where the assistant's turn begins, and what ends it.

Header keys: `kind` (text: the body is the prompt; chat: the body is the user's message, and the tokenizer's own chat
template goes around it), `system` (chat only), `prefill` (text at the prompt's end that belongs to the assistant's
turn; a text body must end with it, a chat prompt gets it added), `stop` (a text that ends a completion, `\\n` for a
newline; may stand several times), `end_of_turn` (a special token that ends the assistant's turn in a text body),
`source`. Everything after the line `---` is the body, less the file's final newline.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from r1zero.errors import UserError, unknown_name
from r1zero.prompts.tokens import control_tokens, cut_points, encode_pieces, special_prefix

Tokenizer = Any
"""A Hugging Face tokenizer; transformers is not imported here."""

FOLDER = Path(__file__).parent
QUESTION = "{question}"
_KEYS = ("kind", "system", "prefill", "stop", "end_of_turn", "source")
# A question no data set holds, and no chat template strips: it marks where the frame ends and the question begins.
_PROBE = "\ue000question\ue001"
# Tokens that end a document in the families we know. A chat model may still sample its base's, whose id its tokenizer
# no longer names as EOS (Qwen2.5: base <|endoftext|>, chat <|im_end|>), and would run on to the limit.
_END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>")


@dataclass(frozen=True, kw_only=True)
class Template:
    """A prompt template, as read from its file."""

    name: str
    """Its name in this folder, or its path."""
    kind: Literal["text", "chat"]
    """text: `body` is the whole prompt; chat: `body` is the user's message in the tokenizer's chat template."""
    body: str
    """Holds `{question}` once; no other brace means anything."""
    system: str = ""
    """System message of a chat prompt; empty: the chat template's own."""
    prefill: str = ""
    """What the prompt ends with that belongs to the assistant's turn; a verifier sees it before the sampled text."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion."""
    end_of_turn: str = ""
    """The special token that ends the assistant's turn in a text body."""
    source: str = ""
    """Where the text is from."""
    fingerprint: str = ""
    """First 16 hex digits of the SHA-256 of the file's text."""

    def render(self, question: str, tokenizer: Tokenizer) -> str:
        """The prompt's text. `question` is put in as it stands: braces and tags in it mean nothing.

        Raises UserError where a chat template is needed and the tokenizer has none.
        """
        body = self.body.replace(QUESTION, question)
        if self.kind == "text":
            return body
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                f"template {self.name!r} needs a chat template and this tokenizer has none: it is a base model's; "
                "choose a text template such as r1zero or qwen_math"
            )
        messages = [{"role": "system", "content": self.system}] if self.system else []
        messages.append({"role": "user", "content": body})
        prompt = cast(str, tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        # Some chat templates (DeepSeek-R1's, Qwen3's) open <think> themselves: it must not stand there twice.
        return prompt if self.prefill and prompt.rstrip().endswith(self.prefill) else prompt + self.prefill

    def encode(self, question: str, tokenizer: Tokenizer) -> list[int]:
        """The prompt's token ids, with the model's BOS once where it has one.

        A special token's text inside `question` becomes ordinary text tokens: a question cannot end the user's turn.
        Raises UserError where the tokenizer gives no way to write it as text.
        """
        prompt = self.render(question, tokenizer)
        prefix, suffix = self._frame(tokenizer)
        if not (prompt.startswith(prefix) and prompt.endswith(suffix)):
            raise UserError(f"template {self.name!r}: the chat template changes with the question; it cannot be used")
        control = control_tokens(tokenizer, frame=prefix + suffix)
        region = (len(prefix), len(prompt) - len(suffix))
        ids = encode_pieces(tokenizer, prompt, cut_points(prompt, region, control))
        bos = special_prefix(tokenizer) if self.kind == "text" else []
        return ids if ids[: len(bos)] == bos else bos + ids

    def stop_token_ids(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Ids that end a completion: EOS, the end of the assistant's turn, and any other end-of-text token known.

        Raises UserError where nothing would end one.
        """
        texts = [tokenizer.eos_token, self.end_of_turn, *_END_OF_TEXT]
        if self.kind == "chat":
            texts.insert(1, self._chat_end_of_turn(tokenizer))
        special = control_tokens(tokenizer, frame=self.end_of_turn)
        if self.end_of_turn and self.end_of_turn not in special:
            raise UserError(
                f"template {self.name!r} ends its turns with {self.end_of_turn}, which is no token of this tokenizer: "
                "choose another template"
            )
        ids = [special[text] for text in texts if text and text in special]
        if not ids and not self.stop:
            raise UserError(f"template {self.name!r}: this tokenizer has no EOS token, so no completion would end")
        return tuple(dict.fromkeys(ids))

    def end_token_id(self, tokenizer: Tokenizer) -> int:
        """The id a finished completion ends with: what training text puts at its end, and a model learns to stop by.

        Raises UserError where the tokenizer has none.
        """
        text = self._chat_end_of_turn(tokenizer) if self.kind == "chat" else self.end_of_turn
        index = control_tokens(tokenizer, frame=text).get(text or tokenizer.eos_token or "")
        if index is None:
            raise UserError(f"template {self.name!r}: this tokenizer has no {text or 'EOS token'} to end a text with")
        return index

    def turn_prefill(self, tokenizer: Tokenizer) -> str:
        """`prefill`, or the `<think>` that the tokenizer's chat template opens by itself (DeepSeek-R1's does).

        A verifier that is not told of it calls every completion badly formed.
        """
        if self.kind == "text":
            return self.prefill
        prompt = self.render(_PROBE, tokenizer)
        opened = prompt.rfind("<think>")
        after = prompt[opened:]
        own = after if opened > prompt.rfind(_PROBE) and not after.removeprefix("<think>").strip() else ""
        return own or self.prefill

    def rendered_fingerprint(self, tokenizer: Tokenizer) -> str:
        """Hash of the prompt around a fixed question and of the stop ids: what a manifest keeps, as a chat prompt
        depends on the tokenizer too. 16 hex digits."""
        text = f"{self.render('1+1', tokenizer)}\0{self.stop_token_ids(tokenizer)}\0{self.stop}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _frame(self, tokenizer: Tokenizer) -> tuple[str, str]:
        """What stands before and after the question."""
        parts = self.render(_PROBE, tokenizer).split(_PROBE)
        if len(parts) != 2:
            raise UserError(f"template {self.name!r}: the prompt holds the question {len(parts) - 1} times, not once")
        return parts[0], parts[1]

    def _chat_end_of_turn(self, tokenizer: Tokenizer) -> str:
        """The special token after an assistant's message in the tokenizer's chat template; empty where none is."""
        messages = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": _PROBE}]
        rendered: str = tokenizer.apply_chat_template(messages, tokenize=False)
        after = rendered.rpartition(_PROBE)[2]
        found = [text for text in control_tokens(tokenizer) if text in after]
        return min(found, key=after.index, default="")


def names() -> list[str]:
    """The templates in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name_or_path: str) -> Template:
    """The template called so, or the one in the file at that path. Raises UserError with the near names."""
    path = FOLDER / f"{name_or_path}.txt"
    if name_or_path not in names():
        path = Path(name_or_path)
        if not path.is_file():
            raise unknown_name("prompt template", name_or_path, names())
    try:
        return parse(path.read_text(encoding="utf-8"), name_or_path)
    except UnicodeDecodeError as error:
        raise UserError(f"prompt template {name_or_path}: not UTF-8 text ({error})") from error


def parse(text: str, name: str) -> Template:
    """A template from its file's text. Raises UserError that names the line or the key."""
    lines = text.split("\n")
    if "---" not in lines:
        raise UserError(f"prompt template {name}: no line `---` between the header and the body")
    head = lines[: lines.index("---")]
    body = "\n".join(lines[len(head) + 1 :]).removesuffix("\n")
    values: dict[str, str] = {}
    stop: list[str] = []
    for number, line in enumerate(head, 1):
        key, colon, value = line.partition(":")
        if not line.strip() or line.startswith("#"):
            continue
        if not colon or key not in _KEYS:
            raise UserError(
                f"prompt template {name}, line {number}: {line!r} is not `key: value` with {', '.join(_KEYS)}"
            )
        if key == "stop":
            stop.append(value.strip().replace("\\n", "\n"))
        else:
            values[key] = value.strip()
    if values.get("kind") not in ("text", "chat"):
        raise UserError(f"prompt template {name}: `kind` must be text or chat, is {values.get('kind')!r}")
    if body.count(QUESTION) != 1:
        raise UserError(
            f"prompt template {name}: the body must hold {QUESTION} once, holds it {body.count(QUESTION)} times"
        )
    template = Template(
        name=name,
        kind=cast(Literal["text", "chat"], values.pop("kind")),
        body=body,
        stop=tuple(stop),
        fingerprint=hashlib.sha256(text.encode()).hexdigest()[:16],
        **values,
    )
    if template.kind == "text" and not body.endswith(template.prefill):
        raise UserError(f"prompt template {name}: the body must end with its prefill {template.prefill!r}")
    if template.kind == "text" and template.system:
        raise UserError(f"prompt template {name}: `system` is for chat templates; write it in the body")
    return template
