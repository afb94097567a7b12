"""`instructions`: verifiable instructions (IFEval, arXiv 2311.07911), all of a row's at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from r1zero.data.records import Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.instructions.kinds import KINDS
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.shown import shown

_MAX_CHARS = 100_000


@register(
    "instructions",
    example=Sample(
        completion="<think>No commas.</think>My answer is yes.",
        problem=Problem(
            id="1",
            prompt="Is it so? Say yes no or maybe and use no comma.",
            data={
                "instruction_id_list": ["punctuation:no_comma", "detectable_format:constrained_response"],
                "kwargs": [{}, {}],
            },
        ),
    ),
)
def instructions(completion: str, problem: Problem, *, loose: bool = False, partial_credit: bool = False) -> Verdict:
    """Correct when the text after the thinking follows every instruction of the row.

    The row is IFEval's: `instruction_id_list`, and `kwargs`, one object for each (or the JSON text of them). Known are
    the paper's 25 kinds and four of IFBench's (`count:word_count_range`, `count:unique_word_count`, `count:numbers`,
    `format:no_whitespace`). loose: an instruction is followed when one of eight forms of the text follows it, as the
    paper's loose accuracy has it: without its first line, its last line, both, or asterisks. partial_credit: a wrong
    text scores the share followed. A kind that is not known, or without what it needs, is an `error`.

    Sentences and languages are told by rules here and by trained models in the paper's script (nltk, langdetect), which
    may differ on a few texts. It judges form alone: a text that follows all and answers nothing is correct.
    """
    try:
        asked = read_instructions(problem.data)
    except ValueError as error:
        return Verdict(Outcome.ERROR, reason=str(error))
    text = shown(completion)
    if not text.strip() or len(text) > _MAX_CHARS:
        reason = f"a text of over {_MAX_CHARS} characters" if text.strip() else "no text after the thinking"
        return Verdict(Outcome.UNPARSEABLE, reason=reason)
    forms = loose_forms(text) if loose else [text]
    followed: dict[str, bool] = {}
    for number, (kind, given) in enumerate(asked):
        try:
            held = any(form.strip() and KINDS[kind](form, **given) for form in forms)
        except (TypeError, KeyError) as error:
            return Verdict(Outcome.ERROR, reason=f"instruction {kind}: {error}")
        followed[f"{number + 1} {kind}"] = bool(held)
    missed = [name for name, held in followed.items() if not held]
    details = {"followed": followed}
    if not missed:
        return Verdict(Outcome.CORRECT, reason=f"{len(followed)} instructions followed", details=details)
    score = 1 - len(missed) / len(followed) if partial_credit else 0.0
    return Verdict(Outcome.WRONG, score=score, reason=f"not followed: {', '.join(missed)}", details=details)


def read_instructions(data: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(kind, its arguments) of each instruction of a row; an argument of null is none. Raises ValueError."""
    kinds, kwargs = data.get("instruction_id_list"), data.get("kwargs")
    if isinstance(kinds, str):
        kinds = json.loads(kinds)
    if isinstance(kwargs, str):
        kwargs = json.loads(kwargs)
    if not isinstance(kinds, list | tuple) or not kinds:
        raise ValueError("no instructions: `instruction_id_list` and `kwargs` in the problem's data, as in IFEval")
    kwargs = kwargs if kwargs is not None else [{}] * len(kinds)
    if not isinstance(kwargs, list | tuple) or len(kwargs) != len(kinds):
        raise ValueError(f"`kwargs` must be a list with an object for each of the {len(kinds)} instructions")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ValueError(f"instruction {unknown[0]!r} is not known; known: {', '.join(sorted(KINDS))}")
    rows = [json.loads(given) if isinstance(given, str) else given or {} for given in kwargs]
    return [
        (kind, {key: value for key, value in row.items() if value is not None})
        for kind, row in zip(kinds, rows, strict=True)
    ]


def loose_forms(text: str) -> list[str]:
    """The text, without its first line, its last, and both; each also without asterisks."""
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    return [form for plain in (text, *cut) for form in (plain, plain.replace("*", ""))]
