"""A GRPO step beside TRL's: the same model, prompts, completions and rewards; time and peak memory.

    python tests/bench/bench_step.py [--trl FOLDER] [--whole] [--prompts 4] [--n 8] [--tokens 64] [--steps 2]

Each side runs in its own process. The completions are given (random tokens, the same on both sides), so that what is
measured is everything after the rollout: reference and policy log-probabilities, loss, backward pass, optimizer. With
`--whole` each side samples for itself (ours with vLLM, TRL with its own generation), every completion to the last
token. TRL is no dependency: `--trl` names a folder into which `pip install --no-deps --target FOLDER trl` went; without
it our side alone is measured. The first step warms up; figures are means over the others. `cpu s` is processor time
over all threads (with OMP_NUM_THREADS=1 the figure to read on a busy machine); peak memory is the process's highest
resident size, in which Python and its libraries are 0.7 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

MODEL = "smollm2:135m-instruct"
BETA, LR = 0.04, 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", help="folder that holds TRL")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--micro-batch-tokens", type=int, default=2048, help="ours")
    parser.add_argument(
        "--trl-rows", type=int, default=0, help="TRL's per_device_train_batch_size; 0: all rows at once"
    )
    parser.add_argument("--sides", nargs="*", default=["ours bfloat16", "ours float32", "trl float32"])
    parser.add_argument("--side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        warnings.simplefilter("ignore")
        name, dtype = args.side.split()
        print("RESULT " + json.dumps((ours if name == "ours" else trl)(args, dtype)), flush=True)
        return
    what = "whole step" if args.whole else "step after the rollout"
    print(f"{what}: {MODEL}, {args.prompts} prompts x {args.n} completions x {args.tokens} tokens, beta {BETA}")
    print(f"{'':16}{'seconds':>9}{'cpu s':>8}{'peak GB':>9}   of it")
    for side in args.sides:
        if side.startswith("trl") and not args.trl:
            print(f"{side:16} skipped: --trl FOLDER says where TRL is")
            continue
        environment = dict(os.environ)
        if side.startswith("trl"):
            environment["PYTHONPATH"] = args.trl
        command = [sys.executable, __file__, "--side", side, *sys.argv[1:]]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        if not found:
            print(f"{side:16} failed:\n{done.stderr[-2000:]}")
            continue
        result = json.loads(found[0].removeprefix("RESULT "))
        split = ", ".join(f"{k} {v:.2f}" for k, v in result["split"].items())
        print(f"{side:16}{result['wall']:9.2f}{result['cpu']:8.2f}{result['peak_gb']:9.2f}   {split}", flush=True)


def questions(count: int) -> list[str]:
    return [f"What is {137 + 31 * i} + {48 + 7 * i}? Think step by step." for i in range(count)]


def completion_ids(prompt: int, sample: int, tokens: int) -> list[int]:
    draw = random.Random(f"{prompt}/{sample}")
    return [draw.randrange(100, 40_000) for _ in range(tokens)]


def reward_of(sample: int, prompt: int) -> float:
    return float((sample + prompt) % 3 == 0)


def ours(args: argparse.Namespace, dtype: str) -> dict[str, Any]:
    import torch
    from accelerate import Accelerator

    from r1zero import models, prompts
    from r1zero.algorithms.rewards import Reward
    from r1zero.config import AlgorithmConfig, EngineConfig, GRPOConfig, ModelConfig, OptimizerConfig, SamplingConfig
    from r1zero.data.records import Completion, Problem
    from r1zero.models.policy import Policy, Row, load_model, load_tokenizer
    from r1zero.rollout.base import OnCompletion, Sampling
    from r1zero.training.grpo import GRPO

    path = models.resolve(MODEL)
    tokenizer = load_tokenizer(path)
    config = GRPOConfig(
        model=ModelConfig(path=str(path), dtype=dtype),  # type: ignore[arg-type]
        sampling=SamplingConfig(max_tokens=args.tokens),
        algorithm=AlgorithmConfig(group_size=args.n, prompts_per_step=args.prompts, beta=BETA),
        optimizer=OptimizerConfig(lr=LR, micro_batch_tokens=args.micro_batch_tokens),
    )

    class Given:
        """An engine that samples nothing; its log-probabilities are the policy's, or the run would look into why."""

        name = "given"
        logprobs: dict[tuple[int, int], tuple[float, ...]] = {}  # noqa: RUF012

        def generate(
            self,
            prompts: Sequence[Sequence[int]],
            sampling: Sampling,
            n: int,
            on_completion: OnCompletion | None = None,
        ) -> list[tuple[Completion, ...]]:
            groups = []
            for i in range(len(prompts)):
                group = []
                for j in range(n):
                    ids = tuple(completion_ids(i, j, sampling.max_tokens))
                    done = Completion(token_ids=ids, text="", logprobs=self.logprobs[i, j], finish_reason="length")
                    group.append(done)
                    if on_completion is not None:
                        on_completion(i, j, done)
                groups.append(tuple(group))
            return groups

        def sync_weights(self, model: Any) -> None: ...
        def sleep(self) -> None: ...
        def wake(self) -> None: ...

    class Rewards:
        def submit(self, problem: Problem, prompt: str, completion: Completion, prefill: str = "") -> int:
            return int(problem.id)

        def collect(self, pending: Sequence[int]) -> list[Reward]:
            values = [reward_of(k % args.n, i) for k, i in enumerate(pending)]
            return [Reward(value=v, keep=True, parts={}, correct=v > 0) for v in values]

    problems = [Problem(id=str(i), prompt=text) for i, text in enumerate(questions(args.prompts))]
    template = prompts.load("chat")
    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if dtype == "bfloat16" else "no")
    engine: Any = Given()
    if args.whole:
        from r1zero.rollout import make_engine

        context = max(len(template.encode(p.prompt, tokenizer)) for p in problems) + args.tokens
        engine = make_engine(
            EngineConfig(name="vllm", max_sequences=args.prompts * args.n),
            str(path),
            compute_dtype=getattr(torch, dtype),
            max_context=context,
            model=None,
            tokenizer=tokenizer,
        )
        generate = engine.generate
        engine.generate = lambda prompts, sampling, n, on_completion: generate(
            prompts, replace(sampling, stop_token_ids=()), n, on_completion
        )
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    model = load_model(path, config.model)
    grpo = GRPO(
        config,
        accelerator=accelerator,
        policy=Policy(model, trained=True),
        reference=Policy(load_model(path, config.model)),
        tokenizer=tokenizer,
        template=template,
        problems=problems,
        engine=engine,
        rewarder=Rewards(),  # type: ignore[arg-type]
    )

    def engine_logprobs() -> dict[tuple[int, int], tuple[float, ...]]:
        """What an engine in step with the policy reports."""
        encoded = [template.encode(p.prompt, tokenizer) for p in problems]
        keys = [(i, j) for i in range(args.prompts) for j in range(args.n)]
        rows = [
            Row(prompt_ids=tuple(encoded[i]), completion_ids=tuple(completion_ids(i, j, args.tokens))) for i, j in keys
        ]
        found = grpo._logprobs(grpo.model, rows, torch.ones(len(rows), args.tokens, dtype=torch.bool))
        return {key: tuple(row) for key, row in zip(keys, found.tolist(), strict=True)}

    seconds: list[tuple[float, float]] = []
    splits: list[dict[str, float]] = []
    for step in range(1, args.steps + 1):
        if not args.whole:
            engine.logprobs = engine_logprobs()
        wall, cpu = time.perf_counter(), time.process_time()
        metrics, _, _ = grpo.step(step)
        seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
        splits.append(dict(grpo.seconds))
        print({k: round(v, 4) for k, v in metrics.items()}, file=sys.stderr)
    later = splits[1:] or splits
    split = {k: sum(s[k] for s in later) / len(later) for k in splits[-1] if k != "step"}
    return summary(seconds, split)


