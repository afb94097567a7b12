"""A verifier that hangs or raises on request, by the name a test of the front door calls it: `tests.hanging_verifiers`.

Apart from `hostile_verifiers`, which the pool's tests import by another path: a name can be registered once.
"""

from r1zero.verifiers import Outcome, Verdict, register


@register("hanging")
def hanging(completion: str) -> Verdict:
    """Correct, unless the completion is `spin` (never ends) or begins with `raise`."""
    while completion == "spin":
        pass
    if completion.startswith("raise"):
        raise RuntimeError(completion)
    return Verdict(Outcome.CORRECT)
