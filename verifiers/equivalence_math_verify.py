"""`math_verify`: Hugging Face's math-verify, for figures that are to match published ones. Extra `math-verify`.

Run with its LaTeX reader alone: its reader of plain expressions hands the text to sympy's `parse_expr`, which is
`eval`. Its own timeouts are off, since they are SIGALRM and fail off the main thread; the pool's deadline kills. What
`math` refuses for its cost is refused here before it, so that few texts take the whole deadline.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from r1zero.data.records import FinishReason
from r1zero.data.verdict import Outcome, Verdict
from r1zero.errors import UserError
from r1zero.verifiers.math import cost
from r1zero.verifiers.math.by_sympy import check_cost
from r1zero.verifiers.math.nodes import OverLimitError, UndefinedError, UnreadableError
from r1zero.verifiers.math.parse import parse as parse_ours
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.extract import extract, visible

_EXAMPLE = Sample(completion="So $\\boxed{\\frac{84}{2}}$.", answer="42")
_MAX_CHARS = 20_000
_TOWER = re.compile(r"![\s{}()$]*!")


@register("math_verify", preload=("math_verify",), example=_EXAMPLE)
def math_verify(completion: str, answer: str, finish_reason: FinishReason = "stop") -> Verdict:
    """Correct when math-verify parses an answer from the completion and finds it equal to `answer`.

    The answer is the last box or answer tag after the thinking, as `math` reads it, else whatever LaTeX math-verify
    finds in the text. What is equal is math-verify's to say: numbers are rounded to 6 digits, units are stripped,
    letters lose their case. It does not stop an answer guessed right, nor what those rules let pass.
    Raises UserError where math-verify is not installed.
    """
    verify, parse, latex = _library()
    cut = finish_reason == "length"
    found = extract(completion, ("boxed", "answer_tag"), cut=cut)
    if found.text is None and (found.rule or cut or visible(completion) is None):
        return Verdict(Outcome.UNPARSEABLE, reason=found.reason)
    text = f"\\boxed{{{found.text}}}" if found.text is not None else (visible(completion) or "")[-_MAX_CHARS:]
    try:
        _check(found.text)
    except (OverLimitError, RecursionError) as error:
        return Verdict(Outcome.UNPARSEABLE, reason=f"over limit: {error}"[:300], extracted=(found.text or "")[:500])
    gold = parse(f"\\boxed{{{answer}}}", [latex], parsing_timeout=None)
    if not gold:
        return Verdict(Outcome.ERROR, reason="math-verify cannot read the gold answer")
    pred = parse(text, [latex], parsing_timeout=None)
    if not pred:
        return Verdict(Outcome.UNPARSEABLE, reason="math-verify finds no answer", extracted=found.text)
    equal = bool(verify(gold, pred, timeout_seconds=None))
    told = f"math-verify: {str(pred[-1])[:100]} {'=' if equal else '!='} {str(gold[-1])[:100]}"
    extracted = (found.text if found.text is not None else str(pred[-1]))[:500]
    return Verdict(Outcome.CORRECT if equal else Outcome.WRONG, reason=told, extracted=extracted)


def _check(text: str | None) -> None:
    """Raises OverLimitError for a text whose numbers are too large, as far as our own parser can read it."""
    if text is None:
        return
    cost.check_text(text)
    if _TOWER.search(text):
        raise OverLimitError("a factorial of a factorial")
    try:
        check_cost(parse_ours(text))
    except (UnreadableError, UndefinedError):
        return


def _library() -> tuple[Any, Any, Any]:
    """`verify`, `parse` and the reader of LaTeX. Raises UserError."""
    try:
        import math_verify as library
    except ImportError as error:
        raise UserError("verifier 'math_verify' needs math-verify: pip install 'r1zero[math-verify]'") from error
    # It warns on every call without a timeout.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return library.verify, library.parse, library.LatexExtractionConfig()
