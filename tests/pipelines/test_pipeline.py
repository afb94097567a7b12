"""Pipelines on a random model: references, overrides, what is refused before the first stage, a kill in each stage,
lineage, the table."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from r1zero.config import PipelineConfig, recipe
from r1zero.errors import UserError
from r1zero.pipelines import pipeline, stages
from r1zero.pipelines.check import references_checked
from r1zero.pipelines.child import launch
from r1zero.pipelines.measures import table
from r1zero.pipelines.pipeline import resolved, train_pipeline
from r1zero.runs import checkpoint
from r1zero.runs.folder import RunFolder
from r1zero.training import loop as session
from tests.tiny_models import save_model, tiny_llama

Load = Callable[..., PipelineConfig]


def in_process(module: str, arguments: Sequence[str]) -> None:
    """A launch without the seconds of a new process's imports."""
    code = importlib.import_module("r1zero.commands.main" if module == "r1zero" else module).main(list(arguments))
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise UserError(f"{module} failed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, data and a pipeline SFT -> rejection sampling -> reward model and DPO on its pairs, two steps each."""
    tmp_path = tmp_path_factory.mktemp("pipeline")
    save_model(tmp_path / "model", tiny_llama(layers=1, scale=0.3))
    rows = [{"prompt": f"{i}-{i}=", "response": "0"} for i in range(8)]
    (tmp_path / "demos.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, offset in (("problems", 0), ("held", 50)):
        problems = [{"problem": f"{i + offset}+{i}=", "answer": str(2 * i + offset)} for i in range(8)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in problems))
    short = {"workers": 1, "terms": [{"verifier": "tests.some_verifiers:short", "name": "short"}]}
    common = {
        "template": "plain",
        "batch_size": 4,
        "optimizer": {"lr": 1e-3, "warmup_steps": 0},
        "run": {"steps": 2, "checkpoint_every": 1, "trackers": [], "threads": 1},
    }
    sampled = {
        "template": "plain",
        "sampling": {"max_tokens": 48},
        "engine": {"name": "transformers"},
        "reward": short,
    }
    stages = {
        "cold": {
            "stage": "sft",
            "model": {"path": str(tmp_path / "model"), "dtype": "float32"},
            "data": {"source": str(tmp_path / "demos.jsonl")},
            **common,
        },
        "sample": {
            "stage": "rejection_sampling",
            "model": {"path": "stage:cold", "dtype": "float32"},
            "data": {"source": str(tmp_path / "problems.jsonl")},
            "samples": 8,
            "batch_problems": 4,
            "pairs": {"per_problem": 2},
            "run": {"threads": 1},
            **sampled,
        },
        "judge": {
            "stage": "reward_model",
            "model": {"path": "stage:cold", "dtype": "float32"},
            "data": {"source": "stage:sample/pairs.jsonl"},
            **common,
        },
        "align": {
            "stage": "dpo",
            "model": {"path": "stage:sample", "dtype": "float32"},
            "data": {"source": "stage:sample/pairs.jsonl"},
            **common,
        },
    }
    settings = {
        "stage": "pipeline",
        "stages": stages,
        "measures": {"held": {"data": {"source": str(tmp_path / "held.jsonl")}, "dtype": "float32", **sampled}},
        "run": {"root": str(tmp_path / "runs"), "threads": 1},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return tmp_path


@pytest.fixture(scope="module")
def whole(folder: Path) -> PipelineConfig:
    """That pipeline, run without a break."""
    config = load(folder, "--run.name", "whole")
    assert train_pipeline(config, launch=in_process) == folder / "runs" / "whole" / "align" / "checkpoints" / "step-2"
    return config


def load(folder: Path, *overrides: str, **settings: Any) -> PipelineConfig:
    config = recipe.load(str(folder / "mine.yaml"), overrides, settings=settings)
    assert isinstance(config, PipelineConfig)
    return config


def outcome(config: PipelineConfig) -> tuple[Any, ...]:
    """What must be equal of two pipelines that differ in their folder alone."""
    root = Path(config.run.root) / config.run.name
    traced = json.loads((root / "lineage.json").read_text())
    results = json.loads((root / "results.json").read_text())
    pairs = (root / "sample" / "pairs.jsonl").read_bytes()
    return traced["weights"], [run["weights"] for run in traced["runs"]], [row["measures"] for row in results], pairs


def test_overrides_reach_one_stage_and_a_typo_names_the_near_key(folder: Path) -> None:
    config = load(
        folder, "--stages.align.optimizer.lr", "2e-4", "--measures.held.samples=3", "--run.name", "x",
        "--stages.cold.run.steps", "1",
    )  # fmt: skip
    assert [config.stages[name]["optimizer"]["lr"] for name in ("cold", "align")] == [1e-3, 2e-4]
    assert (config.measures["held"].samples, config.stages["cold"]["run"]["steps"]) == (3, 1)
    assert config.stages["cold"]["run"]["root"] == str(folder / "runs" / "x")
    seeded = load(folder, "--run.seed", "3", "--stages.align.run.seed", "7")
    assert [stage["run"]["seed"] for stage in seeded.stages.values()] == [3, 3, 3, 7]
    for word, message in (
        ("--stages.algin.optimizer.lr", "did you mean 'align'"),
        ("--stages.align.optimizer.lrr", "did you mean 'optimizer.lr'"),
        ("--stages.align", "say which of its settings"),
        ("--measures.held.sampels", "did you mean 'samples'"),
        ("--stgaes.align.optimizer.lr", "did you mean"),
        ("--stages.align.run.name", "leave out run.name"),
    ):
        with pytest.raises(UserError, match=message):
            load(folder, word, "1")


def test_a_complete_config_is_a_recipe_that_loads_to_the_same(folder: Path) -> None:
    config = load(folder)
    complete = RunFolder(folder, "complete")
    complete.open()
    complete.write_config(config)
    complete.close()
    assert recipe.load(str(complete.path / "config.yaml")) == config


@pytest.mark.parametrize(
    ("stage", "settings", "message"),
    [
        ("align", {"model": {"path": "stage:smaple"}}, "stage align of .* did you mean 'sample'"),
        ("cold", {"model": {"path": "stage:align"}}, "in a ring: cold -> align -> sample -> cold"),
        ("cold", {"model": {"path": "stage:cold"}}, "in a ring: cold -> cold"),
        ("align", {"model": {"path": "stage:judge"}}, "is a reward model, which answers no prompt"),
        ("align", {"data": {"source": "stage:sample/pair.jsonl"}}, "did you mean 'pairs.jsonl'"),
        ("align", {"data": {"source": "stage:cold/sft.jsonl"}}, "unknown file of a sft stage"),
        ("align", {"data": {"source": "stage:sample"}}, "a file is stage:NAME/FILE"),
        ("sample", {"pairs": {"per_problem": 0}}, "unknown file of a rejection_sampling stage"),
        ("sample", {"reward": {"models": [{"path": "stage:cold"}]}}, "is no reward_model stage"),
    ],
)
def test_a_bad_reference_is_named(stage: str, settings: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(UserError, match=message):
        references_checked(load(folder, stages={stage: settings}))


def test_stages_run_after_those_they_refer_to_and_null_takes_one_away(folder: Path) -> None:
    between = {"stage": "sft", "model": {"path": "stage:sample"}, "data": {"source": "stage:sample/sft.jsonl"}}
    stages = {"align": {"model": {"path": "stage:more"}}, "judge": None, "more": between}
    config = load(folder, stages=stages, measures={"held": None})
    assert (list(config.stages), config.measures) == (["cold", "sample", "more", "align"], {})


def test_all_stages_are_checked_before_the_first_one_starts(folder: Path) -> None:
    started: list[str] = []

    def start(module: str, arguments: Sequence[str]) -> None:
        started.append(module)

    held = [json.loads(line) for line in (folder / "held.jsonl").read_text().splitlines()]
    (folder / "leaked.jsonl").write_text(json.dumps({"prompt": held[3]["problem"], "response": "1"}) + "\n")
    for stage, settings, message in (
        ("sample", {"data": {"source": str(folder / "none.jsonl")}}, "stage sample: .*does not exist"),
        ("sample", {"data": {"source": str(folder / "held.jsonl")}}, "stage sample: 8 of its problems are measured on"),
        ("sample", {"extra": {"source": str(folder / "leaked.jsonl")}}, "stage sample: 1 of its problems are measured"),
        ("sample", {"reward": {"terms": [{"verifier": "mahth"}]}}, "stage sample: unknown verifier 'mahth'"),
        ("align", {"template": "plane"}, "stage align: unknown .*'plane'"),
        ("align", {"held_out": {"source": str(folder / "none.jsonl")}}, "stage align: .*does not exist"),
        ("cold", {"data": {"source": str(folder / "leaked.jsonl")}}, "stage cold: 1 held-out problems are also"),
        ("cold", {"model": {"path": str(folder / "none")}}, "no model folder"),
    ):
        with pytest.raises(UserError, match=message):
            train_pipeline(load(folder, stages={stage: settings}), launch=start)
    assert started == []
    assert not (folder / "runs" / "mine" / "config.yaml").exists()


def test_a_pipeline_killed_in_each_stage_goes_on_in_it_to_the_same_numbers(
    folder: Path, whole: PipelineConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = load(folder, "--run.name", "killed")
    real_save, real_rollouts = checkpoint.save_checkpoint, RunFolder.save_rollouts

    def save_and_die(*args: Any, **kwargs: Any) -> Path:
        saved = real_save(*args, **kwargs)
        if saved.name == "step-1" and saved.parent.parent.name == stage:
            raise KeyboardInterrupt
        return saved

    def write_and_die(self: RunFolder, step: int, rows: Any) -> None:
        real_rollouts(self, step, rows)
        if step == 1 and self.path.name == stage and begun[-1:] != [stage]:
            raise KeyboardInterrupt

    begun: list[str] = []
    for stage in ("cold", "sample", "judge", "align"):
        with monkeypatch.context() as patch:
            patch.setattr(session, "save_checkpoint", save_and_die)
            patch.setattr(RunFolder, "save_rollouts", write_and_die)
            with pytest.raises(KeyboardInterrupt):
                train_pipeline(killed, resume=bool(begun), launch=in_process)
        begun.append(stage)
        root = folder / "runs" / "killed"
        assert [name for name in killed.stages if (root / name).exists()] == begun
        if stage != "sample":
            assert [path.name for path in (root / stage / "checkpoints").glob("step-*")] == ["step-1"]
    train_pipeline(killed, resume=True, launch=in_process)
    assert outcome(killed) == outcome(whole)

    capsys.readouterr()
    assert launched(killed) == []  # a complete one runs nothing more and says its table again
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("start", "cold", "sample", "judge", "align", "64 samples"))
    with pytest.raises(UserError, match=r"cold was begun with other settings: optimizer.lr 0.001, now 0.002"):
        train_pipeline(load(folder, "--run.name", "killed", "--stages.cold.optimizer.lr", "2e-3"), resume=True)


def launched(config: PipelineConfig) -> list[list[str]]:
    """The names of the files that a finished pipeline, resumed, would still give to new processes."""
    found: list[list[str]] = []
    train_pipeline(config, resume=True, launch=lambda module, files: found.append([Path(file).name for file in files]))
    return found


def test_what_is_measured_otherwise_or_by_a_stage_s_reward_model_is_measured_of_every_policy(
    folder: Path, whole: PipelineConfig
) -> None:
    measures = yaml.safe_load((folder / "mine.yaml").read_text())["measures"]
    judged = recipe.merged(measures["held"], {"reward": {"models": [{"path": "stage:judge"}]}})
    changed = load(folder, "--run.name", "whole", "--measures.held.samples", "2", measures={"judged": judged})
    policies = ("start", "cold", "align")
    assert launched(changed) == [[f"{p}.{m}.task.json"] for m in ("held", "judged") for p in policies]
    task = json.loads((folder / "runs" / "whole" / "measures" / "cold.judged.task.json").read_text())
    judge = folder / "runs" / "whole" / "judge" / "checkpoints" / "step-2"
    assert task["measure"]["reward"]["models"][0]["path"] == str(judge)
    judged["reward"]["models"][0]["path"] = "stage:cold"
    bad = load(folder, measures={"judged": judged})
    with pytest.raises(UserError, match=r"measure judged: .*this is for a reward_model stage"):
        references_checked(bad)


def test_lineage_lists_every_run_on_the_way_with_its_data_settings_and_parents(
    folder: Path, whole: PipelineConfig, tmp_path: Path
) -> None:
    root = folder / "runs" / "whole"
    final = root / "align" / "checkpoints" / "step-2"
    traced = json.loads((final / "lineage.json").read_text())
    assert [run["run"] for run in traced["runs"]] == [str(root / name) for name in ("cold", "sample", "align")]
    cold, sample, align = traced["runs"]
    assert cold["parents"]["model.path"]["path"] == str(folder / "model")
    assert sample["parents"]["model.path"]["weights"] == cold["weights"] == align["parents"]["model.path"]["weights"]
    file = align["parents"]["data.source"]
    result = json.loads((root / "sample" / "result.json").read_text())
    assert (file["run"], file["sha256"]) == (str(root / "sample"), result["files"]["pairs.jsonl"])
    assert all(len(run["data"]["fingerprint"]) == 16 for run in traced["runs"])
    assert [run["settings"]["stage"] for run in traced["runs"]] == ["sft", "rejection_sampling", "dpo"]
    assert cold["settings"]["optimizer"]["lr"] == 1e-3
    whole_lineage = json.loads((root / "lineage.json").read_text())
    assert (whole_lineage["weights"], list(whole_lineage["recipes"])) == (traced["weights"], list(whole.stages))
    # Weights copied elsewhere take it with them, and a run of its own that starts from there goes on with it.
    shutil.copytree(final, tmp_path / "moved")
    alone = recipe.load(
        "sft-tiny-cpu",
        settings={
            "model": {"path": str(tmp_path / "moved")},
            "data": {"source": str(folder / "demos.jsonl")},
            "held_out": {"source": ""},
            "eval": {"data": {"source": ""}},
            "run": {"name": "alone", "root": str(tmp_path), "steps": 1, "trackers": [], "threads": 1},
        },
    )
    last = stages.run(alone, resume=False)
    later = json.loads((last / "lineage.json").read_text())
    assert [run["stage"] for run in later["runs"]] == ["sft", "rejection_sampling", "dpo", "sft"]
    assert later["runs"][-1]["parents"]["model.path"]["weights"] == traced["weights"]


def test_the_table_says_where_each_score_was_best_and_where_it_ended() -> None:
    def row(stage: str, mean: float | None) -> dict[str, Any]:
        score = {"mean": mean, "low": 0.0, "high": 1.0, "share": True, "unknown": 0}
        return {"stage": stage, "figures": "", "measures": {"held": {"scores": {"math": score}, "tokens": 12.0}}}

    lines = table([row("start", 0.25), row("a", 0.5), row("b", 0.75), row("c", 0.7)]).splitlines()
    assert lines[0].split() == ["stage", "math", "tokens", "figures"]
    assert lines[-1] == "math: begun at 25.0%, best after b 75.0%, at the end 70.0%"
    assert "unknown" in table([row("a", None)])


def test_a_child_s_failure_is_a_line_and_its_death_says_what_killed_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "child_of_a_test.py").write_text(
        "import os, sys\nos.kill(os.getpid(), 9) if sys.argv[1] == '9' else sys.exit(2)\n"
    )
    with pytest.raises(UserError, match="killed by SIGKILL"):
        launch("child_of_a_test", ["9"])
    with pytest.raises(UserError, match=r"`child_of_a_test 2` failed"):
        launch("child_of_a_test", ["2"])


@pytest.mark.skipif(sys.platform != "linux", reason="the death of a parent is told by Linux alone")
def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "sleeper.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    (tmp_path / "parent.py").write_text("from r1zero.pipelines.child import launch\nlaunch('sleeper', [])\n")
    parent = subprocess.Popen([sys.executable, "parent.py"], cwd=tmp_path)
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert parent.poll() is None
        time.sleep(0.1)
    child = int(pid.read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    while Path(f"/proc/{child}/status").exists() and "zombie" not in Path(f"/proc/{child}/status").read_text():
        time.sleep(0.05)


def test_a_stage_is_resolved_to_folders_of_this_run(folder: Path) -> None:
    stage = resolved(load(folder, "--run.name", "x"), "align")
    assert stage.data.source == str(folder / "runs" / "x" / "sample" / "pairs.jsonl")  # type: ignore[union-attr]
    assert pipeline.checkpoint_of(stage) == folder / "runs" / "x" / "align" / "checkpoints"
