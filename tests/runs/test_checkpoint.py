import json
import random
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from r1zero import models
from r1zero.errors import UserError
from r1zero.runs.checkpoint import (
    latest_checkpoint,
    load_trainer_state,
    part_bytes,
    prune,
    resolve_checkpoint,
    save_checkpoint,
)
from tests.tiny_models import char_tokenizer, tiny_llama


def save(folder: Path, step: int) -> Path:
    return save_checkpoint(
        folder, step, tiny_llama(layers=1), char_tokenizer(), tensors={"x": torch.ones(2)}, state={"consumed": step * 8}
    )


def test_a_checkpoint_loads_as_a_plain_model_with_the_same_weights_to_the_bit(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    loaded = AutoModelForCausalLM.from_pretrained(path, dtype="auto")
    for (name, saved), again in zip(tiny_llama(layers=1).named_parameters(), loaded.parameters(), strict=True):
        assert torch.equal(saved, again), name


def test_the_state_and_every_random_stream_go_on_where_they_were(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    expected = (random.random(), np.random.random(), torch.rand(1).item())
    tensors, state = load_trainer_state(path)
    assert (random.random(), np.random.random(), torch.rand(1).item()) == expected
    assert state == {"step": 3, "consumed": 24}
    assert tensors["x"].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["model.safetensors", "trainer/tensors.pt", "trainer/state.json"])
def test_a_corrupt_newest_checkpoint_is_passed_over_for_the_one_before(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, newest = save(tmp_path, 2), save(tmp_path, 4)
    assert latest_checkpoint(tmp_path) == newest
    assert "corrupt" not in capsys.readouterr().err
    whole = (newest / name).read_bytes()
    middle = len(whole) // 2
    (newest / name).write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])  # one bit
    assert latest_checkpoint(tmp_path) == before
    assert f"{newest} is corrupt ({name}: not as it was written)" in capsys.readouterr().err
    (before / name).unlink()
    assert latest_checkpoint(tmp_path) is None
    (newest / name).write_bytes(whole)
    assert latest_checkpoint(tmp_path) == newest


def test_a_file_added_later_or_a_checkpoint_without_checksums_is_no_corruption(tmp_path: Path) -> None:
    path = save(tmp_path, 2)
    (path / "lineage.json").write_text("{}")
    assert latest_checkpoint(tmp_path) == path
    (path / "trainer" / "checksums.json").unlink()
    assert latest_checkpoint(tmp_path) == path


def test_what_the_parts_of_a_checkpoint_take(tmp_path: Path) -> None:
    path = save(tmp_path, 2)
    sizes = part_bytes(path)
    assert sizes["weights"] == (path / "model.safetensors").stat().st_size
    assert sum(sizes.values()) == sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    assert sizes["trainer"] > (path / "trainer" / "tensors.pt").stat().st_size


def test_the_last_ones_and_the_best_are_kept(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8, 10):
        save(tmp_path, step)
    prune(tmp_path, keep=2, best_step=4)
    assert sorted(int(p.name[5:]) for p in tmp_path.iterdir()) == [4, 8, 10]
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert latest.name == "step-10"  # by number, not by name


def test_a_removal_that_is_cut_off_leaves_no_half_checkpoint_and_is_finished_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (2, 4, 6):
        save(tmp_path, step)

    def killed(path: Path) -> None:
        (path / "model.safetensors").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prune(tmp_path, keep=1, best_step=None)
    assert all((path / "model.safetensors").exists() for path in tmp_path.glob("step-*"))
    save(tmp_path, 8)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-4", "step-6", "step-8"]


def test_a_half_written_folder_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 2)
    (tmp_path / ".writing-step-4" / "trainer").mkdir(parents=True)
    (tmp_path / "step-6").mkdir()
    latest = latest_checkpoint(tmp_path)
    assert latest is not None
    assert latest.name == "step-2"


def test_a_write_that_fails_leaves_nothing_behind_and_says_how_to_go_on(tmp_path: Path) -> None:
    save(tmp_path, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of a file stands in for a full disk: the write fails with an OSError all the same.
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"step-4 could not be written .* --resume"):
            save(tmp_path, 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["step-2"]


def test_a_path_means_itself_a_run_its_latest_checkpoint_and_a_pipeline_that_of_its_last_stage_with_one(
    tmp_path: Path,
) -> None:
    assert resolve_checkpoint("Qwen/Qwen2.5-1.5B") == "Qwen/Qwen2.5-1.5B"
    for stage in ("first", "second", "third"):
        (tmp_path / stage / "checkpoints").mkdir(parents=True)
    (tmp_path / "config.yaml").write_text("stage: pipeline\n")
    (tmp_path / "manifest.json").write_text(json.dumps({"stages": ["first", "data", "second", "third"]}))
    with pytest.raises(UserError, match="no whole checkpoint yet"):
        resolve_checkpoint(str(tmp_path))
    save(tmp_path / "first" / "checkpoints", 2)
    later = [save(tmp_path / "second" / "checkpoints", step) for step in (8, 10)]
    assert resolve_checkpoint(str(tmp_path / "second")) == str(later[1])
    assert resolve_checkpoint(str(tmp_path)) == str(later[1])
    assert models.resolve(str(tmp_path / "second")) == later[1]  # as model.path
