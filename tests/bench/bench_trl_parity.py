"""Our losses against TRL's, on the same model, tokens, advantages and old log-probabilities.

    python tests/bench/bench_trl_parity.py

TRL is no dependency: without it this says so and stops. For every loss both libraries have, TRL's own
`GRPOTrainer._compute_loss` and ours (head and all) run on one small Llama in float32; printed are both losses, the
largest difference of a parameter's gradient as a share of the gradient's norm, and whether both agree to 1e-4.
TRL's settings are translated: `delta` is our `dual_clip`, its CISPO bound is 1 + our `clip_high`, its `num_items` our
`num_tokens`. Group advantages differ by definition (TRL: ddof 1, eps 1e-4; ours: ddof 0, eps 1e-6) and are given here.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from r1zero.algorithms import losses
from r1zero.models.policy import MicroBatch, Policy, Row, micro_batches

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.tiny_models import char_tokenizer, tiny_llama

MAX_TOKENS = 16
TEMPERATURE = 0.8
BETA = 0.04


@dataclass(frozen=True)
class Case:
    """One loss in both libraries' words."""

    name: str
    trl: dict[str, Any]
    function: Any
    options: dict[str, Any]
    beta: float = 0.0
    corrected: bool = False
    weights: bool = False
    aggregation: str = field(default="sequence")


BOUNDS = {"clip_low": 0.2, "clip_high": 0.28}
TRL_BOUNDS = {"epsilon": 0.2, "epsilon_high": 0.28}
SEQUENCE = {"importance_sampling_level": "sequence", "epsilon": 0.02, "epsilon_high": 0.03}
PPO, GSPO, CISPO = losses.clipped_policy_loss, losses.gspo_loss, losses.cispo_loss
CASES = [
    Case("grpo", {"loss_type": "grpo", **TRL_BOUNDS}, PPO, BOUNDS),
    Case("grpo + k3", {"loss_type": "grpo", **TRL_BOUNDS}, PPO, BOUNDS, beta=BETA),
    Case(
        "grpo + corrected k3",
        {"loss_type": "grpo", **TRL_BOUNDS},
        PPO,
        BOUNDS,
        beta=BETA,
        corrected=True,
    ),
    Case("grpo, dual clip", {"loss_type": "grpo", "delta": 1.5, **TRL_BOUNDS}, PPO, {**BOUNDS, "dual_clip": 1.5}),
    Case("dapo", {"loss_type": "dapo", **TRL_BOUNDS}, PPO, BOUNDS, aggregation="token"),
    Case(
        "dapo, weighted + k3",
        {"loss_type": "dapo", **TRL_BOUNDS},
        PPO,
        BOUNDS,
        beta=BETA,
        weights=True,
        aggregation="token",
    ),
    Case("bnpo (one batch)", {"loss_type": "bnpo", **TRL_BOUNDS}, PPO, BOUNDS, aggregation="token"),
    Case("dr_grpo", {"loss_type": "dr_grpo", **TRL_BOUNDS}, PPO, BOUNDS, aggregation="constant"),
    Case("gspo", {"loss_type": "grpo", **SEQUENCE}, GSPO, {"clip_low": 0.02, "clip_high": 0.03}),
    Case("cispo", {"loss_type": "cispo", "epsilon_high": 1.2}, CISPO, {"clip_high": 0.2}, aggregation="token"),
]


def main() -> int:
    try:
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        print(f"skipped: TRL is not installed here ({error}); pip install trl in an environment of its own")
        return 0
    import trl
    from datasets import Dataset

    warnings.simplefilter("ignore")
    print(f"TRL {trl.__version__}, torch {torch.__version__}, float32, temperature {TEMPERATURE}")
    print(f"{'loss':22} {'TRL':>12} {'ours':>12} {'gradient difference':>20}  agree")
    disagree = 0
    for case in CASES:
        model = tiny_llama().float()
        step = make_step(model, case)
        with tempfile.TemporaryDirectory() as folder:
            trainer = GRPOTrainer(
                model=model,
                reward_funcs=lambda completions, **_: [0.0 for _ in completions],
                args=GRPOConfig(
                    output_dir=folder,
                    use_cpu=True,
                    bf16=False,
                    report_to=[],
                    temperature=TEMPERATURE,
                    max_completion_length=MAX_TOKENS,
                    per_device_train_batch_size=len(step["rows"]),
                    num_generations=len(step["rows"]),
                    gradient_checkpointing=False,
                    **case.trl,
                ),
                train_dataset=Dataset.from_list([{"prompt": "1+1="}]),
                processing_class=char_tokenizer(),
            )
            theirs = trl_loss(trainer, step, case)
        theirs_grads = gradients(model, theirs)
        ours = our_loss(model, step, case)
        ours_grads = gradients(model, ours)
        norm = torch.cat([g.flatten() for g in theirs_grads]).norm()
        difference = max(float((a - b).abs().max() / norm) for a, b in zip(ours_grads, theirs_grads, strict=True))
        agree = difference < 1e-4 and abs(ours.item() - theirs.item()) < 1e-4 * max(1.0, abs(theirs.item()))
        disagree += not agree
        print(
            f"{case.name:22} {theirs.item():12.7f} {ours.item():12.7f} {difference:20.1e}  {'yes' if agree else 'NO'}"
        )
    print("all agree" if not disagree else f"{disagree} of {len(CASES)} disagree")
    return int(disagree > 0)


