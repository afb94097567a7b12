"""Our losses of DPO and its relatives, and of the reward model, against TRL's, on the same model and tokens.

    python tests/bench/bench_trl_preferences.py

TRL is no dependency: without it this says so and stops. For every loss both libraries have, TRL's own trainer and our
stage (head, micro-batches and all) run on one small Llama in float32; printed are both losses, the largest difference
of a parameter's gradient as a share of the gradient's norm, and whether both agree to 1e-4. Where the two libraries
mean other things by one name, our setting is the one that gives TRL's value, and the last column says what differs.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import AutoModelForCausalLM

from r1zero.algorithms.losses import StepTotals
from r1zero.algorithms.preference_losses import dpo_loss, nll_loss
from r1zero.config import DPOConfig, RewardModelConfig, recipe
from r1zero.data.preferences import Ranking
from r1zero.models.policy import Policy, Row
from r1zero.models.reward_model import RewardModel, load_reward_model
from r1zero.training.dpo import DPO, Unit
from r1zero.training.reward_model import RewardModelStage

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.tiny_models import PAD, char_tokenizer, save_model, tiny_llama

BETA = 0.3
Config = TypeVar("Config", DPOConfig, RewardModelConfig)


@dataclass(frozen=True)
class Case:
    """One loss in both libraries' words."""

    name: str
    theirs: Callable[[], tuple[Tensor, Any]]
    """TRL's loss, and the model it is of."""
    ours: Callable[[], tuple[Tensor, Any]]
    note: str = field(default="")


def main() -> int:
    try:
        import trl
    except ImportError as error:
        print(f"skipped: TRL is not installed here ({error}); pip install trl in an environment of its own")
        return 0
    warnings.simplefilter("ignore")
    print(f"TRL {trl.__version__}, torch {torch.__version__}, float32, beta {BETA}")
    print(f"{'loss':30} {'TRL':>11} {'ours':>11} {'gradient difference':>20}  agree")
    disagree = 0
    with tempfile.TemporaryDirectory() as folder:
        cases = make_cases(Path(folder))
        for case in cases:
            theirs, their_model = case.theirs()
            their_gradients = gradients(their_model, theirs)
            ours, our_model = case.ours()
            our_gradients = gradients(our_model, ours)
            norm = torch.cat([g.flatten() for g in their_gradients]).norm()
            pairs = zip(our_gradients, their_gradients, strict=True)
            difference = max(float((a - b).abs().max() / norm) for a, b in pairs)
            agree = difference < 1e-4 and abs(ours.item() - theirs.item()) < 1e-4 * max(1.0, abs(theirs.item()))
            disagree += not agree
            print(
                f"{case.name:30} {theirs.item():11.6f} {ours.item():11.6f} {difference:20.1e}  "
                f"{'yes' if agree else 'NO':5} {case.note}"
            )
    print("all agree" if not disagree else f"{disagree} of {len(cases)} disagree")
    return int(disagree > 0)


