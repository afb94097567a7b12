"""Does every algorithm learn? Each from the base of `tiny-cpu`, held-out pass@1 step by step; and TRL's GRPO beside.

    python tests/bench/bench_learning.py [--steps 50] [--every 10] [--held-out 500] [--only grpo dapo …] [--trl FOLDER]

Everything but what a variant names is the recipe's: model, prompts, sampling, learning rate, group size. A variant that
has not reached `--bar` by `--steps` goes on to twice as many. `--trl` names a folder into which
`pip install --no-deps --target FOLDER trl` went: its GRPOTrainer then starts from the same base, with the same prompts,
rewards, learning rate (constant), loss and sampling, and generates with transformers, its only working way on a CPU.
Seconds are those of the steps, evaluations and start-up apart, and mean something only on an idle machine; pass@1 is
sampled at temperature 1 from the same held-out sums by the same engine. Runs are kept in `--out` and not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import yaml

RECIPE = "tiny-cpu"
OFF_POLICY = {"minibatches": 4}  # where the clip is the point, it has to bind
VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "grpo, 4 minibatches": {**OFF_POLICY},
    "grpo, KL k3 in the loss": {"beta": 0.01},
    "grpo, KL k1 in the reward": {"beta": 0.01, "kl": "k1", "kl_in": "reward"},
    "grpo, std of the batch": {"std": "batch"},
    "drgrpo": {"std": "none", "aggregation": "constant"},
    "dapo": {**OFF_POLICY, "aggregation": "token", "clip_high": 0.28, "dynamic_sampling": True},
    "gspo": {**OFF_POLICY, "loss": "gspo"},
    "cispo": {**OFF_POLICY, "loss": "cispo", "aggregation": "token"},
    "rloo": {"loss": "reinforce", "advantage": "rloo"},
    "reinforce, group baseline": {"loss": "reinforce", "advantage": "group_baseline"},
    "reinforce, batch baseline": {"loss": "reinforce", "advantage": "batch_baseline"},
    "reinforce++": {"advantage": "reinforce_pp", "beta": 0.01, "kl": "k1", "kl_in": "reward"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--held-out", type=int, default=500)
    parser.add_argument("--bar", type=float, default=0.85)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="0: every core")
    parser.add_argument("--only", nargs="*", choices=VARIANTS, metavar="VARIANT", help=", ".join(VARIANTS))
    parser.add_argument("--trl", help="folder that holds TRL")
    parser.add_argument("--out", default=str(Path(tempfile.gettempdir()) / "r1zero-learning"))
    parser.add_argument("--trl-side", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.trl_side:
        warnings.simplefilter("ignore")
        trl(args, Path(args.trl_side))
        return
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    curves: dict[str, list[dict[str, float]]] = {}
    for name in VARIANTS if args.only is None else args.only:
        curves[name] = curve(run(args, out, name, args.steps))
        if max(point["pass"] for point in curves[name]) < args.bar:
            curves[name] = curve(run(args, out, name, 2 * args.steps))
        show(name, curves[name], args.bar)
    if args.trl:
        path = out / "trl.jsonl"
        if not path.exists():
            environment = {**os.environ, "PYTHONPATH": args.trl}
            subprocess.run(
                [sys.executable, __file__, "--trl-side", str(path), *sys.argv[1:]], env=environment, check=True
            )
        curves["trl's grpo"] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        show("trl's grpo", curves["trl's grpo"], args.bar)
    print()
    table(curves, args.bar)


def run(args: argparse.Namespace, out: Path, name: str, steps: int) -> Path:
    """The run folder of a variant, trained to `steps` if it is not yet."""
    folder = name.replace(" ", "-").replace(",", "").replace("+", "p")
    recipe = out / f"{folder}.yaml"
    settings = {
        "extends": RECIPE,
        "algorithm": VARIANTS[name],
        "eval": {"every": args.every, "data": {"size": args.held_out}},
        "run": {
            "root": str(out),
            "steps": steps,
            "seed": args.seed,
            "threads": args.threads,
            "save_rollouts": False,
            "checkpoint_every": 2 * args.steps,
        },
    }
    recipe.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "r1zero", "train", str(recipe), "--resume-or-start"]
    with (out / f"{folder}.log").open("a", encoding="utf-8") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    return out / folder


def curve(folder: Path) -> list[dict[str, float]]:
    """Points `{step, samples, seconds, pass, low, high}` of a run, seconds those of the steps alone."""
    points, samples, seconds = [], 0.0, 0.0
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        group_size = 16
        samples += row.get("group/sampled", 0.0) * group_size
        seconds += row.get("time/step", 0.0)
        if "eval/pass@1" in row:
            points.append(
                {
                    "step": row["step"],
                    "samples": samples,
                    "seconds": seconds,
                    "pass": row["eval/pass@1"],
                    "low": row["eval/ci95_low"],
                    "high": row["eval/ci95_high"],
                }
            )
    return points


def show(name: str, points: list[dict[str, float]], bar: float) -> None:
    print(f"{name}: {reached(points, bar)}", flush=True)


def reached(points: list[dict[str, float]], bar: float) -> str:
    for point in points:
        if point["pass"] >= bar:
            return f"{bar:.0%} by step {point['step']:.0f}, {point['samples']:,.0f} samples, {point['seconds']:.0f} s"
    return f"below {bar:.0%}; best {max(point['pass'] for point in points):.1%}"


def table(curves: dict[str, list[dict[str, float]]], bar: float) -> None:
    steps = sorted({int(point["step"]) for points in curves.values() for point in points})
    print(
        f"{'held-out pass@1, %, at step':28}" + "".join(f"{step:>7}" for step in steps) + "   samples  seconds  reached"
    )
    for name, points in curves.items():
        by_step = {int(point["step"]): point for point in points}
        cells = "".join(f"{100 * by_step[s]['pass']:7.1f}" if s in by_step else f"{'':7}" for s in steps)
        last = points[-1]
        print(f"{name:28}{cells}{last['samples']:>10,.0f}{last['seconds']:>9.0f}  {reached(points, bar)}")


def trl(args: argparse.Namespace, path: Path) -> None:
    """TRL's GRPOTrainer under the recipe's settings; writes its points to `path`."""
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback

    sys.path.append(str(Path(__file__).resolve().parents[2]))
    from trl import GRPOConfig, GRPOTrainer

    from r1zero import models, prompts
    from r1zero.config import EngineConfig, recipe
    from r1zero.config import GRPOConfig as OurConfig
    from r1zero.data import datasets
    from r1zero.eval.harness import evaluate
    from r1zero.models.policy import load_model, load_tokenizer
    from r1zero.rollout import make_engine
    from r1zero.rollout.base import Sampling
    from r1zero.verifiers.registry import Sample, VerifierSpec, resolve
    from r1zero.verifiers.running.pool import VerifierPool

    config = recipe.load(RECIPE, ["--eval.data.size", str(args.held_out)])
    assert isinstance(config, OurConfig)
    torch.set_num_threads(args.threads or os.cpu_count() or 1)
    model_path = models.resolve(config.model.path)
    tokenizer = load_tokenizer(model_path)
    tokenizer.padding_side = "left"
    template = prompts.load(config.template)
    model = load_model(model_path, config.model)
    problems = {template.render(p.prompt, tokenizer): p for p in datasets.load_problems(config.data)}
    held_out = datasets.load_problems(config.eval.data)
    specs = [VerifierSpec(name=t.verifier, options=t.options) for t in config.reward.terms]
    verifiers = [resolve(spec) for spec in specs]

    def reward(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        values = []
        for prompt, text, ids in zip(prompts, completions, completion_ids, strict=True):
            cut = len(ids) >= config.sampling.max_tokens and ids[-1] != tokenizer.eos_token_id
            problem = problems[prompt]
            sample = Sample(
                completion=text,
                answer=problem.answer,
                problem=problem,
                prompt=prompt,
                finish_reason="length" if cut else "stop",
                num_tokens=len(ids),
            )
            scores = [v(sample, spec.options).score or 0.0 for v, spec in zip(verifiers, specs, strict=True)]
            values.append(sum(t.weight * s for t, s in zip(config.reward.terms, scores, strict=True)))
        return values

    seconds, last = 0.0, 0.0
    with VerifierPool(1) as pool, tempfile.TemporaryDirectory() as folder, path.open("w", encoding="utf-8") as points:

        def measure(step: int) -> None:
            model.eval()
            engine = make_engine(
                EngineConfig(name="transformers", max_sequences=512),
                str(model_path),
                compute_dtype=torch.float32,
                max_context=256,
                model=model,
                tokenizer=tokenizer,
            )
            result = evaluate(
                held_out,
                engine=engine,
                tokenizer=tokenizer,
                template=template,
                sampling=Sampling(max_tokens=config.sampling.max_tokens, temperature=1.0),
                k=1,
                pool=pool,
                verifier=specs[0],
                seed=config.eval.seed,
            )
            model.train()
            samples = step * config.algorithm.group_size * config.algorithm.prompts_per_step
            low, high = result.ci95
            point = {
                "step": step,
                "samples": samples,
                "seconds": seconds,
                "pass": result.pass_at_1,
                "low": low,
                "high": high,
            }
            print(json.dumps(point), file=points, flush=True)

        class Clock(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                nonlocal last
                last = time.perf_counter()

            def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
                nonlocal seconds
                seconds += time.perf_counter() - last
                if state.global_step % args.every == 0:
                    measure(state.global_step)

        rows = config.algorithm.group_size * config.algorithm.prompts_per_step
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                beta=0.0,
                loss_type="grpo",
                scale_rewards="group",
                learning_rate=config.optimizer.lr,
                lr_scheduler_type="constant",
                max_grad_norm=config.optimizer.max_grad_norm,
                per_device_train_batch_size=rows,
                num_generations=config.algorithm.group_size,
                max_completion_length=config.sampling.max_tokens,
                temperature=1.0,
                max_steps=args.steps,
                gradient_checkpointing=False,
                report_to=[],
                save_strategy="no",
                disable_tqdm=True,
                logging_strategy="no",
                seed=args.seed,
            ),
            train_dataset=Dataset.from_list([{"prompt": text} for text in problems]),
            processing_class=tokenizer,
            callbacks=[Clock()],
        )
        measure(0)
        trainer.train()


if __name__ == "__main__":
    main()
