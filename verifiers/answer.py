"""`answer`: the final answer equals the gold text. For answers that are a word, a label or a plain number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1zero.data.records import FinishReason
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.extract import RULES, Extraction, extract, visible

_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,3}(?:,\d{3})+)(?![\d,])")
_MAX_PATTERN_CHARS = 100_000


@register("answer", example=Sample(completion="<think>1+1</think> <answer>2</answer>", answer="2"))
def answer(
    completion: str,
    answer: str,
    finish_reason: FinishReason = "stop",
    *,
    rules: Sequence[str] = RULES,
    pattern: str = "",
    case_sensitive: bool = False,
) -> Verdict:
    """Correct when the extracted answer equals `answer` after normalising; no arithmetic (that is `math`).

    rules: extraction rules, in order (boxed, answer_tag, marker, whole, last); pattern: a regular expression used
    instead of them, whose last match in the completion (think blocks aside) is the answer, its first group if it has
    one. It comes from the recipe, so a slow one is the recipe's. case_sensitive: `B` and `b` differ.

    Normalising takes away: blank space around and doubled inside, `$` and `\\text{}` around, bold marks, a final full
    stop, commas between thousands, and case. 0.5 is not 1/2 here, and `5 km` is not 5.

    It does not stop a guess among few labels, nor a completion that says one thing and boxes another.
    Raises UserError for a pattern that does not compile.
    """
    gold = normal_form(answer, case_sensitive)
    if not gold:
        return Verdict(Outcome.ERROR, reason="the gold answer is empty")
    cut = finish_reason == "length"
    found = _by_pattern(completion, pattern) if pattern else extract(completion, rules, cut=cut)
    if found.text is None:
        return Verdict(Outcome.UNPARSEABLE, reason=found.reason)
    for text in (found.text, *found.shorter):
        if normal_form(text, case_sensitive) == gold:
            reason = f"exact match: {_short(gold)} (by {found.rule})"
            return Verdict(Outcome.CORRECT, reason=reason, extracted=text)
    got = normal_form(found.text, case_sensitive)
    if not got:
        return Verdict(Outcome.UNPARSEABLE, reason=f"empty (by {found.rule})", extracted=found.text)
    reason = f"{_short(got)!r} is not {_short(gold)!r} (by {found.rule})"
    return Verdict(Outcome.WRONG, reason=reason, extracted=found.text)


def normal_form(text: str, case_sensitive: bool = False) -> str:
    """The text as it is compared; `\\text{ Paris. }` and `paris` are one, `1,000` and 1000 are one."""
    text = _WRAPPER.sub(r"\1", text).replace("**", "").replace("\\$", "").replace("$", "")
    text = _THOUSANDS.sub(lambda found: found[1].replace(",", ""), " ".join(text.split()).rstrip(".").strip())
    return text if case_sensitive else text.lower()


def _by_pattern(completion: str, pattern: str) -> Extraction:
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise UserError(f"pattern {pattern!r} of verifier 'answer' is no regular expression: {error}") from error
    text = visible(completion)
    if text is None:
        return Extraction(None, reason="a think block is left open")
    matches = list(compiled.finditer(text[-_MAX_PATTERN_CHARS:]))
    if not matches:
        return Extraction(None, reason="the pattern is not found")
    last = matches[-1]
    return Extraction((last[1] if compiled.groups else last[0]) or "", rule="pattern")


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