def make_cases(folder: Path) -> list[Case]:
    trl_side, units = Trl(folder), make_units()
    base = ["--beta", str(BETA)]

    def ours(*overrides: str) -> Callable[[], tuple[Tensor, Any]]:
        return lambda: our_dpo(units, [*base, *overrides])

    normalised = ("--length_normalised", "true")
    return [
        Case("dpo", lambda: trl_side.dpo(units, "sigmoid"), ours()),
        Case(
            "dpo, length-normalised",
            lambda: trl_side.dpo(units, "sigmoid_norm"),
            ours(*normalised),
            "sigmoid_norm there",
        ),
        Case(
            "cdpo, 0.2",
            lambda: trl_side.cdpo(units, 0.2),
            ours("--label_smoothing", "0.2"),
            "TRL's DPOTrainer leaves label_smoothing out of `sigmoid`: this is its CPO's, on log-ratios",
        ),
        Case(
            "robust dpo, 0.2",
            lambda: trl_side.dpo(units, "robust", label_smoothing=0.2),
            lambda: our_robust(units, 0.2),
            "(0.8 L - 0.2 L of the swapped pair) / 0.6: unbiased, not cDPO; ours from dpo_loss twice",
        ),
        Case("ipo", lambda: trl_side.dpo(units, "ipo"), ours("--loss", "ipo", *normalised), "always by length there"),
        Case("sft on the chosen", lambda: trl_side.dpo(units, "sft"), lambda: our_nll(units)),
        Case("kto", lambda: trl_side.kto(units), ours("--loss", "kto"), "KL baseline there by device and micro-batch"),
        Case(
            "kto, weights 1 and 1.33",
            lambda: trl_side.kto(units, undesirable_weight=1.33),
            ours("--loss", "kto", "--undesirable_weight", "1.33"),
        ),
        Case(
            "simpo",
            lambda: trl_side.cpo(units, loss_type="simpo", cpo_alpha=0.0, simpo_gamma=0.5),
            ours("--loss", "simpo", "--gamma", "0.5"),
            "CPOTrainer with cpo_alpha 0 (its default adds an SFT term)",
        ),
        Case(
            "orpo, odds-ratio term",
            lambda: trl_side.orpo(units, sft=False),
            lambda: our_orpo_term(units),
            "whole ORPO differs: TRL's SFT term is over the prompt too, a token mean; ours the response's, as in eq. 6",
        ),
        Case("reward", lambda: trl_side.reward(units), lambda: our_reward(folder, units)),
        Case(
            "reward, margins and centring",
            lambda: trl_side.reward(units, margin=0.7, centre=0.05),
            lambda: our_reward(folder, units, margin=0.7, centre=0.05),
        ),
    ]


def make_units() -> list[Unit]:
    """Four pairs of 1 to 16 tokens after prompts of 3 to 6, with made-up reference log-probabilities."""
    make = torch.Generator().manual_seed(1)

    def some(n: int) -> tuple[int, ...]:
        return tuple(torch.randint(4, 60, (n,), generator=make).tolist())

    units = []
    for i, (chosen, rejected) in enumerate([(1, 9), (16, 5), (7, 7), (3, 12)]):
        prompt = some(3 + i)
        rows = (
            Row(prompt_ids=prompt, completion_ids=some(chosen)),
            Row(prompt_ids=prompt, completion_ids=some(rejected)),
        )
        reference = (-4.0 * chosen - i, -4.2 * rejected)
        units.append(Unit(rows=rows, reference=reference, desirable=i % 2 == 0))
    return units


# -- ours ------------------------------------------------------------------------------------------------------------


def loaded(name: str, kind: type[Config], *overrides: str) -> Config:
    config = recipe.load(name, list(overrides))
    assert isinstance(config, kind)
    return config


def stage_of(units: list[Unit], overrides: list[str]) -> tuple[DPO, Any]:
    model = tiny_llama().float()
    config = loaded("dpo-tiny-cpu", DPOConfig, "--optimizer.micro_batch_tokens", "60", *overrides)
    stage = DPO(
        config, accelerator=Accelerator(cpu=True), policy=Policy(model), tokenizer=char_tokenizer(), units=units
    )
    return stage, model


def our_dpo(units: list[Unit], overrides: list[str]) -> tuple[Tensor, Any]:
    stage, model = stage_of(units, overrides)
    return torch.stack([part()[0] for part in stage.losses(units)]).sum(), model


def our_logps(units: list[Unit], model: Any) -> tuple[Tensor, Tensor]:
    """(n, 2, T) log-probabilities and mask of chosen and rejected."""
    (micro,) = Policy(model).micro_batches([row for u in units for row in u.rows], 10_000)
    logprobs, _ = Policy(model)(micro)
    order = torch.tensor(micro.indices).argsort()
    return logprobs[order].view(len(units), 2, -1), micro.mask[order].view(len(units), 2, -1)


def our_robust(units: list[Unit], share: float) -> tuple[Tensor, Any]:
    model = tiny_llama().float()
    logprobs, mask = our_logps(units, model)
    chosen, rejected = (logprobs * mask).sum(-1).unbind(1)
    won, lost = torch.tensor([u.reference for u in units]).unbind(1)
    right = dpo_loss(chosen, rejected, won, lost, beta=BETA, num_pairs=len(units))[0]
    swapped = dpo_loss(rejected, chosen, lost, won, beta=BETA, num_pairs=len(units))[0]
    return ((1 - share) * right - share * swapped) / (1 - 2 * share), model


