"""`math`: is the completion's final answer equal to the gold answer?

A cascade, each stage sound on its own; the verdict's reason names the one that decided and shows both normal forms.

1. Extraction (`r1zero.verifiers.extract`): one answer by contract, or none.
2. Identity of the two texts, then of two whole numbers: no parser, no sympy.
3. Cost gate (`cost`): what is too long, too deep or too large to judge cheaply is `unparseable`, "over limit".
4. One typed parser for both sides (`tokens`, `parse`, `nodes`): exact fractions, nothing is ever evaluated as code.
5. Comparison by kind (`compare`, `sets`, `units`), down to scalars, which are equal by structure, by exact arithmetic,
   by residues in a prime field, or by evaluation to many digits (`symbolic`, `numeric`).

What counts as equal:
- The exact value: 1/2 = 0.5 = 2/4 = 50%, 1.5e3 = 1500, 3 1/2 = 7/2, \\sqrt{117} = 3\\sqrt{13}, sec^2 x = 1 + tan^2 x. 0.33 is not
  1/3, 3.14 is not pi. A tolerance of half a unit of the last digit holds only where the gold is a decimal of three
  significant digits or more and the answer is exact and does not end (gold 0.333, answer 1/3), or the gold is in
  e-notation and the answer has more digits.
- `x = 5`, `x \\in \\{5\\}` and 5; `f(x) = 2x` and 2x; `y = 2x + 3` and `2x - y + 3 = 0`, `m + n = 113` and 113. A relation
  without a name on the left is no value: gold `a + b = 0` is not 0, and 3 = 5 is nothing.
- Units, degree and currency signs may be missing, not different: 5 km for gold 5, not for 5 miles; 180 minutes is 3
  hours; 45 degrees is pi/4. 28% is 0.28; for gold 28% the bare 28 passes, and for gold 28 the answer 28%.
- Lists and sets in any order, a repeated member counts once, none missing, none extra; tuples in order, with the same
  brackets; a set of one is its member. `\\pm` stands for both values. `x = 3, y = 4` in any order, or as 3, 4.
- An interval and the inequality with the same solutions. Matrices whatever their brackets.
- Numerals with a base: same digits, same base; the base may be missing. 7:32 and 14:64, but 1:00 is not 13:00.
- Words without case, article, plural and punctuation. Multiple choice: the letter, with or without its text.
- The case of symbols matters; e and i are the constants.

What is no answer (`unparseable`): an open think block, an open or empty last box, tags that disagree, text that is no
answer of any kind. A hedge (3 or 5), a negation, an undefined value (1/0) is wrong. `error`: the gold cannot be read.

What it does not stop: an answer guessed right; an identity that only holds to 250 digits at seeded points (no proof
is attempted for transcendental functions); integrals, limits and sums over unknown terms equal only as written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from r1zero.verifiers import extract
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.verdict import Outcome, Verdict

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,4000})")
_EXAMPLE = Sample(completion="<think>6 x 7</think> The answer is $\\boxed{\\frac{84}{2}}$.", answer="42")


@register("math", example=_EXAMPLE)
def math(completion: str, answer: str, *, rules: Sequence[str] = extract.RULES) -> Verdict:
    """Correct when the final answer of `completion` is mathematically equal to `answer`; the rules are in the module.

    rules: extraction rules, in order: boxed, answer_tag, marker, whole, last. ("boxed",) is the strict contract.
    """
    found = extract.extract(completion, rules)
    gold = answer.strip()
    if not gold:
        return Verdict(Outcome.ERROR, reason="the gold answer is empty")
    letters = _gold_letters(gold)
    if letters is not None:
        verdict = _choice(found, completion, letters, gold, rules)
        if verdict is not None:
            return verdict
    if found.text is None:
        return Verdict(Outcome.UNPARSEABLE, reason=found.reason)
    pred = found.text
    by = f"by {found.rule}"
    if pred == gold:
        return Verdict(Outcome.CORRECT, reason=f"identical: {_short(gold)} ({by})", extracted=pred)
    ours, theirs = _INTEGER.fullmatch(gold), _INTEGER.fullmatch(pred)
    if ours is not None and theirs is not None:
        same = ours[2] == theirs[2] and (ours[1] == "-" and ours[2] != "0") == (theirs[1] == "-" and theirs[2] != "0")
        outcome = Outcome.CORRECT if same else Outcome.WRONG
        sign = "=" if same else "!="
        return Verdict(outcome, reason=f"integers: {_short(pred)} {sign} {_short(gold)} ({by})", extracted=pred)
    return _judge(found, gold)


def _judge(found: extract.Extraction, gold: str) -> Verdict:
    """Beyond identity: parse and compare. The parser is imported here, so that integers never need it."""
    from r1zero.verifiers.math import nodes

    assert found.text is not None
    pred = found.text
    reference = _read_gold(gold)
    by = f"by {found.rule}"
    try:
        tree, pred = _read_pred(found, reference)
    except nodes.OverLimit as error:
        return Verdict(Outcome.UNPARSEABLE, reason=f"over limit: {error} ({by})", extracted=_clip(pred))
    except nodes.Unreadable as error:
        return Verdict(Outcome.UNPARSEABLE, reason=f"cannot be read: {error} ({by})", extracted=_clip(pred))
    if reference.tree is None:
        if _squeeze(pred) == _squeeze(gold):
            return Verdict(Outcome.CORRECT, reason=f"identical but for spacing ({by})", extracted=pred)
        return Verdict(
            Outcome.ERROR, reason=f"the gold answer cannot be read: {reference.trouble}", extracted=_clip(pred)
        )
    if _squeeze(pred) == _squeeze(gold):
        return Verdict(Outcome.CORRECT, reason=f"identical but for spacing ({by})", extracted=pred)
    try:
        result, shown_gold, shown_pred = _compare_readings(reference, tree, pred)
    except (nodes.OverLimit, RecursionError) as error:
        reason = str(error) if isinstance(error, nodes.OverLimit) else "nested too deep"
        return Verdict(Outcome.UNPARSEABLE, reason=f"over limit: {reason} ({by})", extracted=_clip(pred))
    outcome = Outcome.CORRECT if result[0] else Outcome.WRONG
    sign = "=" if result[0] else "!="
    reason = f"{result[1]}: {_short(shown_pred)} {sign} {_short(shown_gold)} ({by})"
    return Verdict(outcome, reason=reason, extracted=pred)


@dataclass(frozen=True)
class _Gold:
    """A gold answer, read once."""

    text: str
    tree: object | None
    trouble: str = ""
    listed: object | None = None
    """Its reading as a list, where `120,000` may be one."""
    names: frozenset[str] = frozenset()


@lru_cache(maxsize=16384)
def _read_gold(text: str) -> _Gold:
    from r1zero.verifiers.math.nodes import OverLimit, Unreadable
    from r1zero.verifiers.math.parse import names_of, parse
    from r1zero.verifiers.math.tokens import has_comma_thousands

    try:
        tree = parse(text)
        listed = parse(text, thousands=False) if has_comma_thousands(text) else None
    except (Unreadable, OverLimit, RecursionError) as error:
        return _Gold(text, None, trouble=str(error))
    return _Gold(text, tree, listed=listed, names=names_of(tree))


def _read_pred(found: extract.Extraction, gold: _Gold) -> tuple[object, str]:
    """The prediction's tree and the text it came from: the widest reading that is an answer of the gold's kind."""
    from r1zero.verifiers.math.nodes import OverLimit, Text, Unreadable
    from r1zero.verifiers.math.parse import parse

    assert found.text is not None
    trouble: Exception | None = None
    for text in (found.text, *found.shorter):
        try:
            tree = parse(text, names=gold.names)
        except Unreadable as error:
            trouble = trouble or error
            continue
        except RecursionError as error:
            raise OverLimit("nested too deep") from error
        if isinstance(tree, Text) and not isinstance(gold.tree, Text) and text is not (found.text, *found.shorter)[-1]:
            continue
        return tree, text
    raise trouble or Unreadable("no maths")


def _compare_readings(gold: _Gold, tree: object, pred: str) -> tuple[tuple[bool, str], str, str]:
    from r1zero.verifiers.math.compare import compare
    from r1zero.verifiers.math.nodes import Group, Node, Seq, show
    from r1zero.verifiers.math.parse import parse
    from r1zero.verifiers.math.tokens import has_comma_thousands

    reference: Node = gold.tree  # type: ignore[assignment]
    ours: Node = tree  # type: ignore[assignment]
    result = compare(reference, ours)
    if not result.equal:
        ambiguous = has_comma_thousands(pred)
        listed: Node | None = gold.listed  # type: ignore[assignment]
        if listed is None and isinstance(reference, (Seq, Group)) and ambiguous:
            listed = reference
        if listed is not None:
            other = parse(pred, thousands=False, names=gold.names) if ambiguous else ours
            second = compare(listed, other)
            if second.equal:
                return (True, second.stage), show(listed), show(other)
    return (result.equal, result.stage), show(reference), show(ours)


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _clip(text: str) -> str:
    return text if len(text) <= 500 else text[:500] + "..."


def _short(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


# Multiple choice

_WRAPPERS = re.compile(
    r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox|mathsf|bf|rm)\b\s*|\\[ ,;:!]|\\(?:left|right)|[{}$*`]"
)
_LETTER = re.compile(r"\(?([A-J])\)?")
_LETTERS = re.compile(r"\(?([A-J](?:\s*(?:,|;|and|&)?\s*\(?[A-J]\)?)*)\)?")
_PREDICTED = re.compile(
    r"(?:option|choice|answer)?\s*(?:\(([A-Ja-j])\)(?=$|[\s.:,)]|[^\w*/+^=-])"
    r"|([A-Ja-j])(?:\)|(?=$|[.:,]|\s+(?:because|since|as|is)\b)))",
    re.IGNORECASE,
)


def _gold_letters(gold: str) -> frozenset[str] | None:
    """The letters of a multiple-choice gold: C, (C), \\text{(C)}, ACD, \\text{A, B}; None for any other gold."""
    if len(gold) > 60 or ("\\" not in gold and not gold[:1].isupper() and gold[:1] != "("):
        return None
    plain = _WRAPPERS.sub(" ", gold).strip(" .,")
    if _LETTERS.fullmatch(plain) is None:
        return None
    letters = re.findall(r"[A-J]", plain)
    # CBAD is an order, not a choice; so is a word such as BAD.
    return frozenset(letters) if letters == sorted(set(letters)) or "," in plain else None


def _choice(
    found: extract.Extraction, completion: str, letters: frozenset[str], gold: str, rules: Sequence[str]
) -> Verdict | None:
    """The verdict where the prediction is a choice; None where it is none and the other stages must decide."""
    chosen = _chosen(found.text) if found.text is not None else None
    if chosen is None and found.rule == "boxed" and found.text is not None and "marker" in rules:
        found = extract.extract(completion, ("marker",))  # the box holds a formula, and "Answer: D" follows
        chosen = _chosen(found.text) if found.text is not None else None
    if chosen is None:
        return None
    shown = "".join(sorted(chosen))
    if chosen == letters:
        return Verdict(Outcome.CORRECT, reason=f"choice: {shown} (by {found.rule})", extracted=found.text)
    reason = f"choice: {shown} is not {''.join(sorted(letters))} (by {found.rule})"
    return Verdict(Outcome.WRONG, reason=reason, extracted=found.text)


def _chosen(text: str) -> frozenset[str] | None:
    if len(text) > 500:
        return None
    plain = re.sub(r"\s+", " ", _WRAPPERS.sub(" ", text)).strip(" .,")
    several = _LETTERS.fullmatch(plain)
    if several is not None:
        return frozenset(re.findall(r"[A-J]", plain))
    one = _PREDICTED.match(plain)
    if one is None:
        return None
    return frozenset((one[1] or one[2]).upper())