def trl(args: argparse.Namespace, dtype: str) -> dict[str, Any]:
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from trl import GRPOConfig, GRPOTrainer

    from r1zero import models

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    path = models.resolve(MODEL)
    tokenizer = AutoTokenizer.from_pretrained(path)
    texts = questions(args.prompts)
    rows = args.prompts * args.n
    index = {text: i for i, text in enumerate(texts)}

    def given(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        ids, completions, seen = [], [], dict.fromkeys(range(args.prompts), 0)
        for prompt in prompts:
            i = index[prompt[0]["content"]]
            text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
            ids.append(tokenizer(text, add_special_tokens=False)["input_ids"])
            completions.append(completion_ids(i, seen[i], args.tokens))
            seen[i] += 1
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [reward_of(k % args.n, k // args.n) for k in range(len(completions))]

    seconds: list[tuple[float, float]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.perf_counter(), time.process_time()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds.append((time.perf_counter() - self.began[0], time.process_time() - self.began[1]))

    with tempfile.TemporaryDirectory() as folder:
        size = args.trl_rows or rows
        config = GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=dtype == "bfloat16",
            beta=BETA,
            learning_rate=LR,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=rows // size,
            num_generations=args.n,
            max_completion_length=args.tokens,
            generation_kwargs={"min_new_tokens": args.tokens},
            max_steps=args.steps,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_steps=1,
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": text}]} for text in texts]),
            processing_class=tokenizer,
            callbacks=[Clock()],
            rollout_func=None if args.whole else given,
        )
        trainer.train()
    return summary(seconds, {})


def summary(seconds: list[tuple[float, float]], split: dict[str, float]) -> dict[str, Any]:
    later = seconds[1:] or seconds
    wall, cpu = (sum(s[k] for s in later) / len(later) for k in (0, 1))
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {"wall": wall, "cpu": cpu, "peak_gb": peak * 1024 / 1e9, "split": split}


if __name__ == "__main__":
    main()