def our_nll(units: list[Unit]) -> tuple[Tensor, Any]:
    model = tiny_llama().float()
    logprobs, mask = our_logps(units, model)
    return nll_loss(logprobs[:, 0], mask[:, 0], StepTotals.of(mask[:, 0]))[0], model


def our_orpo_term(units: list[Unit]) -> tuple[Tensor, Any]:
    stage, model = stage_of(units, ["--loss", "orpo", "--beta", str(BETA)])
    whole = torch.stack([part()[0] for part in stage.losses(units)]).sum()
    logprobs, mask = our_logps(units, model)
    sft = nll_loss(logprobs[:, 0], mask[:, 0], StepTotals.of(mask[:, 0]), aggregation="sequence")[0]
    return whole - sft, model


def our_reward(folder: Path, units: list[Unit], *, margin: float = 0.0, centre: float = 0.0) -> tuple[Tensor, Any]:
    config = loaded("rm-tiny-cpu", RewardModelConfig, "--margin", str(margin), "--centre", str(centre))
    model = load_reward_model(model_folder(folder), config.model, PAD, seed=0)
    rankings = [Ranking(rows=u.rows) for u in units]
    stage = RewardModelStage(
        config,
        accelerator=Accelerator(cpu=True),
        module=RewardModel(model),
        tokenizer=char_tokenizer(),
        rankings=rankings,
    )
    return torch.stack([part()[0] for part in stage.losses(rankings)]).sum(), model


def model_folder(folder: Path) -> Path:
    base = folder / "base"
    if not base.exists():
        base.mkdir()
        save_model(base, tiny_llama())
    return base


# -- TRL's -----------------------------------------------------------------------------------------------------------


