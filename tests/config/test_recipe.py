import subprocess
import sys
from pathlib import Path

import pytest

from r1zero.config import GRPOConfig, LabConfig, PipelineConfig, recipe
from r1zero.errors import UserError
from r1zero.pipelines.check import references_checked


@pytest.mark.parametrize("name", recipe.names())
def test_every_shipped_recipe_is_valid(name: str) -> None:
    config = recipe.load(name)
    assert config.run.name == name
    if isinstance(config, PipelineConfig):
        references_checked(config)
    if isinstance(config, LabConfig | PipelineConfig):  # the tests of these look into what they run
        return
    assert config.model.path
    assert config.data.source


def test_an_override_beats_the_recipe_and_the_recipe_the_default() -> None:
    config = recipe.load("tiny-cpu", ["--algorithm.group_size", "6", "--optimizer.lr=3e-5"])
    assert (config.algorithm.group_size, config.optimizer.lr) == (6, 3e-5)
    assert config.algorithm.prompts_per_step == 32  # the recipe's
    assert config.algorithm.beta == GRPOConfig().algorithm.beta  # the default


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["--algorithm.grop_size", "4"], "did you mean 'algorithm.group_size'"),
        (["--algorithm.group_size", "1"], "group_size must be 2 or more"),
        (["--algorithm.group_size", "many"], "algorithm.group_size"),
        (["--algorithm.loss", "grpo"], "algorithm.loss"),
        (["--algorithm.minibatches", "7"], "does not divide"),
        (["--reward.on_error", "score"], "an error is ours"),
        (["--data.options.a.b", "4"], "reaches too deep"),
        (["--reward.terms", "[{verifier: math, wieght: 1}]"], r"in reward.terms 'wieght': did you mean 'weight'"),
    ],
)
def test_a_wrong_setting_is_named(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        recipe.load("tiny-cpu", overrides)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("tiny-cpu", "model.lora_rank", "-1"),
        ("tiny-cpu", "data.limit", "-2"),
        ("tiny-cpu", "data.size", "0"),
        ("tiny-cpu", "sampling.temperature", "0"),
        ("tiny-cpu", "sampling.top_p", "0"),
        ("tiny-cpu", "sampling.max_tokens", "0"),
        ("tiny-cpu", "engine.max_sequences", "0"),
        ("tiny-cpu", "reward.deadline_seconds", "0"),
        ("tiny-cpu", "algorithm.clip_high", "-0.2"),
        ("tiny-cpu", "algorithm.importance_cap", "0"),
        ("tiny-cpu", "eval.samples", "0"),
        ("ppo-tiny-cpu", "sampling.temperature", "0"),
        ("sft-tiny-cpu", "optimizer.lr", "-1"),
        ("sft-tiny-cpu", "optimizer.betas", "[1.0,0.9]"),
        ("sft-tiny-cpu", "optimizer.max_grad_norm", "-1"),  # would turn the gradient round
        ("sft-tiny-cpu", "optimizer.micro_batch_tokens", "0"),
        ("sft-tiny-cpu", "data.size", "0"),
        ("sft-tiny-cpu", "run.keep_checkpoints", "0"),
        ("dpo-tiny-cpu", "data.limit", "-2"),
        ("dpo-tiny-cpu", "nll_weight", "-1"),
        ("rm-tiny-cpu", "centre", "-1"),
        ("rejection-tiny-cpu", "run.threads", "-1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_before_the_run(name: str, setting: str, value: str) -> None:
    with pytest.raises(UserError, match=rf"{setting.split('.')[-1]}.* (must|got)"):
        recipe.load(name, [f"--{setting}", value])


def test_a_typo_in_a_recipe_file_is_named_with_the_near_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("optimiser: {lr: 1.0e-6}\n")
    with pytest.raises(UserError, match="did you mean 'optimizer'"):
        recipe.load(str(path))
    path.write_text("reward: {terms: [{verifyer: math}]}\n")
    with pytest.raises(UserError, match="verifyer"):
        recipe.load(str(path))


def test_extends_lays_a_recipe_on_another(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: tiny-cpu\nalgorithm: {std: none}\ndata: {filter: {level: [3]}}\n")
    config = recipe.load(str(path))
    assert config.algorithm.std == "none"
    assert config.algorithm.group_size == 16
    assert config.data.filter == {"level": [3]}
    assert config.run.name == "mine"


def test_recipes_that_extend_one_another_are_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(f"extends: {two}\n")
    two.write_text(f"extends: {one}\n")
    with pytest.raises(UserError, match="in a ring"):
        recipe.load(str(one))


def test_unknown_and_unreadable_recipes_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'tiny-cpu'"):
        recipe.load("tiny-cup")
    with pytest.raises(UserError, match="cannot be read"):
        recipe.load(str(tmp_path / "none.yaml"))
    path = tmp_path / "list.yaml"
    path.write_text("- 1\n")
    with pytest.raises(UserError, match="must be a mapping"):
        recipe.load(str(path))


def test_the_paper_s_settings_are_the_paper_s() -> None:
    config = recipe.load("r1zero-paper")
    algorithm = config.algorithm
    assert (config.optimizer.lr, algorithm.beta, algorithm.kl, algorithm.kl_in) == (3e-6, 0.001, "k3", "loss")
    assert (algorithm.group_size, algorithm.prompts_per_step * algorithm.group_size) == (16, 8192)
    # 512 outputs an optimizer step, 10,400 of them; the reference replaced every 400; 65,536 tokens from 8,200 on.
    assert algorithm.prompts_per_step * algorithm.group_size // algorithm.minibatches == 512
    assert config.run.steps * algorithm.minibatches == 10_400
    assert algorithm.reference_every * algorithm.minibatches == 400
    (switch,) = config.length_switches
    assert (config.sampling.max_tokens, switch.max_tokens) == (32_768, 65_536)
    assert (switch.step - 1) * algorithm.minibatches <= 8_200 <= switch.step * algorithm.minibatches


def test_each_loss_clips_where_its_own_paper_does_unless_told() -> None:
    bounds = {
        loss: recipe.load("tiny-cpu", ["--algorithm.loss", loss]).algorithm.clip_bounds
        for loss in ("clip", "gspo", "cispo")
    }
    assert bounds == {"clip": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (float("inf"), 0.2)}
    assert recipe.load("r1zero-paper").algorithm.clip_bounds == (10.0, 10.0)
    assert recipe.load("r1zero-dapo").algorithm.clip_bounds == (0.2, 0.28)


def test_configs_and_recipes_import_neither_torch_nor_vllm() -> None:
    code = "import sys, r1zero.config.recipe as r; r.load('tiny-cpu'); print({'torch', 'vllm'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
