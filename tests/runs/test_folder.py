import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from r1zero.config import recipe
from r1zero.errors import UserError
from r1zero.runs.folder import RunFolder, plain, read_rollouts


def test_a_folder_held_by_one_process_is_refused_to_another_until_it_ends(tmp_path: Path) -> None:
    code = (
        "import sys, time; from r1zero.runs.folder import RunFolder\n"
        "folder = RunFolder(sys.argv[1], 'a'); folder.open(); print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    folder = RunFolder(tmp_path, "a")
    with pytest.raises(UserError, match=rf"in use by process {other.pid} on .*, begun 20\d\d-"):
        folder.open()
    other.kill()  # SIGKILL: no clean-up runs, the lock goes all the same
    other.wait()
    other.stdout.close()
    folder.open()
    folder.close()


def test_a_root_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to the run folder"):
        RunFolder(tmp_path / "file", "a").open()


def test_what_a_killed_run_logged_after_its_checkpoint_is_forgotten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "a")
    folder.open()
    for step in range(4):
        folder.log({"step": step, "x": step / 3})
        folder.save_rollouts(step, [{"step": step}])
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "x"')  # cut by the kill
    folder.forget_after(2)
    folder.log({"step": 3, "x": 1.0})
    rows = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["x"]) for row in rows] == [(0, 0.0), (1, 1 / 3), (2, 2 / 3), (3, 1.0)]
    assert sorted(p.name for p in (folder.path / "rollouts").iterdir())[-1] == "step-000002.jsonl.zst"
    folder.close()


def test_rollouts_come_back_as_they_went_in(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "a")
    folder.open()
    rows = [
        {"step": 1, "completion": "line\nbreak \u2028\x85\x1e ünïcode \\boxed{½}", "reward": None},
        {"step": 1, "reward": 0.2},
    ]
    folder.save_rollouts(1, rows)
    assert read_rollouts(folder.path / "rollouts" / "step-000001.jsonl.zst") == rows
    folder.close()


def test_the_config_on_disk_is_complete_and_makes_the_same_run(tmp_path: Path) -> None:
    config = recipe.load("r1zero-dapo")
    folder = RunFolder(tmp_path, "a")
    folder.open()
    folder.write_config(config)
    folder.close()
    assert yaml.safe_load((folder.path / "config.yaml").read_text()) == plain(config)
    assert recipe.load(str(folder.path / "config.yaml")) == config
