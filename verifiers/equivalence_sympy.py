"""`sympy`: is the final answer equal to the gold one by sympy's simplifier?

Both are read by the parser of `math` and rebuilt node by node (`math.by_sympy`): no text reaches sympy. Slower than
`math` and narrower in notations (no units, no words); a second opinion.
"""

from __future__ import annotations

from collections.abc import Sequence

from r1zero.data.records import FinishReason
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.math.by_sympy import check_cost, same_by_sympy, to_sympy, value_of
from r1zero.verifiers.math.nodes import OverLimitError, UndefinedError, UnreadableError
from r1zero.verifiers.math.parse import names_of, parse
from r1zero.verifiers.registry import Sample, register
from r1zero.verifiers.text.extract import RULES, extract


@register("sympy", preload=("sympy",), example=Sample(completion="So \\boxed{\\frac{84}{2}}.", answer="42"))
def sympy_equal(
    completion: str, answer: str, finish_reason: FinishReason = "stop", *, rules: Sequence[str] = RULES
) -> Verdict:
    """Correct when sympy simplifies the difference of the extracted answer and `answer` to 0.

    Numbers, expressions, and lists, sets, tuples and matrices of them, `x = 5` as 5; anything else is unparseable, or
    an `error` where the gold is it. rules: extraction rules, as those of `math`. It does not stop an answer guessed
    right; a difference that sympy cannot simplify is `wrong`.
    """
    try:
        gold = parse(answer.strip())
        check_cost(gold)
        to_sympy(value_of(gold))
    except (UnreadableError, OverLimitError, UndefinedError, RecursionError) as error:
        return Verdict(Outcome.ERROR, reason=f"the gold answer is nothing for sympy: {error}")
    found = extract(completion, rules, cut=finish_reason == "length")
    if found.text is None:
        return Verdict(Outcome.UNPARSEABLE, reason=found.reason)
    told = found.text[:500]
    for text in (found.text, *found.shorter):
        try:
            pred = parse(text, names=names_of(gold))
            equal = same_by_sympy(gold, pred)
        except UnreadableError as error:
            reason = f"cannot be read: {error} (by {found.rule})"
            continue
        except (OverLimitError, RecursionError) as error:
            return Verdict(Outcome.UNPARSEABLE, reason=f"over limit: {error}"[:300], extracted=told)
        except UndefinedError as error:
            return Verdict(Outcome.WRONG, reason=f"undefined: {error}", extracted=told)
        outcome = Outcome.CORRECT if equal else Outcome.WRONG
        return Verdict(outcome, reason=f"sympy: {'equal' if equal else 'not equal'} (by {found.rule})", extracted=told)
    return Verdict(Outcome.UNPARSEABLE, reason=reason, extracted=told)
