"""A step of GRPO or PPO of each case on as many processes as torchrun started; each saves its gradients and metrics.
Then two whole runs of GRPO, of which one is resumed in its middle.

python -m torch.distributed.run --nproc_per_node 2 -m tests.data_parallel OUT
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from r1zero import prompts
from r1zero.algorithms.rewards import Rewarder
from r1zero.config import DataConfig, GRPOConfig, PPOConfig, recipe
from r1zero.data import datasets
from r1zero.models.policy import Policy, Row
from r1zero.models.value_model import ValueModel
from r1zero.pipelines import stages
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.training.grpo import GRPO, train_grpo
from r1zero.training.ppo import PPO
from r1zero.verifiers import VerifierPool
from tests.tiny_models import char_tokenizer, save_model, tiny_llama

PROBLEMS = datasets.load_problems(DataConfig(source="tiny:arithmetic", size=64))
ANSWERS = {problem.prompt: problem.answer for problem in PROBLEMS}


def script(prompt: Sequence[int], i: int, j: int) -> str:
    """By the prompt's text, so that it does not matter which process asks; some groups are flat, some have a right
    answer."""
    key = sum(prompt)
    if key % 3 == 1:
        return "same"
    said = ANSWERS[char_tokenizer().decode(list(prompt))] if key % 3 == 2 and j == 0 else "no"
    return f"<think>{'x' * (key % 7 + 3 * j)}</think><answer>{said}</answer>" if j < 2 else "y" * (1 + key % 5)


CASES: dict[str, tuple[str, ...]] = {
    "group": ("--algorithm.beta", "0.05", "--algorithm.std", "batch"),
    # The processes end with different numbers of groups.
    "uneven": ("--algorithm.dynamic_sampling", "true", "--algorithm.max_refills", "0"),
    "truncated": ("--algorithm.drop_truncated", "true", "--sampling.max_tokens", "40", "--algorithm.loss", "gspo"),
    "ppo": ("--algorithm.minibatches", "1", "--algorithm.epochs", "1"),
    "reinforce++": (
        *("--algorithm.advantage", "reinforce_pp", "--algorithm.beta", "0.05", "--algorithm.kl", "k1"),
        *("--algorithm.kl_in", "reward", "--algorithm.loss", "reinforce", "--algorithm.aggregation", "token"),
    ),
}


def lengths(rows: Sequence[Row]) -> list[float]:
    return [len(row.completion_ids) / 10 for row in rows]


def one_step(case: str, accelerator: Accelerator, pool: VerifierPool) -> dict[str, Any]:
    config = recipe.load(
        "ppo-tiny-cpu" if case == "ppo" else "tiny-cpu",
        [
            *("--algorithm.prompts_per_step", "8", "--algorithm.group_size", "4"),
            *("--optimizer.max_grad_norm", "0", "--optimizer.micro_batch_tokens", "80"),
            *CASES[case],
        ],
    )
    tokenizer = char_tokenizer()
    assert isinstance(config, GRPOConfig | PPOConfig)
    parts: dict[str, Any] = {
        "accelerator": accelerator,
        "policy": Policy(tiny_llama()),
        "reference": Policy(tiny_llama(seed=1)) if config.algorithm.beta > 0 else None,
        "tokenizer": tokenizer,
        "template": prompts.load("plain"),
        "problems": PROBLEMS,
        "engine": ScriptedEngine(script, tokenizer),
        "rewarder": Rewarder(config.reward, pool),
    }
    grpo: GRPO | PPO
    if isinstance(config, PPOConfig):
        torch.manual_seed(0)
        value = ValueModel(tiny_llama(seed=2).base_model, torch.nn.Linear(96, 1))
        grpo = PPO(config, value=value, scorers={"reward_model": lengths}, **parts)
    else:
        grpo = GRPO(config, **parts)
    gradients: list[torch.Tensor] = []
    step = grpo.optimizer.step

    def keep(*arguments: Any, **options: Any) -> Any:
        gradients.append(torch.cat([p.grad.flatten() for p in grpo.model.parameters() if p.grad is not None]))
        return step(*arguments, **options)

    grpo.optimizer.step = keep
    metrics, _, _ = grpo.step(1)
    kept = {k: v for k, v in metrics.items() if not k.startswith("time/") and not k.endswith("/seconds")}
    return {"gradients": gradients, "metrics": kept, "causes": [cause.name for cause in grpo.causes]}


def runs(root: Path, accelerator: Accelerator) -> None:
    """`root/whole` and `root/resumed`: the same four steps."""
    if accelerator.is_main_process:
        (root / "model").mkdir(parents=True)
        save_model(root / "model", tiny_llama())
    accelerator.wait_for_everyone()
    for name, steps, resume in (("whole", 4, False), ("resumed", 2, False), ("resumed", 4, True)):
        config = recipe.load(
            "tiny-cpu",
            [
                *("--algorithm.prompts_per_step", "4", "--algorithm.group_size", "4", "--algorithm.beta", "0.05"),
                *("--model.path", str(root / "model"), "--run.root", str(root), "--run.name", name),
                *("--engine.name", "transformers", "--sampling.max_tokens", "12", "--run.trackers", "[]"),
                *("--eval.data.size", "4", "--eval.every", "2", "--reward.workers", "1", "--run.threads", "1"),
                *("--reward.terms", '[{verifier: "tests.some_verifiers:short"}]', "--run.checkpoint_every", "2"),
                *("--run.steps", str(steps)),
            ],
        )
        assert isinstance(config, GRPOConfig)
        train_grpo(config, resume=resume)


EPOCH_STAGES = {
    "sft-tiny-cpu": ("--sampling.max_tokens", "8", "--eval.data.size", "4", "--engine.name", "transformers"),
    "dpo-tiny-cpu": ("--eval.data.source", "", "--nll_weight", "0.1"),
    "kto": ("--eval.data.source", "", "--loss", "kto"),
    "rm-tiny-cpu": ("--data.generated_responses", "3"),
}


def epoch_runs(root: Path, accelerator: Accelerator) -> None:
    """A run of each stage over fixed rows: 19 of them, 6 a step, so that the last step has a row for one process."""
    if accelerator.is_main_process:
        (root / "model").mkdir(parents=True)
        save_model(root / "model", tiny_llama())
    accelerator.wait_for_everyone()
    for name, more in EPOCH_STAGES.items():
        config = recipe.load(
            "dpo-tiny-cpu" if name == "kto" else name,
            [
                *("--model.path", str(root / "model"), "--run.root", str(root), "--run.name", name),
                *("--data.size", "19", "--held_out.size", "8", "--batch_size", "6", "--epochs", "3"),
                *("--run.trackers", "[]", "--run.threads", "1", "--optimizer.micro_batch_tokens", "200"),
                *more,
            ],
        )
        stages.run(config, resume=False)


def main(out: str) -> None:
    accelerator = Accelerator(cpu=True)
    epoch_runs(Path(f"{out}.epochs-of-{accelerator.num_processes}"), accelerator)
    with VerifierPool(1) as pool:
        found = {case: one_step(case, accelerator, pool) for case in CASES}
    torch.save(found, f"{out}.{accelerator.process_index}-of-{accelerator.num_processes}")
    if accelerator.num_processes > 1:
        runs(Path(f"{out}.runs"), accelerator)
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
