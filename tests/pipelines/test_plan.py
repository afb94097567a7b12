"""Plans of recipes that ship: what fits, what does not, and which setting is named."""

import dataclasses
from pathlib import Path

import pytest

from r1zero.commands.main import main
from r1zero.config import GRPOConfig, recipe
from r1zero.errors import UserError
from r1zero.models.memory_plan import Shape
from r1zero.pipelines import plan, plan_scale
from r1zero.pipelines.plan import Device, advice, memory, parse_gpus, refuse_what_cannot_fit

QWEN = plan_scale.SHAPES["1.5B"]


def one_gpu() -> GRPOConfig:
    config = recipe.load("r1zero-1gpu")
    assert isinstance(config, GRPOConfig)
    return config


def test_a_number_of_gpus_and_their_size() -> None:
    assert parse_gpus("8x80") == (8, Device(gib=80, tflops=989, bandwidth=3350))
    with pytest.raises(UserError, match="--gpus 80: write NUMBERxGIB"):
        parse_gpus("80")


def test_the_one_gpu_recipe_fits_80_gib_and_not_16() -> None:
    _, device = parse_gpus("1x80")
    parts = memory(one_gpu(), QWEN, device)
    assert QWEN.total == pytest.approx(1.54e9, rel=0.01)
    # Float32 weights, gradients and two moments.
    assert sum(parts["training"][k] for k in ("weights", "gradients", "optimizer")) == 16 * QWEN.total
    assert advice(one_gpu(), parts, device, 1) == []
    _, small = parse_gpus("1x16")
    found = advice(one_gpu(), memory(one_gpu(), QWEN, small), small, 1)
    assert found[0].startswith("--model.lora_rank 32 (saves about 15.5")
    assert any("--optimizer.micro_batch_tokens 8192" in line for line in found)


def test_what_cannot_fit_is_refused_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "model_shape", lambda config: QWEN)
    refuse_what_cannot_fit(one_gpu(), Device(gib=80, tflops=1, bandwidth=1))
    with pytest.raises(UserError, match=r"needs 23.0 GiB .* has 16.0: --model.lora_rank 32"):
        refuse_what_cannot_fit(one_gpu(), Device(gib=16, tflops=1, bandwidth=1))


def test_a_decoding_step_reads_weights_and_keys() -> None:
    shape = Shape(layers=1, hidden=8, intermediate=8, heads=1, kv_heads=1, head_dim=8, vocab=2, tied=True)
    config = one_gpu()
    config = dataclasses.replace(config, engine=dataclasses.replace(config.engine, max_sequences=4096))
    device = Device(gib=80, tflops=1e9, bandwidth=1)
    # 1024 sequences at once, each with 1024 + 1500 tokens of 32 bytes on average, 3000 times, at .6 GB/s.
    expected = 3000 * (2 * shape.total + 1024 * 2524 * 32) / 0.6e9
    assert plan.seconds(config, shape, device, 1)["rollout"] == pytest.approx(expected)


def test_staleness_does_not_wait_for_the_longest_completion() -> None:
    work = plan_scale.Work(completions=1024, mean=1000, longest=30_000)
    one, binds = plan_scale.step_seconds(QWEN, 64, work, stale=False)
    two, _ = plan_scale.step_seconds(QWEN, 64, work, stale=True)
    assert binds == "rollout"
    assert two < one / 2
    assert not plan_scale.fits(plan_scale.SHAPES["7B"], 1)
    assert plan_scale.table().count("does not fit") == 2  # 7B and 32B on one


def test_the_command_prints_the_parts_and_ends_by_whether_it_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "tiny-cpu", "--gpus", "1x80"]) == 0
    out = capsys.readouterr().out
    assert "training" in out
    assert out.rstrip().endswith("fits")
    assert main(["plan", "tiny-cpu", "--gpus", "1x1", "--optimizer.micro_batch_tokens", "100000"]) == 1
    assert "--model.gradient_checkpointing true" in capsys.readouterr().out
    assert main(["plan", "sft-tiny-cpu"]) == 2