def make_step(model: Any, case: Case) -> dict[str, Any]:
    """Eight completions of 1 to 16 tokens after prompts of 3 to 7, off-policy enough that every bound binds."""
    make = torch.Generator().manual_seed(1)
    rows = []
    for i, length in enumerate([1, 16, 5, 9, 2, 12, 7, 16]):
        prompt = torch.randint(4, 60, (3 + i % 5,), generator=make).tolist()
        completion = torch.randint(4, 60, (length,), generator=make).tolist()
        rows.append(Row(prompt_ids=tuple(prompt), completion_ids=tuple(completion)))
    micro = micro_batches(rows, 10_000)[0]
    with torch.no_grad():
        logprobs, _ = Policy(model)(micro, temperature=TEMPERATURE)
    noise = 0.03 if case.function is GSPO else 0.4
    return {
        "rows": rows,
        "micro": micro,
        "old": logprobs + noise * torch.randn(logprobs.shape, generator=make),
        "ref": logprobs + 0.5 * torch.randn(logprobs.shape, generator=make),
        "weights": 2 * torch.rand(logprobs.shape, generator=make),
        "advantages": torch.randn(len(rows), generator=make),
    }


def trl_loss(trainer: Any, step: dict[str, Any], case: Case) -> torch.Tensor:
    """TRL's loss of the step: left-padded prompts, right-padded completions, in the order of the micro-batch."""
    micro: MicroBatch = step["micro"]
    rows = [step["rows"][i] for i in micro.indices]
    longest = max(len(row.prompt_ids) for row in rows)
    prompts = [[0] * (longest - len(row.prompt_ids)) + list(row.prompt_ids) for row in rows]
    prompt_mask = [[0] * (longest - len(row.prompt_ids)) + [1] * len(row.prompt_ids) for row in rows]
    width = micro.mask.shape[1]
    completions = [list(row.completion_ids) + [0] * (width - len(row.completion_ids)) for row in rows]
    trainer.current_gradient_accumulation_steps = 1
    trainer.args.use_bias_correction_kl = case.corrected
    trainer.beta = case.beta  # set here, as the trainer would look for a reference model that it does not need
    if case.weights:
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    loss: torch.Tensor = trainer._compute_loss(
        trainer.model.train(),
        {
            "prompt_ids": torch.tensor(prompts),
            "prompt_mask": torch.tensor(prompt_mask),
            "completion_ids": torch.tensor(completions),
            "completion_mask": micro.mask.long(),
            "advantages": step["advantages"],
            "old_per_token_logps": step["old"],
            "ref_per_token_logps": step["ref"],
            "importance_sampling_ratio": step["weights"],
            "num_items_in_batch": micro.mask.sum(),
        },
    )
    return loss


def our_loss(model: Any, step: dict[str, Any], case: Case) -> torch.Tensor:
    micro: MicroBatch = step["micro"]
    logprobs, _ = Policy(model)(micro, temperature=TEMPERATURE)
    totals = losses.StepTotals.of(micro.mask, max_tokens=MAX_TOKENS)
    loss: torch.Tensor
    loss, _ = case.function(
        logprobs,
        step["old"],
        step["advantages"],
        micro.mask,
        totals,
        weights=step["weights"] if case.weights else None,
        aggregation=case.aggregation,
        **case.options,
    )
    if case.beta:
        kl, _ = losses.kl_loss(
            logprobs,
            step["ref"],
            micro.mask,
            totals,
            beta=case.beta,
            old_logprobs=step["old"] if case.corrected else None,
            aggregation=case.aggregation,  # type: ignore[arg-type]
        )
        loss = loss + kl
    return loss


def gradients(model: Any, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad]))


if __name__ == "__main__":
    raise SystemExit(main())
