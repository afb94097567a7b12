"""Our reward in the real TRL, three steps; run where TRL is installed (an environment of its own will do)."""

from pathlib import Path
from typing import Any

import pytest

from r1zero.integrations.trl import trl_reward
from r1zero.verifiers import Outcome, Verdict
from r1zero.verifiers.math import math
from tests.tiny_models import save_model, tiny_llama


def math_or_hang(completion: str, answer: str) -> Verdict:
    """The `math` verifier, but for one gold answer at which it never returns."""
    while answer == "hang":
        pass
    return math(completion, answer)


def test_rewards_are_scores_and_none_where_the_verifier_hangs() -> None:
    reward = trl_reward("tests.integrations.test_trl:math_or_hang", deadline_seconds=1.0)
    found = reward(
        prompts=["", "", ""],
        completions=[r"\boxed{2}", r"\boxed{2}", [{"role": "assistant", "content": r"\boxed{3}"}]],
        answer=["2", "hang", "4"],
    )
    assert found == [1.0, None, 0.0]
    assert math(r"\boxed{2}", "2").outcome is Outcome.CORRECT


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_trl_trains_three_steps_with_the_math_verifier_and_one_reward_that_hangs(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="TRL is not installed: pip install trl into an environment of its own")
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    reward = trl_reward("tests.integrations.test_trl:math_or_hang", deadline_seconds=2.0)
    seen: list[tuple[list[str], list[float | None]]] = []

    def watched(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        found = reward(prompts, completions, **columns)
        seen.append((list(columns["answer"]), found))
        return found

    save_model(tmp_path, tiny_llama())
    rows = [{"prompt": "1 + 1 = ", "answer": "2"}, {"prompt": "2 + 2 = ", "answer": "hang"}]
    settings = GRPOConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=3,
        per_device_train_batch_size=4,
        num_generations=2,
        max_completion_length=8,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        logging_steps=1,
    )
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    trainer = GRPOTrainer(
        model=str(tmp_path),
        reward_funcs=[watched],
        args=settings,
        train_dataset=Dataset.from_list(rows * 6),
        processing_class=tokenizer,
    )
    trainer.train()
    assert trainer.state.global_step == 3
    assert len(seen) == 3
    pairs = [pair for answers, rewards in seen for pair in zip(answers, rewards, strict=True)]
    assert {answer for answer, _ in pairs} == {"2", "hang"}
    assert all((value is None) == (answer == "hang") for answer, value in pairs)
