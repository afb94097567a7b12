"""`math`: is the completion's final answer equal to the gold answer?

A cascade, each stage sound on its own; the verdict's reason names the one that decided and shows both normal forms.

1. Extraction (`r1zero.verifiers.text.extract`): one answer by contract, or none.
2. Identity of the two texts; two plain rational numbers (3, 0.5, \\frac{1}{2}, 1/2): no parser.
3. Cost gate (`cost`): what is too long, too deep or too large to judge cheaply is `unparseable`, "over limit".
4. One typed parser for both sides (`normalize`, `tokens`, `grammar`, `nodes`): nothing is ever evaluated as code.
5. Comparison by kind (`compare`, `sets`, `scalars`, `units`), down to expressions, equal by structure, by exact
   arithmetic (`exact`), by residues in a prime field, or by evaluation to many digits (`symbolic`, `numeric`).
Neither sympy nor math-verify takes part unless `ask_sympy` says so: every stage works on our own tree, and mpmath is
the only library under it.

What counts as equal:
- The exact value: 1/2 = 0.5 = 2/4 = 50%, 1.5e3 = 1500, 3 1/2 = 7/2, \\sqrt{117} = 3\\sqrt{13}, sec^2 x = 1 + tan^2 x.
  0.33 is not 1/3, 3.14 is not pi. A tolerance of half a unit of the last digit holds only where the gold is a decimal
  of three significant digits or more, the last of them no zero, and the answer is exact and does not end (gold 0.333,
  answer 1/3), or the gold is a large number in e-notation and the answer has more digits. 12.0 and 3.50 are exact.
- `x = 5`, `5 = x`, `x \\in \\{5\\}` and 5; `f(x) = 2x` and 2x; `y = 2x + 3` and `2x - y + 3 = 0`; `m + n = 113` and
  113. A relation without a name beside the value is no value: `-x = 5`, `|x| = 5` and `\\sin x = 5` are not 5, gold
  `a + b = 0` is not 0, 3 = 5 is nothing, nor is `x = 7 \\approx 5`.
- Units, degree and currency signs may be missing, not different: 5 km for gold 5, not for 5 miles; 180 minutes is 3
  hours; 45 degrees is pi/4. 28% is 0.28; for gold 28% the bare 28 passes, and for gold 28 the answer 28%.
- Lists and sets in any order, a repeated member counts once, none missing, none extra (`1, 1` is not 1); tuples in
  order, with the same brackets; a set of one is its member. `\\pm` stands for both values. `x = 3, y = 4` in any
  order, or as 3, 4. Matrices whatever their brackets.
- An interval and the inequality with the same solutions, where it can be solved: `\\ln x > 5` is no interval.
- Numerals with a base: same digits, same base; the base may be missing. Ratios up to a factor, 7:32 and 14:64; two
  that may both be times of day only as they are: 2:30 is not 1:15, nor 1:00 13:00.
- Words without case, article, plural and punctuation. Multiple choice: the letter, with or without its text.
- The case of symbols matters; e and i are the constants.
- A free whole number under another name, `2 n pi` and `2 k pi`, where it counts turns or is said to be whole; a
  constant C under another name, in a function of something else. Vectors by i, j, k, in angle brackets, as a column.
  A system `cases` that gives each name its value, as the tuple. "No solution", "none" and the empty set.
- Binomials however written; `\\overline{AB}` as a segment, `\\overline{ab}` as the numeral 10a + b, not the product.
- A definite integral, a limit, a derivative, an endless sum, Gamma, zeta, H_3: their values to 15 digits, where mpmath
  finds one that settles.
- A unit beside a bare gold in the unit that the question asks for ("how many hours": 150 minutes is 2.5, 2.5 minutes is
  not); with no question, `5 m` with a space is 5, and `5m` is a product.

What is no answer (`unparseable`): an open think block, an open or empty last box, tags that disagree, text that is no
answer of any kind. A hedge (3 or 5), a negation, an undefined value (1/0) is wrong. `error`: the gold cannot be read.

What it does not stop: an answer guessed right; a question's own integral written down unevaluated; an identity that
only holds to 250 digits at seeded points (no proof is attempted for transcendental functions). Indefinite integrals
and sums over unknown terms are equal only as written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.math import cost
from r1zero.verifiers.math.asked import in_asked_unit
from r1zero.verifiers.math.choices import chosen_letters, gold_letters
from r1zero.verifiers.math.nodes import Group, Node, OverLimitError, Seq, Text, UndefinedError, UnreadableError, show
from r1zero.verifiers.math.normalize import has_comma_thousands
from r1zero.verifiers.math.parse import names_of, parse
from r1zero.verifiers.math.readings import compare_readings
from r1zero.verifiers.math.symbolic import Result
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text import extract
from r1zero.verifiers.text.letters import said_letter

_EXAMPLE = Sample(completion="<think>6 x 7</think> The answer is $\\boxed{\\frac{84}{2}}$.", answer="42")


@register("math", example=_EXAMPLE)
def math(
    completion: str,
    answer: str,
    finish_reason: FinishReason = "stop",
    problem: Problem | None = None,
    *,
    rules: Sequence[str] = extract.RULES,
    ask_sympy: bool = False,
) -> Verdict:
    """Correct when the final answer of `completion` is mathematically equal to `answer`; the rules are in the module.

    rules: extraction rules, in order: boxed, answer_tag, marker, whole, last. ("boxed",) is the strict contract.
    ask_sympy: where no stage finds a value to compare, sympy is asked (`by_sympy`). Off: on the 821 labelled
    cases it gains nothing, and it is slow.
    """
    gold = answer.strip()
    if not gold:
        return Verdict(Outcome.ERROR, reason="the gold answer is empty")
    cut = finish_reason == "length"
    found = extract.extract(completion, rules, cut=cut)
    letters = gold_letters(gold)
    if letters is not None and not (cut and found.text is None):
        verdict = _judge_choice(found, completion, letters, rules, cut)
        if verdict is not None:
            return verdict
    if found.text is None:
        return Verdict(Outcome.UNPARSEABLE, reason=found.reason)
    pred = found.text
    if pred == gold:
        return Verdict(Outcome.CORRECT, reason=f"identical: {_short(gold)} (by {found.rule})", extracted=pred)
    ours, theirs = _plain_number(gold), _plain_number(pred)
    if ours is not None and theirs is not None:
        same = ours[0] * theirs[1] == theirs[0] * ours[1]
        if same or "." not in gold:  # a decimal gold may be rounded: `compare` knows the tolerance
            return _verdict(same, "exact", pred, gold, found)
    return _judge(found, gold, problem.prompt if problem is not None else "", ask_sympy)


_PLAIN = re.compile(
    r"([-+]?)(?:\\[dt]?frac\{([0-9]{1,60})\}\{([0-9]{1,60})\}|([0-9]{1,600})(?:/([0-9]{1,60})|\.([0-9]{1,60}))?)"
)


def _plain_number(text: str) -> tuple[int, int] | None:
    """Numerator and denominator of a number in its plainest notation; None for all else."""
    found = _PLAIN.fullmatch(text)
    if found is None:
        return None
    sign, top, bottom, whole, over, decimals = found.groups()
    if whole is not None:
        if decimals is not None:
            top, bottom = whole + decimals, "1" + "0" * len(decimals)
        else:
            top, bottom = whole, over or "1"
    denominator = int(bottom)
    if not denominator:
        return None
    return (-int(top) if sign == "-" else int(top)), denominator


@dataclass(frozen=True)
class _Gold:
    """A gold answer, read once."""

    tree: Node | None
    trouble: str = ""
    """Why it could not be read."""
    listed: Node | None = None
    """Its reading as a list, where `120,000` may be one."""
    names: frozenset[str] = frozenset()


@lru_cache(maxsize=16384)
def _read_gold(text: str) -> _Gold:
    try:
        tree = parse(text)
        listed = parse(text, thousands=False) if has_comma_thousands(text) else None
    except (UnreadableError, OverLimitError, RecursionError) as error:
        return _Gold(None, trouble=str(error))
    return _Gold(tree, listed=listed, names=names_of(tree))


def _judge(found: extract.Extraction, answer: str, question: str, ask_sympy: bool) -> Verdict:
    """Beyond identity: parse and compare."""
    gold = _read_gold(answer)
    pred = found.text or ""
    by = f"(by {found.rule})"
    try:
        tree, pred = _read_pred(found, gold)
        if gold.tree is None:
            if pred.split() == answer.split():
                return Verdict(Outcome.CORRECT, reason=f"identical but for spacing {by}", extracted=pred)
            reason = f"the gold answer cannot be read: {gold.trouble}"
            return Verdict(Outcome.ERROR, reason=reason, extracted=_clip(pred))
        with cost.budget():
            result, reference, tree = _compare_readings(gold.tree, gold, tree, pred)
            if question or not result.equal:
                result = in_asked_unit(gold.tree, tree, pred, question) or result
        if ask_sympy and not result.equal and result.stage in _UNDECIDED:
            result = _by_sympy(gold.tree, tree)
        return _verdict(result.equal, result.stage, show(tree), show(reference), found, pred)
    except (OverLimitError, RecursionError) as error:
        why = str(error) if isinstance(error, OverLimitError) else "nested too deep"
        return Verdict(Outcome.UNPARSEABLE, reason=f"over limit: {why} {by}", extracted=_clip(pred))
    except UnreadableError as error:
        return Verdict(Outcome.UNPARSEABLE, reason=f"cannot be read: {error} {by}", extracted=_clip(pred))


_UNDECIDED = ("opaque", "undefined")
"""Stages at which our own rules find no value to compare."""


def _by_sympy(gold: Node, pred: Node) -> Result:
    from r1zero.verifiers.math.by_sympy import same_by_sympy

    try:
        return Result(same_by_sympy(gold, pred), "sympy")
    except UndefinedError:
        return Result(False, "undefined")


def _read_pred(found: extract.Extraction, gold: _Gold) -> tuple[Node, str]:
    """The prediction's tree and the text it came from: the widest reading that is an answer of the gold's kind."""
    readings = (found.text or "", *found.shorter)
    trouble: UnreadableError | None = None
    for text in readings:
        try:
            tree = parse(text, names=gold.names)
        except UnreadableError as error:
            trouble = trouble or error
            continue
        if isinstance(tree, Text) and not isinstance(gold.tree, Text) and text is not readings[-1]:
            continue
        return tree, text
    raise trouble or UnreadableError("no maths")


def _compare_readings(reference: Node, gold: _Gold, tree: Node, pred: str) -> tuple[Result, Node, Node]:
    """The result, with the two trees it is about: `120,000` is tried as a list of two where the gold may be a list."""
    result = compare_readings(reference, tree)
    if not result.equal:
        ambiguous = has_comma_thousands(pred)
        listed = gold.listed
        if listed is None and ambiguous and isinstance(reference, (Seq, Group)):
            listed = reference
        if listed is not None:
            other = parse(pred, thousands=False, names=gold.names) if ambiguous else tree
            second = compare_readings(listed, other)
            if second.equal:
                return second, listed, other
    return result, reference, tree


def _judge_choice(
    found: extract.Extraction, completion: str, letters: frozenset[str], rules: Sequence[str], cut: bool
) -> Verdict | None:
    """The verdict where the prediction is a choice; None where it is none and the other stages must decide."""
    chosen = chosen_letters(found.text) if found.text is not None else None
    if chosen is None and found.rule == "boxed" and found.text is not None and "marker" in rules:
        found = extract.extract(completion, ("marker",), cut=cut)  # the box holds a formula, and "Answer: D" follows
        chosen = chosen_letters(found.text) if found.text is not None else None
    if chosen is None and found.rule != "boxed" and "marker" in rules and not cut:
        in_tag = found.rule == "answer_tag"
        letter = said_letter((found.text if in_tag else extract.visible(completion)) or "")
        if letter is not None:
            chosen, found = frozenset(letter), extract.Extraction(letter, rule=found.rule if in_tag else "marker")
    if chosen is None or found.text is None:
        return None
    return _verdict(chosen == letters, "choice", "".join(sorted(chosen)), "".join(sorted(letters)), found, found.text)


def _verdict(
    equal: bool, stage: str, pred: str, gold: str, found: extract.Extraction, extracted: str | None = None
) -> Verdict:
    outcome = Outcome.CORRECT if equal else Outcome.WRONG
    reason = f"{stage}: {_short(pred)} {'=' if equal else '!='} {_short(gold)} (by {found.rule})"
    return Verdict(outcome, reason=reason, extracted=pred if extracted is None else extracted)


def _clip(text: str) -> str:
    return text if len(text) <= 500 else text[:500] + "..."


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
