"""verl and OpenRLHF by the call in their source; Inspect for real, where it is installed."""

import pytest

from r1zero.integrations.openrlhf import openrlhf_reward
from r1zero.integrations.verl import verl_score


def test_verl_gets_a_score_and_what_happened() -> None:
    compute_score = verl_score("math")
    right = compute_score(data_source="x", solution_str=r"\boxed{1/2}", ground_truth="0.5", extra_info={"index": 3})
    assert right == {"score": 1.0, "acc": 1.0, "outcome": "correct"}
    hung = verl_score("tests.hanging_verifiers:hanging", no_reward=-0.5, deadline_seconds=0.5)
    assert hung("x", "spin", "1", None) == {"score": -0.5, "acc": 0.0, "outcome": "timeout"}


def test_openrlhf_gets_tensors_and_is_told_which_rewards_are_missing() -> None:
    reward_func = openrlhf_reward("tests.hanging_verifiers:hanging", deadline_seconds=0.5)
    found = reward_func(["ask: ok", "ask: raise no"], ["ask: ", "ask: "], ["", ""])
    assert found["rewards"].tolist() == [1.0, 0.0]
    assert found["scores"].tolist() == [1.0, 0.0]
    assert found["extra_logs"]["no_reward"].tolist() == [0.0, 1.0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_inspect_scores_with_our_verifier(tmp_path: object) -> None:
    inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect is not installed: pip install 'r1zero[inspect]'")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    from r1zero.integrations.inspect import inspect_scorer

    @solver
    def answers_from_metadata() -> Solver:  # no model: Inspect's made one asks the network for a tokenizer
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.output = ModelOutput.from_content("none", state.metadata["says"])
            return state

        return solve

    rows = [("1/2", r"\boxed{0.5}"), ("2", r"\boxed{3}"), ("hang", "")]
    task = inspect_ai.Task(
        dataset=[Sample(input="?", target=target, metadata={"says": says}) for target, says in rows],
        solver=answers_from_metadata(),
        scorer=inspect_scorer("tests.integrations.test_trl:math_or_hang", deadline_seconds=2.0),
    )
    (log,) = inspect_ai.eval(task, model="none/none", log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    values = [next(iter(sample.scores.values())).value for sample in log.samples]
    assert values[:2] == [1.0, 0.0]
    assert values[2] != values[2]  # NaN: not scored
    assert log.results.scores[0].metrics["accuracy"].value == 0.5  # of the two that are
