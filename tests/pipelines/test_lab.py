"""Labs: the statistics by hand, what is read of a run, and real runs of the smallest kind."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from r1zero.config import GRPOConfig, LabConfig, LabEffect, LabMeasure, LabVariant, ModelConfig, recipe
from r1zero.errors import UserError
from r1zero.pipelines.lab import config_of, train_lab
from r1zero.pipelines.lab_results import Interval, LabRun, judge, measure, weights_change
from tests.tiny_models import save_model, tiny_llama


def test_the_interval_is_student_s_t_over_the_seeds() -> None:
    found = Interval.of([1.0, 2.0, 3.0])  # s = 1, t(0.975, 2) = 4.30265, half = 4.30265 / sqrt(3) = 2.48414
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, -0.48414, 4.48414), abs=1e-5)
    found = Interval.of([0.0, 2.0])  # s = sqrt(2), t(0.975, 1) = 12.7062, half = 12.7062
    assert (found.mean, found.low, found.high) == pytest.approx((1.0, -11.7062, 13.7062), abs=1e-4)
    same = Interval.of([0.5, 0.5, 0.5])
    assert (same.low, same.high) == (0.5, 0.5)
    assert str(found) == "1 [-11.71, 13.71]"


def test_one_seed_and_a_missing_value_have_no_interval() -> None:
    assert math.isnan(Interval.of([3.0]).low)
    assert str(Interval.of([3.0])) == "3"
    assert math.isnan(Interval.of([1.0, math.nan, 2.0]).low)
    assert str(Interval.of([1.0, math.nan])) == "none"


@pytest.mark.parametrize(
    ("expect", "low", "high", "seen"),
    [
        ("higher", 0.1, 0.9, True),
        ("higher", -0.1, 0.9, False),
        ("higher", 0.0, 0.9, False),
        ("lower", -0.9, -0.1, True),
        ("lower", -0.9, 0.1, False),
        ("same", -0.2, 0.2, True),
        ("same", -0.1, 0.3, False),
        ("same", -0.3, 0.1, False),
        ("higher", math.nan, math.nan, None),
    ],
)
def test_an_effect_is_seen_by_its_interval_alone(expect: Any, low: float, high: float, seen: bool | None) -> None:
    effect = LabEffect(says="", measure="m", variant="v", expect=expect, within=0.2)
    assert judge(effect, Interval(mean=0.1, low=low, high=high, values=[])) is seen


def a_run(*rows: dict[str, float]) -> LabRun:
    lines = [{"step": step, **row} for step, row in enumerate(rows)]
    return LabRun(variant="v", seed=0, config=GRPOConfig(), checkpoint=Path(), metrics=lines)


def test_a_measure_reads_the_steps_that_have_its_metric_and_meet_its_condition() -> None:
    run = a_run({"a": 4.0}, {"a": 1.0, "std": 0.0}, {"b": 7.0}, {"a": 3.0, "std": 0.5}, {"a": 2.0, "std": 1.0})

    def found(at: Any, **where: Any) -> float:
        return measure(run, LabMeasure(name="m", metric="a", at=at, **where))

    assert [found(at) for at in ("first", "last", "change", "min", "max", "mean")] == [4.0, 2.0, -2.0, 1.0, 4.0, 2.5]
    assert found("mean", where="std", at_most=0.0) == 1.0
    assert found("mean", where="std", above=0.0) == 2.5
    assert found("max", where="std", above=0.0, at_most=0.5) == 3.0
    assert math.isnan(found("max", where="std", above=9.0))
    with pytest.raises(UserError, match="unknown metric of v 'aa'"):
        measure(run, LabMeasure(name="m", metric="aa"))
    with pytest.raises(UserError, match="unknown metric of v 'sdt': did you mean 'std'"):
        measure(run, LabMeasure(name="m", metric="a", where="sdt"))


def test_how_far_the_weights_moved_is_the_length_of_the_difference(tmp_path: Path) -> None:
    for name, values in (("before", [1.0, 1.0, 1.0]), ("after", [1.0, 4.0, 5.0])):
        (tmp_path / name).mkdir()
        save_file({"w": torch.tensor(values)}, tmp_path / name / "model.safetensors")
        (tmp_path / name / "config.json").write_text("{}")
    config = GRPOConfig(model=ModelConfig(path=str(tmp_path / "before")))
    assert weights_change(config, tmp_path / "after") == 5.0  # 3, 4, 5


def test_a_run_s_settings_are_its_recipe_the_lab_s_its_own_the_seed_s_and_the_folder_s(tmp_path: Path) -> None:
    variant = LabVariant(name="v", settings={"algorithm": {"beta": 0.5}, "model": {"path": "stage:start"}})
    settings = {"algorithm": {"beta": 0.1, "group_size": 6}}
    lab = LabConfig(recipe="tiny-cpu", settings=settings, variants=[variant])
    config = config_of(lab, variant, 7, tmp_path, lambda name, file: str(Path("made", name, file)))
    assert isinstance(config, GRPOConfig)
    assert (config.algorithm.beta, config.algorithm.group_size, config.algorithm.prompts_per_step) == (0.5, 6, 32)
    assert (config.run.seed, config.data.seed, config.eval.data.seed) == (7, 7, 0)
    assert (config.model.path, config.run.root, config.run.name) == ("made/start", str(tmp_path), "v-seed-7")


def shipped_labs() -> list[str]:
    return [name for name in recipe.names() if name.startswith("lab-")]


@pytest.mark.parametrize("name", shipped_labs())
def test_every_run_of_a_shipped_lab_has_valid_settings(name: str, tmp_path: Path) -> None:
    lab = recipe.load(name)
    assert isinstance(lab, LabConfig)
    assert len(lab.seeds) >= 3
    assert lab.claim
    assert lab.effects
    assert lab.panels
    for variant in lab.variants:
        config_of(lab, variant, lab.seeds[0], tmp_path, os.path.join)


@pytest.fixture
def small_lab(tmp_path: Path) -> dict[str, Any]:
    """SFT for a step, then again from its checkpoint at two learning rates."""
    rows = [{"prompt": f"{i}+1=", "response": str(i + 1)} for i in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = {
        "stage": "sft",
        "model": {"path": save_model(tmp_path / "base", tiny_llama(layers=1)), "dtype": "float32"},
        "data": {"source": str(tmp_path / "rows.jsonl")},
        "template": "plain",
        "batch_size": 4,
        "optimizer": {"lr": 1e-3, "warmup_steps": 0, "schedule": "constant"},
        "run": {"steps": 2, "trackers": [], "threads": 1},
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    again = {"model": {"path": "stage:start"}}
    return {
        "stage": "lab",
        "claim": "weights move with the learning rate",
        "recipe": str(tmp_path / "base.yaml"),
        "seeds": [3, 4],
        "variants": [
            {"name": "start", "shown": False},
            {"name": "still", "settings": {**again, "optimizer": {"lr": 0.0}}},
            {"name": "moving", "settings": again},
        ],
        "measures": [{"name": "moved", "metric": "weights/change"}, {"name": "loss", "metric": "loss", "at": "first"}],
        "effects": [
            {"says": "a rate of 0 moves nothing", "measure": "moved", "variant": "still", "expect": "same"},
            {"says": "another does", "measure": "moved", "variant": "moving", "against": "still"},
            {"says": "nor is their beginning another", "measure": "loss", "variant": "moving", "against": "still",
             "expect": "same", "within": 1e-9},
        ],
        "panels": [{"y": ["loss"]}, {"x": "loss", "y": ["optimizer/grad_norm"], "kind": "points"}],
        "run": {"name": "small", "root": str(tmp_path)},
    }  # fmt: skip


def load(settings: dict[str, Any], tmp_path: Path) -> LabConfig:
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(settings))
    config = recipe.load(str(tmp_path / "lab.yaml"))
    assert isinstance(config, LabConfig)
    return config


def test_a_lab_runs_reports_and_resumes_with_what_is_missing_alone(
    small_lab: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load(small_lab, tmp_path)
    folder = train_lab(config)
    shown = capsys.readouterr().out
    assert shown.startswith("claim: weights move with the learning rate\n")
    assert shown.count("\nseen: ") == 3
    assert "claim SEEN" in shown
    assert "start" not in shown  # prepares, and has no row
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((folder / "results.json").read_text())
    still, moving = found["table"]["still"]["moved"], found["table"]["moving"]["moved"]
    assert still["values"] == [0.0, 0.0]
    assert min(moving["values"]) > 0
    assert moving["values"][0] != moving["values"][1]  # another seed, another order of the rows
    assert (folder / "table.txt").read_text().strip() in shown

    # A run that was cut off is done again, the others are not, and the numbers are the same.
    (folder / "moving-seed-4" / "metrics.jsonl").unlink()
    for checkpoint in (folder / "moving-seed-4" / "checkpoints").iterdir():
        checkpoint.rename(tmp_path / "gone")
    kept = folder / "still-seed-4" / "metrics.jsonl"
    before = kept.stat().st_mtime_ns
    with pytest.raises(UserError, match="--resume"):
        train_lab(config)
    train_lab(config, resume=True)
    assert kept.stat().st_mtime_ns == before
    assert json.loads((folder / "results.json").read_text())["table"] == found["table"]


def test_one_seed_is_reported_and_not_judged_and_runs_may_have_unlike_compute_types(
    small_lab: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = {
        **small_lab,
        "seeds": [0],
        "variants": [{"name": "start"}, {"name": "half", "settings": {"model": {"dtype": "bfloat16"}}}],
        "effects": [{"says": "it moves", "measure": "moved", "variant": "start"}],
        "panels": [],
    }
    folder = train_lab(load(lab, tmp_path))
    shown = capsys.readouterr().out
    assert "one seed: no intervals" in shown
    assert "not judged (no interval): it moves" in shown
    assert "claim NOT JUDGED" in shown
    found = json.loads((folder / "results.json").read_text())["table"]
    whole, half = found["start"]["loss"]["mean"], found["half"]["loss"]["mean"]
    assert half != whole
    assert half == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variants": [{"name": "a", "settings": {"model": {"path": "stage:b"}}}, {"name": "b"}]}, "unknown variant"),
        ({"variants": [{"name": "moving", "settings": {"optimiser": {"lr": 1}}}]}, "variant 'moving'.*'optimizer'"),
        ({"variants": [{"name": "moving", "recipe": "tiny-cpo"}]}, "variant 'moving': unknown recipe 'tiny-cpo'"),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, "called the same"),
        ({"variants": [{"name": "a", "shown": False}]}, "needs variants"),
        ({"seeds": [1, 1]}, "not distinct"),
        ({"recipe": ""}, "has no recipe"),
        ({"effects": [{"says": "", "measure": "mooved", "variant": "still"}]}, "no measure"),
        ({"effects": [{"says": "", "measure": "moved", "variant": "stil"}]}, "no variant"),
    ],
)
def test_a_mistake_in_a_lab_is_named_before_anything_is_run(
    small_lab: dict[str, Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    if "variants" in change:
        change = {"effects": [], **change}
    with pytest.raises(UserError, match=message):
        train_lab(load({**small_lab, **change}, tmp_path))
    assert not (tmp_path / "small").exists()
