"""`answer_tags` and `think_format`: is the completion in the R1 format? Says nothing of whether the answer is right.

Both look at the assistant's whole turn, so a template that prefills `<think>` is judged like one that does not, and a
tag that only stands in the question is never seen. They read every tag-like piece of the text, exact or not: a second
tag, a tag in other case, with spaces or an attribute, in full-width or look-alike letters, or split by invisible
characters makes the format wrong, so that no other reader of the text can be made to see other tags than these.

What they do not stop: thinking that says nothing (`min_think_chars` asks for a length, not for sense), an answer tag
that holds an essay, and thinking that is not about the question.
"""

from __future__ import annotations

import html
import re
import unicodedata

from r1zero.data.records import FinishReason
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.extract import CUT, extract

_R1_ORDER = ("<think>", "</think>", "<answer>", "</answer>")
# What prints like each letter of "think" and "answer", or nearly: letters of other scripts, small capitals, digits.
_LOOKS_LIKE = {
    "t": "tтτᴛŧƭțｔ7",
    "h": "hһнηʜħհ",
    "i": "iіιıɪɨӏǀlⅰ1!|",
    "n": "nпηνɴոռńŋɳᴎ",
    "k": "kкκᴋƙĸ",
    "a": "aаαᴀɑ@4",
    "s": "sѕꜱʂ5$",
    "w": "wԝωᴡѡшաⱳ",
    "e": "eеεᴇєҽɛ3",
    "r": "rгʀɾᴦⲅ",
}


def _looks_like(name: str) -> str:
    return "".join(f"[{re.escape(_LOOKS_LIKE[letter])}]" for letter in name)


_NAMES = {name: _looks_like(name) for name in ("think", "answer")}
# The bounds keep the search linear on a text made to slow it down.
_TAG_LIKE = {
    name: re.compile(rf"<\s{{0,8}}/?\s{{0,8}}{letters}(?:[^a-z0-9_<>][^<>]{{0,200}})?>")
    for name, letters in _NAMES.items()
}
_MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|</?(?:a|b|br|code|div|em|font|hr|i|img|li|ol|p|pre|q|s|span|strong|sub|sup|table|td|tr|tt|u|ul)"
    r"(?:\s[^<>]{0,200})?/?>|\\[a-zA-Z]+\s*\{\s*\}",
    re.DOTALL | re.IGNORECASE,
)
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"  # print as blanks, though Unicode does not call them white space


def visible(text: str) -> str:
    """`text` without what prints as nothing: format and control characters, fillers, white space at the ends."""
    kept = "".join(c for c in text if c.isspace() or (unicodedata.category(c)[0] != "C" and c not in _BLANKS))
    return kept.strip()


def exact_tags(text: str) -> list[tuple[str, int, int]]:
    """The exact R1 tags of `text`, in order: (tag, start, end)."""
    return [(found.group(), found.start(), found.end()) for found in re.finditer("|".join(_R1_ORDER), text)]


def says_something(text: str) -> bool:
    """True when a reader sees a letter, a digit or a sign of mathematics: not for `.`, `&nbsp;`, `<br>`, a comment."""
    shown = visible(html.unescape(_MARKUP.sub("", text)))
    return any(c.isalnum() or (not c.isascii() and unicodedata.category(c) in ("Sm", "So")) for c in shown)


def strange_tag(text: str, names: tuple[str, ...] = ("think", "answer")) -> str | None:
    """The first tag of `names` in `text` that is written otherwise than `<name>` or `</name>`, as it reads; or None.

    Found by taking the exact tags out and looking at what is left as a careless reader would: compatibility forms and
    accents folded, invisible characters dropped, letters that look alike taken for one another.
    """
    # U+FFFC keeps what stood left and right of a tag apart, and is part of no tag.
    rest = re.sub("|".join(f"</?{name}>" for name in names), "\ufffc", text)
    if not rest.isascii():
        rest = unicodedata.normalize("NFKD", rest)
        rest = "".join(c for c in rest if unicodedata.category(c) not in ("Cf", "Mn") and c not in _BLANKS)
        for brackets, plain in (("‹〈⟨˂", "<"), ("›〉⟩˃", ">")):
            rest = re.sub(f"[{brackets}]", plain, rest)
    rest = rest.lower()
    found = [match for name in names if (match := _TAG_LIKE[name].search(rest)) is not None]
    return min(found, key=lambda match: match.start()).group()[:40] if found else None


def _wrong(reason: str) -> Verdict:
    return Verdict(Outcome.WRONG, reason=reason)


def _thinking_fault(thinking: str, min_think_chars: int) -> str | None:
    if not visible(thinking):
        return "the thinking is empty"
    said = sum(c.isalnum() for c in html.unescape(_MARKUP.sub("", thinking)))
    if said < min_think_chars:
        return f"the thinking has {said} letters and digits, fewer than {min_think_chars}"
    return None


