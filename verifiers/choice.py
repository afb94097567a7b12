"""`choice`: multiple choice."""

from __future__ import annotations

import re
from collections.abc import Sequence

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.tags import final_answer
from r1zero.verifiers.text.extract import extract
from r1zero.verifiers.text.letters import is_taken_back, said_letter

_MAX_ANSWER_CHARS = 2000
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit|boxed)\s*\{([^{}]*)\}|[*_$`\"']")
_LETTER = re.compile(r"[(\[]?\s*([A-Z])\s*[)\]]?\s*[.:]?", re.IGNORECASE)
_LETTER_AND_VALUE = re.compile(r"(?:[(\[]\s*([A-Z])\s*[)\]][.:]?|([A-Z])\s*[).:])\s*(\S.*)", re.IGNORECASE | re.DOTALL)
_SEVERAL = re.compile(r"[(\[]?[A-Z][)\]]?(?:\s*(?:,|&|;|\band\b)\s*(?:and\s+)?[(\[]?[A-Z][)\]]?)+\.?", re.IGNORECASE)
_OPTION = re.compile(
    r"(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s*(?:is\s*)?:?\s*(.*)", re.IGNORECASE | re.DOTALL
)


@register("choice", example=Sample(completion="<think>Two.</think> <answer>(B)</answer>", answer="B"))
def choice(completion: str, answer: str, problem: Problem, finish_reason: FinishReason = "stop") -> Verdict:
    """Correct when the completion's answer names the choice, or the set of choices, that `answer` names.

    The answer is read from the answer tag, else from the last box, else from the text's last "the answer is X". It may
    be a letter in any dress (`B`, `(b)`, `**B.**`, `\\text{B}`), a letter with its value (`B. Paris`), or, where the
    problem's data has `choices` (a list of texts), a choice's text. A letter beside another choice's text is no answer.
    Nor is one that is denied ("the wrong answer is B", "B is out") or followed by another ("B? No, D", "B. C. D.").
    Several choices (`A and C`) are right only where the gold names the same several; "A or C" is no answer.
    It does not stop guessing: with four choices one in four guesses is right.
    """
    choices = [str(text) for text in problem.data.get("choices", ())]
    gold = _read(answer, choices)
    if gold is None:
        return Verdict(Outcome.ERROR, reason=f"gold {answer!r} names no choice")
    cut = finish_reason == "length"
    text = final_answer(completion, cut=cut)
    if text is None and not (cut and extract(completion, ("marker",), cut=True).text is None):
        text = _cued(completion)
    if text is None:
        return Verdict(Outcome.UNPARSEABLE, reason="no answer tag, box, or 'the answer is X'")
    found = _read(text, choices)
    if found is None and (letter := said_letter(text)) is not None:  # a sentence inside the tag or box
        found = _read(letter, choices)
    if found is None:
        return Verdict(Outcome.UNPARSEABLE, reason="the answer names no choice", extracted=text[:200])
    told = ", ".join(sorted(found))
    if found != gold:
        return Verdict(Outcome.WRONG, reason=f"{told} is not {', '.join(sorted(gold))}", extracted=told)
    return Verdict(Outcome.CORRECT, reason=f"names {told}", extracted=told)


def _read(text: str, choices: Sequence[str]) -> frozenset[str] | None:
    """The letters that `text` names; None where it names none, or a letter and another choice's text."""
    text = _plain(text)
    if not text or len(text) > _MAX_ANSWER_CHARS:
        return None
    by_text = {_fold(value): chr(ord("A") + index) for index, value in enumerate(choices)}
    if _fold(text) in by_text:
        return frozenset(by_text[_fold(text)])
    if found := _OPTION.fullmatch(text):
        return _read(found[1], choices)
    if found := _LETTER.fullmatch(text):
        letters = frozenset(found[1].upper())
    elif _SEVERAL.fullmatch(text):
        letters = frozenset(letter.upper() for letter in re.findall(r"\b[A-Za-z]\b", text))
    elif found := _LETTER_AND_VALUE.fullmatch(text):
        letters = frozenset((found[1] or found[2]).upper())
        if choices and {by_text.get(_fold(found[3]))} != set(letters):
            return None
        if not choices and is_taken_back("".join(letters), found[3]):
            return None
    else:
        return None
    in_range = not choices or all(ord(letter) - ord("A") < len(choices) for letter in letters)
    return letters if in_range else None


def _plain(text: str) -> str:
    """`text` without LaTeX and Markdown dress."""
    for _ in range(3):
        text = _MARKUP.sub(lambda found: found[1] or "", text)
    return " ".join(text.split())


def _fold(text: str) -> str:
    return _plain(text).casefold().rstrip(".")


def _cued(completion: str) -> str | None:
    """The letter that the text after the thinking says is the answer (`letters`), or the whole of a one-line text that
    may be a bare letter; None where there is neither, or where the letter is hedged or denied."""
    text = completion.rpartition("</think>")[2].strip()
    if "<think>" in text or "<answer>" in text or "\\boxed" in text:
        return None
    letter = said_letter(text)
    if letter is not None:
        return letter
    return text if text and "\n" not in text and _LETTER.match(_plain(text)) else None
