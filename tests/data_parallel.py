"""One GRPO update on as many processes as torchrun started; rank 0 saves the gradient and the metrics.

python -m torch.distributed.run --nproc_per_node 2 -m tests.data_parallel OUT.pt [--section.key value ...]
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator

from r1zero import datasets, prompts, recipe
from r1zero.config import DataConfig
from r1zero.policy import Policy
from r1zero.rewards import Rewarder
from r1zero.rollout.scripted import ScriptedEngine
from r1zero.train.grpo import GRPO
from r1zero.verifiers import VerifierPool
from tests.tiny_models import char_tokenizer, tiny_llama

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


def main(out: str, overrides: list[str]) -> None:
    config = recipe.load(
        "tiny-cpu",
        [
            *("--algorithm.prompts_per_step", "8", "--algorithm.group_size", "4"),
            *("--optimizer.max_grad_norm", "0", "--optimizer.micro_batch_tokens", "80"),
            *overrides,
        ],
    )
    accelerator = Accelerator(cpu=True)
    tokenizer = char_tokenizer()
    with VerifierPool(1) as pool:
        grpo = GRPO(
            config,
            accelerator=accelerator,
            policy=Policy(tiny_llama()),
            reference=Policy(tiny_llama(seed=1)) if config.algorithm.beta > 0 else None,
            tokenizer=tokenizer,
            template=prompts.load("plain"),
            problems=PROBLEMS,
            engine=ScriptedEngine(script, tokenizer),
            rewarder=Rewarder(config.reward, pool),
        )
        gradients: list[torch.Tensor] = []
        step = grpo.optimizer.step

        def keep(*arguments: Any, **options: Any) -> Any:
            gradients.append(torch.cat([p.grad.flatten() for p in grpo.model.parameters() if p.grad is not None]))
            return step(*arguments, **options)

        grpo.optimizer.step = keep  # type: ignore[method-assign]
        metrics, _, _ = grpo.step(1)
    if accelerator.is_main_process:
        kept = {k: v for k, v in metrics.items() if k.startswith(("policy/", "optimizer/"))}
        torch.save({"gradients": gradients, "metrics": kept, "processes": accelerator.num_processes}, out)
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
