"""verl and OpenRLHF by the call in their source; Inspect for real, where it is installed."""

import pytest

from r1zero.integrations.openrlhf import openrlhf_reward
from r1zero.integrations.verl import verl_score


def test_verl_gets_a_score_and_what_happened() -> None:
    compute_score = verl_score("math")
    right = compute_score(data_source="x", solution_str=r"\boxed{1/2}", ground_truth="0.5", extra_info={"index": 3})
    assert right == {"score": 1.0, "acc": 1.0, "outcome": "correct"}
    hung = verl_score("tests.hostile_verifiers:hostile", no_reward=-0.5, deadline_seconds=0.5)
    assert hung("x", "spin", "1", None) == {"score": -0.5, "acc": 0.0, "outcome": "timeout"}


def test_openrlhf_gets_tensors_and_is_told_which_rewards_are_missing() -> None:
    reward_func = openrlhf_reward("tests.hostile_verifiers:hostile", deadline_seconds=0.5)
    found = reward_func(["ask: ok", "ask: raise no"], ["ask: ", "ask: "], ["", ""])
    assert found["rewards"].tolist() == [1.0, 0.0]
    assert found["scores"].tolist() == [1.0, 0.0]
    assert found["extra_logs"]["no_reward"].tolist() == [0.0, 1.0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_inspect_scores_with_our_verifier(tmp_path: object) -> None:
    inspect_ai = pytest.importorskip("inspect_ai", reason="Inspect is not installed: pip install 'r1zero[inspect]'")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, get_model

    from r1zero.integrations.inspect import inspect_scorer

    outputs = [ModelOutput.from_content("mockllm/model", text) for text in (r"\boxed{0.5}", r"\boxed{3}")]
    task = inspect_ai.Task(
        dataset=[Sample(input="half?", target="1/2"), Sample(input="two?", target="2")], scorer=inspect_scorer("math")
    )
    (log,) = inspect_ai.eval(
        task,
        model=get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path),
        display="none",
        max_samples=1,
    )
    assert log.status == "success"
    assert [next(iter(sample.scores.values())).value for sample in log.samples] == [1.0, 0.0]
    assert log.results.scores[0].metrics["accuracy"].value == 0.5