class Trl:
    """TRL's trainers, each made with one row of text that it never trains on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arguments(self, config: Any, **settings: Any) -> Any:
        return config(output_dir=str(self.folder / "trl"), use_cpu=True, bf16=False, report_to=[], **settings)

    def model(self) -> Any:
        """`tiny_llama` from a folder: some trainers load their reference from where the model came from."""
        return AutoModelForCausalLM.from_pretrained(model_folder(self.folder), dtype=torch.float32)

    def dpo(self, units: list[Unit], loss: str, label_smoothing: float = 0.0) -> tuple[Tensor, Any]:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        model = self.model()
        trainer = DPOTrainer(
            model=model,
            args=self.arguments(
                DPOConfig, beta=BETA, loss_type=[loss], label_smoothing=label_smoothing, gradient_checkpointing=False
            ),
            train_dataset=Dataset.from_list([{"prompt": "1", "chosen": "2", "rejected": "3"}]),
            processing_class=char_tokenizer(),
        )
        trainer.precompute_ref_logps = True  # given here, made up
        batch = padded([u.rows[k] for k in range(2) for u in units])
        won, lost = torch.tensor([u.reference for u in units]).unbind(1)
        inputs = {**batch, "ref_chosen_logps": won, "ref_rejected_logps": lost}
        return trainer._compute_loss(trainer.model.train(), inputs, False), trainer.model

    def kto(self, units: list[Unit], undesirable_weight: float = 1.0) -> tuple[Tensor, Any]:
        from datasets import Dataset
        from trl import KTOConfig, KTOTrainer

        trainer = KTOTrainer(
            model=self.model(),
            args=self.arguments(
                KTOConfig,
                beta=BETA,
                undesirable_weight=undesirable_weight,
                per_device_train_batch_size=2,
                gradient_checkpointing=False,
            ),
            train_dataset=Dataset.from_list(
                [
                    {"prompt": "1", "completion": "2", "label": True},
                    {"prompt": "2", "completion": "3", "label": False},
                ]
            ),
            processing_class=char_tokenizer(),
        )
        trainer.precompute_ref_logps = True
        own = padded([u.rows[0] for u in units])
        mismatched = {f"KL_{name}": value for name, value in padded([u.rows[1] for u in units]).items()}
        references = torch.tensor([u.reference for u in units])
        inputs = {
            **own,
            **mismatched,
            "label": torch.tensor([u.desirable for u in units]),
            "ref_logps": references[:, 0],
            "ref_KL_logps": references[:, 1],
        }
        return trainer._compute_loss(trainer.model.train(), inputs, False), trainer.model

    def cpo(self, units: list[Unit], **settings: Any) -> tuple[Tensor, Any]:
        trainer = self.cpo_trainer(**settings)
        loss, _ = trainer.get_batch_loss_metrics(trainer.model.train(), sides(units))
        return loss, trainer.model

    def cdpo(self, units: list[Unit], share: float) -> tuple[Tensor, Any]:
        trainer = self.cpo_trainer(loss_type="sigmoid", label_smoothing=share)
        chosen, rejected = trainer.concatenated_forward(trainer.model.train(), sides(units))[:2]
        won, lost = torch.tensor([u.reference for u in units]).unbind(1)
        return trainer.cpo_loss(chosen - won, rejected - lost)[0].mean(), trainer.model

    def cpo_trainer(self, **settings: Any) -> Any:
        from trl.experimental.cpo import CPOConfig, CPOTrainer

        return CPOTrainer(
            model=self.model(),
            args=self.arguments(CPOConfig, beta=BETA, gradient_checkpointing=False, **settings),
            train_dataset=one_pair(),
            processing_class=char_tokenizer(),
        )

    def orpo(self, units: list[Unit], *, sft: bool) -> tuple[Tensor, Any]:
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        trainer = ORPOTrainer(
            model=self.model(),
            args=self.arguments(ORPOConfig, beta=BETA, gradient_checkpointing=False),
            train_dataset=one_pair(),
            processing_class=char_tokenizer(),
        )
        if sft:
            return trainer.get_batch_loss_metrics(trainer.model.train(), sides(units))[0], trainer.model
        chosen, rejected = trainer.concatenated_forward(trainer.model.train(), sides(units))[:2]
        return -trainer.odds_ratio_loss(chosen, rejected)[0].mean(), trainer.model

    def reward(self, units: list[Unit], margin: float = 0.0, centre: float = 0.0) -> tuple[Tensor, Any]:
        from trl import RewardConfig, RewardTrainer

        model = load_reward_model(
            model_folder(self.folder), loaded("rm-tiny-cpu", RewardModelConfig).model, PAD, seed=0
        )
        trainer = RewardTrainer(
            model=model,
            args=self.arguments(RewardConfig, center_rewards_coefficient=centre or None, gradient_checkpointing=False),
            train_dataset=one_pair(),
            processing_class=char_tokenizer(),
        )
        batch = padded([u.rows[k] for k in range(2) for u in units])
        del batch["completion_mask"]
        if margin:
            batch["margin"] = torch.full((len(units),), margin)
        return trainer.compute_loss(trainer.model.train(), batch), trainer.model


def one_pair() -> Any:
    from datasets import Dataset

    return Dataset.from_list([{"prompt": "1", "chosen": "12", "rejected": "13"}])


def padded(rows: list[Row]) -> dict[str, Tensor]:
    """Right-padded ids with the masks that TRL's collators make."""
    longest = max(row.length for row in rows)
    ids, attention, completion = [], [], []
    for row in rows:
        pad = longest - row.length
        ids.append([*row.prompt_ids, *row.completion_ids, *[PAD] * pad])
        attention.append([1] * row.length + [0] * pad)
        completion.append([0] * len(row.prompt_ids) + [1] * len(row.completion_ids) + [0] * pad)
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor(attention),
        "completion_mask": torch.tensor(completion),
    }


def sides(units: list[Unit]) -> dict[str, Tensor]:
    """Chosen and rejected as the collator of TRL's CPO and ORPO makes them."""
    batch = {}
    for k, name in enumerate(("chosen", "rejected")):
        side = padded([u.rows[k] for u in units])
        batch[f"{name}_input_ids"] = side["input_ids"]
        batch[f"{name}_attention_mask"] = side["attention_mask"]
        batch[f"{name}_labels"] = side["input_ids"].masked_fill(side["completion_mask"] == 0, -100)
    return batch


def gradients(model: Any, loss: Tensor) -> list[Tensor]:
    """Of every parameter, as training makes them: `token_logprobs` may add the head's to its `grad` itself."""
    loss.backward()  # type: ignore[no-untyped-call]
    return [p.grad for p in model.parameters() if p.requires_grad]


if __name__ == "__main__":
    raise SystemExit(main())