@register("answer_tags", judges="format", example=Sample(completion="<think>1 + 1 is 2.</think> <answer>2</answer>"))
def answer_tags(completion: str, finish_reason: FinishReason = "stop", *, min_think_chars: int = 1) -> Verdict:
    """Correct when the turn is `<think>…</think><answer>…</answer>`: each tag once, in this order, both blocks with
    something to read in them (markup, comments and punctuation aside), and nothing but white space around them.

    min_think_chars: fewest letters and digits of the thinking; 0 lets thinking of punctuation pass.
    Everything else is `wrong` with the first fault found as the reason; `extracted` is the answer block's text. A
    completion cut off at the token limit before it closed its answer is `truncated`.
    """
    if finish_reason == "length" and "</answer>" not in completion:
        return Verdict(Outcome.TRUNCATED, reason=CUT)
    strange = strange_tag(completion)
    if strange is not None:
        return _wrong(f"a tag is not written exactly: {strange!r}")
    tags = exact_tags(completion)
    for tag in _R1_ORDER:
        count = sum(found == tag for found, _, _ in tags)
        if count != 1:
            return _wrong(f"{tag} stands {count} times, not once")
    if tuple(tag for tag, _, _ in tags) != _R1_ORDER:
        return _wrong(f"tags out of order: {' '.join(tag for tag, _, _ in tags)}")
    spans = [span for _, *span in tags]
    (think_open, think_begin), (think_end, think_close), (answer_open, answer_begin), (answer_end, answer_close) = spans
    thinking, answer = completion[think_begin:think_end], completion[answer_begin:answer_end]
    fault = _thinking_fault(thinking, min_think_chars)
    if fault is not None:
        return _wrong(fault)
    if not says_something(answer):
        return _wrong("the answer is empty")
    for where, text in (
        ("before <think>", completion[:think_open]),
        ("between </think> and <answer>", completion[think_close:answer_open]),
        ("after </answer>", completion[answer_close:]),
    ):
        if text.strip():
            return _wrong(f"text {where}: {text.strip()[:40]!r}")
    return Verdict(Outcome.CORRECT, reason="one think block, one answer block", extracted=answer.strip())


@register("think_format", judges="format", example=Sample(completion="<think>1 + 1 is 2.</think>\n\nThe answer is 2."))
def think_format(completion: str, *, min_think_chars: int = 1) -> Verdict:
    """Correct when the turn is one `<think>…</think>` block, at its very start, and then some visible text.

    min_think_chars: fewest letters and digits of the thinking; 0 lets thinking of punctuation pass.
    Answer tags are neither asked for nor looked at. Everything else is `wrong`, with the first fault as the reason;
    `extracted` is the text after the block.
    """
    strange = strange_tag(completion, ("think",))
    if strange is not None:
        return _wrong(f"a tag is not written exactly: {strange!r}")
    for tag in ("<think>", "</think>"):
        if completion.count(tag) != 1:
            return _wrong(f"{tag} stands {completion.count(tag)} times, not once")
    before, _, rest = completion.partition("<think>")
    if before.strip():
        return _wrong(f"text before <think>: {before.strip()[:40]!r}")
    if "</think>" not in rest:
        return _wrong("</think> stands before <think>")
    thinking, _, after = rest.partition("</think>")
    fault = _thinking_fault(thinking, min_think_chars)
    if fault is not None:
        return _wrong(fault)
    if not says_something(after):
        return _wrong("nothing after the thinking")
    return Verdict(Outcome.CORRECT, reason="one think block, then text", extracted=after.strip())


def final_answer(completion: str, *, cut: bool = False) -> str | None:
    """What a completion gives as its answer in an answer tag or a box; None where it gives none.

    Text in `<think>` never counts, and an unclosed think block hides all that follows. An answer tag goes before a box.
    Of several tags the contents must agree, of several boxes the last wins; an unclosed last tag or box is no answer,
    so that an earlier one cannot stand in for it. cut: the completion ended at the token limit, and a box that more
    reasoning follows is no answer.
    """
    text = completion.rpartition("</think>")[2]
    if "<think>" in text:
        return None
    if "<answer>" in text:
        blocks = text.split("<answer>")[1:]
        if any("</answer>" not in block for block in blocks):
            return None
        answers = {block.partition("</answer>")[0].strip() for block in blocks}
        return answers.pop() or None if len(answers) == 1 else None
    if cut and extract(text, ("boxed",), cut=True).text is None:
        return None
    return last_box(text)


def last_box(text: str) -> str | None:
    """Content of the last `\\boxed{…}` of `text`, braces balanced; None where there is none or it is not closed."""
    _, mark, rest = text.rpartition("\\boxed{")
    depth = 1
    for position, char in enumerate(rest if mark else ""):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            return rest[:position].strip() or None
    return None
