"""The command line: exit codes, one-line errors, and whole runs as a user starts and stops them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import zstandard
from transformers import AutoModelForCausalLM

from r1zero.commands.main import main
from r1zero.config import EngineConfig
from r1zero.rollout import engine_name
from tests.tiny_models import save_model, tiny_llama

SMALL = [
    *("--algorithm.prompts_per_step", "4", "--algorithm.group_size", "4", "--sampling.max_tokens", "16"),
    *("--eval.data.size", "8", "--reward.workers", "1", "--run.trackers", "[]"),
    *("--reward.terms", '[{verifier: "tests.some_verifiers:short"}]'),
]


@pytest.fixture
def model(tmp_path: Path) -> str:
    folder = tmp_path / "model"
    folder.mkdir()
    return save_model(folder, tiny_llama())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "tiny-cup"], "did you mean 'tiny-cpu'"),
        (["train", "tiny-cpu", "--optimizer.lrr", "1"], "did you mean 'optimizer.lr'"),
        (
            ["train", "tiny-cpu", "--reward.terms", "[{verifier: maths}]"],
            "verifier 'maths': did you mean 'math'",
        ),
        (["train", "tiny-cpu", "--template", "r1zeo"], "unknown prompt template 'r1zeo': did you mean"),
        (["train", "tiny-cpu", "--data.source", "none.jsonl"], "none.jsonl"),
        (["train", "tiny-cpu", "--data.source", "{folder}/empty.jsonl"], "empty.jsonl"),
        (["train", "tiny-cpu", "--data.source", "{folder}/bad.jsonl"], "bad.jsonl:2: no field"),
        (["train", "tiny-cpu", "--model.path", "{folder}"], "is no model folder"),
        (["train", "tiny-cpu", "--resume"], "nothing to resume"),
        (["train", "{folder}/latin.yaml"], "latin.yaml cannot be read"),
        (["train", "{folder}/extends.yaml"], "extends must name one recipe, is 5"),
        (["train", "{folder}/section.yaml"], "section model must be a mapping, is None"),
        (["train", "tiny-cpu", "--reward.terms", "[{verifier: 'tests.raises_at_import:x'}]"], "RuntimeError: boom"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.jsonl").write_text('{"problem": "1+1", "answer": "2"}\n{"answer": "2"}\n')
    (tmp_path / "latin.yaml").write_bytes("name: caf\u00e9".encode("latin-1"))
    (tmp_path / "extends.yaml").write_text("extends: 5\n")
    (tmp_path / "section.yaml").write_text("model:\n")
    runs = tmp_path / "runs"
    filled = [a.replace("{folder}", str(tmp_path)) for a in arguments]
    assert main([*filled, "--run.root", str(runs)]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert not runs.exists()  # nothing half-written left behind


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verifiers", "audit", "{folder}/cut.jsonl.zst"], "cut off, not a whole zstd file"),
        (["verifiers", "audit", "{folder}/text.jsonl.zst"], "no zstd data"),
        (["verifiers", "audit", "{folder}/label.jsonl"], "the label must be true or false, is 'maybe'"),
        (["verifiers", "audit", "{folder}/good.jsonl", "--json", "{folder}/none/x.json"], "there is no folder"),
        (["verifiers", "audit", "{folder}/good.jsonl", "--workers", "-3"], "must be 0 or more, got -3"),
        (["eval", "nowhere", "--k", "0"], "must be 1 or more, got 0"),
        (["eval", "nowhere", "--limit", "-5"], "must be 0 or more, got -5"),
    ],
)
def test_other_commands_refuse_bad_input_too(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"gold": "5", "output": "so it is 5", "correct": True}
    (tmp_path / "good.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "label.jsonl").write_text(json.dumps({**row, "correct": "maybe"}) + "\n")
    whole = zstandard.compress("".join(json.dumps({**row, "id": i}) + "\n" for i in range(9000)).encode())
    (tmp_path / "cut.jsonl.zst").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jsonl.zst").write_text("plain text")
    try:
        code: object = main([a.replace("{folder}", str(tmp_path)) for a in arguments])
    except SystemExit as error:  # argparse's own way out
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_print_config_is_a_recipe_that_gives_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "r1zero-dapo", "--optimizer.lr", "2e-6", "--print_config"]) == 0
    first = capsys.readouterr().out
    (tmp_path / "again.yaml").write_text(first)
    assert main(["train", str(tmp_path / "again.yaml"), "--print_config"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize("command", [[], ["train"], ["eval"], ["compare"], ["verifiers"], ["verifiers", "check"]])
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main([*command, "--help"])
    except SystemExit as error:  # argparse's own way out
        code = error.code
    assert code == 0
    assert "r1zero" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_ends_a_command_without_a_traceback() -> None:
    line = f"{sys.executable} -m r1zero verifiers list | head -1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def start(model: str, root: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "r1zero.commands.main",
        "train",
        "tiny-cpu",
        "--model.path",
        model,
        "--run.root",
        str(root),
    ]
    return subprocess.Popen(
        [*command, *SMALL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def metrics(root: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (root / "tiny-cpu" / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if not k.startswith("time/") and not k.endswith("/seconds")} for r in rows]


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"step {step}/"):
            return
    raise AssertionError(f"the run ended before step {step}")


@pytest.mark.slow
def test_ctrl_c_leaves_a_loadable_checkpoint_and_kill_9_loses_no_exactness(model: str, tmp_path: Path) -> None:
    engine = ("--engine.name", "transformers", "--run.steps", "8", "--run.checkpoint_every", "2")
    code, _, err = finish(start(model, tmp_path / "whole", *engine))
    assert code == 0, err
    stopped = start(model, tmp_path / "cut", *engine)
    wait_for_step(stopped, 2)
    stopped.send_signal(signal.SIGINT)
    code, _, err = finish(stopped)
    assert code == 130
    assert "go on with --resume" in err
    assert "Traceback" not in err
    (checkpoint,) = sorted((tmp_path / "cut" / "tiny-cpu" / "checkpoints").glob("step-*"))[-1:]
    AutoModelForCausalLM.from_pretrained(checkpoint)
    killed = start(model, tmp_path / "cut", *engine, "--resume")
    wait_for_step(killed, 6)
    killed.kill()
    assert finish(killed)[0] == -signal.SIGKILL
    code, out, err = finish(start(model, tmp_path / "cut", *engine, "--resume"))
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["held-out", "before", "after"]
    assert metrics(tmp_path / "cut") == metrics(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.skipif(engine_name(EngineConfig()) != "vllm", reason="vLLM is not installed")
def test_a_run_with_vllm_trains_and_its_checkpoint_answers_alike_in_transformers_and_vllm(
    model: str, tmp_path: Path
) -> None:
    code, out, err = finish(start(model, tmp_path, "--engine.name", "vllm", "--run.steps", "3"))
    assert code == 0, err
    assert "warning: mismatch" not in err
    rows = metrics(tmp_path)
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row["mismatch/mean_abs"] < 1e-4 for row in rows[1:])
    checkpoint = tmp_path / "tiny-cpu" / "checkpoints" / "step-3"
    assert str(checkpoint) in out
    start_weights = AutoModelForCausalLM.from_pretrained(model).state_dict()
    trained = AutoModelForCausalLM.from_pretrained(checkpoint)
    assert any(not torch.equal(start_weights[name], tensor) for name, tensor in trained.state_dict().items())
    texts = []
    for engine in ("vllm", "transformers"):
        command = ["eval", str(checkpoint), "--suite", "tiny:arithmetic", "--size", "16", "--k", "1"]
        greedy = ["--temperature", "0", "--max-tokens", "12", "--engine", engine, "--out", str(tmp_path / engine)]
        done = subprocess.run(
            [sys.executable, "-m", "r1zero", *command, *greedy],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        (samples,) = (tmp_path / engine).rglob("samples.jsonl")
        answers = [json.loads(line) for line in samples.read_text().splitlines()]
        texts.append({row["problem_id"]: row["completion"] for row in answers if "completion" in row})
    assert len(texts[0]) == 16
    assert texts[0] == texts[1]
