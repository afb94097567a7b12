"""`r1zero.verify`, and reward functions copied by value to the workers."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import r1zero
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, VerifierPool, VerifierSpec
from r1zero.verifiers.running import by_value


def test_verify_gives_the_verdict_of_the_named_verifier() -> None:
    assert r1zero.verify(r"so it is \boxed{1/2}", "0.5").outcome is Outcome.CORRECT
    assert r1zero.verify(r"so it is \boxed{1/3}", "0.5").outcome is Outcome.WRONG
    with pytest.raises(UserError, match="did you mean 'math'"):
        r1zero.verify("1", "1", "mth")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"completion": 5, "answer": "5"}, "completion 5 is a int, not text"),
        ({"completion": "5", "answer": 5}, "answer 5 is a int, not text"),
        ({"completion": "5", "answer": "5", "deadline_seconds": "x"}, "deadline_seconds must be a number above 0"),
        ({"completion": "5", "answer": "5", "deadline_seconds": -1}, "deadline_seconds must be a number above 0"),
    ],
)
def test_verify_refuses_what_is_not_text_and_a_deadline_that_is_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        r1zero.verify(**given)


def test_a_verifier_that_hangs_is_a_timeout_and_the_next_call_works() -> None:
    hung = r1zero.verify("spin", "1", "tests.hanging_verifiers:hanging", deadline_seconds=0.3)
    assert hung.outcome is Outcome.TIMEOUT
    assert r1zero.verify(r"\boxed{1}", "1").correct


def test_verify_many_keeps_the_order_and_refuses_unlike_lengths() -> None:
    verdicts = r1zero.verify_many([r"\boxed{1}", r"\boxed{2}", r"\boxed{3}"], ["1", "1", "3"])
    assert [verdict.correct for verdict in verdicts] == [True, False, True]
    with pytest.raises(UserError, match="2 completions, 1 answers"):
        r1zero.verify_many(["a", "b"], ["1"])


def test_import_is_light_and_a_script_that_verifies_ends_by_itself() -> None:
    code = (
        "import time; began = time.perf_counter(); import r1zero; took = time.perf_counter() - began; import sys; "
        "print(took < 0.3, 'torch' in sys.modules, r1zero.verify('\\\\boxed{2}', '2').correct, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "False", "True", "False"]


def test_every_public_name_is_there() -> None:
    assert all(getattr(r1zero, name) is not None for name in r1zero.__all__)


@pytest.mark.parametrize(
    ("said", "outcome", "score"),
    [
        ("1", Outcome.CORRECT, 1.0),
        ("True", Outcome.CORRECT, 1.0),
        ("0.25", Outcome.WRONG, 0.25),
        ("-1", Outcome.WRONG, -1.0),
        ("None", Outcome.ERROR, None),
        ("7", Outcome.ERROR, None),
        ("'much'", Outcome.ERROR, None),
        ("1 / 0", Outcome.ERROR, None),
    ],
)
def test_what_a_reward_function_of_a_script_says_becomes_a_verdict(
    said: str, outcome: Outcome, score: float | None, tmp_path: Path
) -> None:
    space: dict[str, object] = {"__name__": "__main__"}
    exec(f"def reward(completion, answer):\n    return {said}", space)  # noqa: S102  the cell of a user
    path = tmp_path / "reward.pkl"
    by_value.store(space["reward"], path)  # type: ignore[arg-type]
    spec = VerifierSpec(name=by_value.NAME, options={"path": str(path)})
    with VerifierPool(1) as pool:
        (verdict,) = pool.verify([(spec, Sample(completion="a", answer="b", problem=Problem(id="", prompt="")))])
    assert (verdict.outcome, verdict.score) == (outcome, score)


def test_a_reward_function_that_cannot_be_taken_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="parameter 'gold' is none of answer, completion"):
        by_value.store(lambda completion, gold: 1, tmp_path / "reward.pkl")
    lock = threading.Lock()
    with pytest.raises(UserError, match=r"cannot be copied to the workers .*lock"):
        by_value.store(lambda completion: lock.locked(), tmp_path / "reward.pkl")
