"""`answer`: extraction and exact match after light normalising (a first version)."""

from __future__ import annotations

import re

from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.verdict import Outcome, Verdict

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


@register("answer", example=Sample(completion="<think>1+1</think> <answer>2</answer>", answer="2"))
def answer(completion: str, answer: str) -> Verdict:
    """Correct when the text of the last answer tag equals `answer`, spaces aside."""
    found = _TAG.findall(completion)
    if not found:
        return Verdict(Outcome.UNPARSEABLE, reason="no answer tag")
    extracted = found[-1].strip()
    if extracted != answer.strip():
        return Verdict(Outcome.WRONG, reason=f"{extracted!r} is not {answer!r}", extracted=extracted)
    return Verdict(Outcome.CORRECT, reason="exact match", extracted=extracted)
