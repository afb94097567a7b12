"""`regex`: the answer matches a regular expression, in linear time where google-re2 is installed."""

from __future__ import annotations

import functools
import re
from typing import Any

from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.tags import final_answer
from r1zero.verifiers.text.shown import shown

_MAX_CHARS = 100_000


@register(
    "regex",
    example=Sample(
        completion="<think>ISO.</think> <answer>2024-02-29</answer>",
        problem=Problem(id="1", prompt="Leap day 2024?", data={"regex": r"\d{4}-\d{2}-\d{2}"}),
    ),
)
def regex(completion: str, answer: str, problem: Problem, *, pattern: str = "", search: bool = False) -> Verdict:
    """Correct when the whole answer matches the pattern; with `search`, when a part of it does.

    The pattern: the problem's `regex`, else the option `pattern`, else the gold answer. What is matched: the answer tag
    or the last box, else the text after the thinking, blank space around it aside.
    google-re2 (extra `regex`) matches in time linear in the text, and is used where it is installed and knows the
    pattern; Python's own takes over for look-around and back references, and a pattern that backtracks without end is
    then ended by the pool's deadline: a `timeout`. It does not stop an answer that fits the pattern by chance.
    """
    wanted = str(problem.data.get("regex") or pattern or answer)
    if not wanted:
        return Verdict(Outcome.ERROR, reason="no pattern: `regex` in the problem's data, or the option `pattern`")
    try:
        compiled = compiled_pattern(wanted)
    except re.error as error:
        return Verdict(Outcome.ERROR, reason=f"pattern {wanted[:200]!r} is no regular expression: {error}")
    text = final_answer(completion)
    text = (shown(completion) if text is None else text).strip()
    if not text or len(text) > _MAX_CHARS:
        reason = f"an answer of over {_MAX_CHARS} characters" if text else "no answer"
        return Verdict(Outcome.UNPARSEABLE, reason=reason)
    try:
        held = (compiled.search(text) if search else compiled.fullmatch(text)) is not None
    except UnicodeEncodeError:  # a lone surrogate: re2 works on UTF-8
        held = False
    outcome = Outcome.CORRECT if held else Outcome.WRONG
    return Verdict(outcome, reason="matches" if held else f"does not match {wanted[:200]!r}", extracted=text[:200])


@functools.lru_cache(maxsize=256)
def compiled_pattern(pattern: str) -> Any:
    """The compiled pattern: re2's where it can be, else Python's. Raises re.error."""
    python = re.compile(pattern)  # what counts as a pattern is Python's to say, whether re2 is installed or not
    try:
        import re2
    except ImportError:
        return python
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return python
