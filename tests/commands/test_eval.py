from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r1zero.commands import eval as eval_cli
from r1zero.commands.main import main
from r1zero.config import EngineConfig
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.compare import compare
from r1zero.eval.folder import EvalFolder, read_results
from r1zero.eval.manifest import LIKE
from r1zero.eval.parallel import draw_shards
from r1zero.eval.regrade import regrade
from r1zero.eval.run import Finished, run_eval
from r1zero.eval.samples import read_samples
from r1zero.eval.tasks import EvalSettings
from r1zero.rollout.hf import TransformersEngine
from r1zero.verifiers import VerifierPool
from tests import ROOT
from tests.tiny_models import save_model, tiny_llama

NUM_PROBLEMS, K = 6, 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(tmp_path_factory.mktemp("model"), tiny_llama())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "sums.jsonl"
    rows = [{"id": f"p{i}", "problem": f"{i}+1=", "answer": str(i + 1), "level": i % 2} for i in range(NUM_PROBLEMS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def settings(model: str, data: str, tmp_path: Path) -> EvalSettings:
    return EvalSettings(
        checkpoint=model,
        suite=(data,),
        out=str(tmp_path / "eval"),
        template="plain",
        k=K,
        temperature=1.0,
        top_p=1.0,
        max_tokens=16,
        verifier="tests.some_verifiers:short",
        engine=EngineConfig(name="transformers"),
        batch=4,
        workers=1,
    )


def quiet(settings: EvalSettings, **options: Any) -> Finished:
    return run_eval(settings, say=lambda line: None, **options)


def files(folder: Path) -> dict[str, Any]:
    """What an evaluation wrote, but for the time each verification took, and the state of the source tree."""
    samples = [replace(s, seconds=0.0) for s in read_samples(folder / "sums" / "samples.jsonl")]
    results = read_results(folder)
    results["manifest"]["machine"].pop("git")
    return {"results": results, "samples": samples}


def test_an_evaluation_killed_and_resumed_leaves_the_files_of_one_that_was_not(
    settings: EvalSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quiet(replace(settings, out=str(tmp_path / "whole")))
    generate = TransformersEngine.generate
    calls_left = 0

    def stopped(self: TransformersEngine, *arguments: Any) -> Any:
        nonlocal calls_left
        calls_left -= 1
        if calls_left < 0:
            raise KeyboardInterrupt
        return generate(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(TransformersEngine, "generate", stopped)
        for done in (0, 1, 2):  # batches of 4 of the 18 samples
            calls_left = done
            with pytest.raises(KeyboardInterrupt):
                quiet(settings)
            assert not (Path(settings.out) / "results.json").exists()
    assert len(read_samples(Path(settings.out) / "sums" / "samples.jsonl")) == 12
    finished = quiet(settings)
    assert files(finished.folder) == files(whole.folder)
    assert len(read_samples(finished.folder / "sums" / "samples.jsonl")) == NUM_PROBLEMS * K
    # Once more, with nothing left to do: no engine starts, and the same file stands.
    assert files(quiet(settings).folder) == files(whole.folder)


def test_shards_draw_what_one_process_draws(settings: EvalSettings, tmp_path: Path) -> None:
    whole = quiet(replace(settings, out=str(tmp_path / "whole")))
    for i in (1, 0):
        assert quiet(replace(settings, shard=(i, 2))).results == ()
    left = sorted(path.name for path in (Path(settings.out) / "sums").iterdir())
    assert left == ["problems.jsonl", "samples.shard-0-of-2.jsonl", "samples.shard-1-of-2.jsonl"]
    done = quiet(settings)
    assert files(done.folder) == files(whole.folder)
    assert sorted(path.name for path in (done.folder / "sums").iterdir()) == ["problems.jsonl", "samples.jsonl"]


@pytest.mark.slow
def test_two_processes_side_by_side_draw_what_one_does(settings: EvalSettings, tmp_path: Path) -> None:
    whole = quiet(replace(settings, out=str(tmp_path / "whole"), verifier="answer"))
    draw_shards(replace(settings, verifier="answer"), 2)
    assert files(quiet(replace(settings, verifier="answer")).folder) == files(whole.folder)


def test_results_hold_the_figures_and_all_they_depend_on(settings: EvalSettings) -> None:
    done = quiet(settings)
    results = read_results(done.folder)
    figures = results["benchmarks"]["sums"]
    samples = read_samples(done.folder / "sums" / "samples.jsonl")
    assert (figures["n"], figures["k"]) == (NUM_PROBLEMS, K)
    assert figures["avg@k"] == pytest.approx(sum(s.correct for s in samples) / len(samples))
    assert 0 < figures["avg@k"] < 1  # else the test of compare and regrade below would show nothing
    assert figures["truncated"] == sum(s.finish_reason == "length" for s in samples) / len(samples) > 0
    assert set(figures["by"]["level"]) == {"0", "1"}
    facts = results["manifest"]["benchmarks"]["sums"]
    assert facts["sampling"] == {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "max_tokens": 16}
    assert facts["template"]["name"] == "plain"
    assert results["manifest"]["engine"]["name"] == "transformers"
    assert len(results["manifest"]["model_fingerprint"]) == 16
    assert "torch" in results["manifest"]["machine"]["versions"]
    assert "| sums (n=6, k=3) |" in (done.folder / "results.md").read_text(encoding="utf-8")


def test_other_settings_do_not_go_on_in_the_same_folder(settings: EvalSettings) -> None:
    quiet(settings)
    with pytest.raises(UserError, match=r"max_tokens was 16, is 8.*choose another --out"):
        quiet(replace(settings, max_tokens=8))


def test_settings_of_ones_own_get_folders_of_their_own(
    settings: EvalSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, again = quiet(replace(settings, out="")).folder, quiet(replace(settings, out="")).folder
    other = quiet(replace(settings, out="", max_tokens=8)).folder
    assert first == again != other
    assert first.parent == Path("runs/evals")


def test_grading_again_gives_the_same_and_another_verifier_says_what_changed(settings: EvalSettings) -> None:
    done = quiet(settings)
    with VerifierPool(workers=1) as pool:
        again = regrade(done.folder, pool)
        assert again.changes == ()
        assert read_results(again.folder)["benchmarks"] == read_results(done.folder)["benchmarks"]
        other = regrade(done.folder, pool, out=done.folder.with_name("other"), verifier="answer")
        with pytest.raises(UserError, match="would be lost"):
            regrade(done.folder, pool, out=done.folder)
    assert other.results[0].pass_at_1 == 0.0  # a random model answers nothing
    assert {c.before.correct for c in other.changes if c.before.finish_reason == "stop"} == {True}
    # Both graders on the same samples are unlike runs, and say so.
    with pytest.raises(UserError, match=r"verifier\.name is 'tests\.some_verifiers:short' and"):
        compare(done.folder, other.folder)
    assert compare(done.folder, other.folder, force=True).comparisons[0].paired.difference < 0


def test_a_run_compared_with_itself_has_no_difference(settings: EvalSettings) -> None:
    folder = quiet(settings).folder
    report = compare(folder, folder)
    (found,) = report.comparisons
    assert (found.paired.difference, found.paired.p_value, found.changed) == (0.0, 1.0, ())
    assert report.unlike == report.notes == ()


def test_another_temperature_is_refused_and_another_k_is_noted(settings: EvalSettings, tmp_path: Path) -> None:
    first = quiet(settings).folder
    hot = quiet(replace(settings, temperature=1.5, out=str(tmp_path / "hot"))).folder
    more = quiet(replace(settings, k=4, out=str(tmp_path / "more"))).folder
    with pytest.raises(UserError, match=r"sums: sampling.temperature is 1.0 and 1.5"):
        compare(first, hot)
    assert compare(first, more).notes == ("sums: k is 3 and 4",)


def test_a_lost_sample_is_an_error_and_not_a_smaller_denominator(settings: EvalSettings) -> None:
    folder = quiet(settings).folder
    path = folder / "sums" / "samples.jsonl"
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    with pytest.raises(UserError, match="1 of 18 samples are missing"):
        compare(folder, folder)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("results.json", "[]", "is not the result of an evaluation"),
        ("results.json", '{"benchmarks": {"sums": {}}, "manifest": {}}', "is not the result of an evaluation"),
        ("sums/problems.jsonl", "{}\n", "no whole evaluation"),
        ("sums/samples.jsonl", "{}\n", "line 1 is no sample"),
        ("sums/samples.jsonl", None, "cannot be read"),
    ],
)
def test_a_damaged_folder_is_named(file: str, text: str | None, message: str, tmp_path: Path) -> None:
    manifest = {"benchmarks": {"sums": {"k": 1, **dict.fromkeys(LIKE)}}, "checkpoint": "m", "machine": {"versions": {}}}
    folder = EvalFolder(tmp_path / "eval")
    folder.open(manifest)
    folder.start("sums", [Problem(id="p", prompt="1+1", answer="2")])
    (folder.path / "sums" / "samples.jsonl").write_text("one\n")
    folder.write_results({"benchmarks": {"sums": {}}, "manifest": manifest}, "")
    folder.close()
    (folder.path / file).unlink()
    if text is not None:
        (folder.path / file).write_text(text)
    with pytest.raises(UserError, match=message):
        compare(folder.path, folder.path)


def test_shards_hold_the_folder_together_and_each_its_share(tmp_path: Path) -> None:
    def take(shard: tuple[int, int] | None) -> EvalFolder:
        folder = EvalFolder(tmp_path / "eval")
        folder.open({"k": 1}, shard=shard)
        return folder

    first, second = take((0, 2)), take((1, 2))
    for taken in ((0, 2), None):  # the same share twice; the whole run before its shards are done
        with pytest.raises(UserError, match="in use by another process"):
            take(taken)
    first.close()
    second.close()
    whole = take(None)
    with pytest.raises(UserError, match="in use by another process"):
        take((0, 2))
    whole.close()


def test_the_best_template_is_found_by_trying_and_all_are_reported(settings: EvalSettings) -> None:
    done = quiet(replace(settings, template="best", template_slice=2, max_tokens=4, k=1, suite=settings.suite))
    trials = read_results(done.folder)["template_trials"]
    scores = {t["template"]: t["pass_at_1"] for t in trials if not t["skipped"]}
    assert "plain" in scores
    skipped = {t["template"]: t["skipped"] for t in trials if t["skipped"]}
    assert "needs a chat template" in skipped["boxed_chat"]
    chosen = read_results(done.folder)["manifest"]["benchmarks"]["sums"]["template"]["name"]
    assert scores[chosen] == max(scores.values())


def test_more_tokens_than_the_model_has_positions_are_cut_and_said(settings: EvalSettings) -> None:
    said: list[str] = []
    finished = run_eval(replace(settings, max_tokens=32_768, k=1, limit=2), say=said.append)
    # tests.tiny_models: 512 positions; `plain` around "0+1=" is the longest of the two prompts.
    longest = max(len(s.prompt) for s in finished.results[0].samples)
    facts = read_results(finished.folder)["manifest"]["benchmarks"]["sums"]
    assert facts["sampling"]["max_tokens"] == 512 - longest
    assert facts["max_tokens_asked"] == 32_768
    assert any("instead of 32768" in line for line in said)
    assert "of 32768" in (finished.folder / "results.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a checkpoint"),
        (["nowhere/at/all", "--suite", "math500"], "no model folder"),
        (["MODEL"], "say which benchmarks"),
        (["MODEL", "--suite", "math50"], "did you mean 'math500'"),
        (["MODEL", "--suite", "math500", "--data-dir", "nowhere"], "nowhere is no folder"),
        (["MODEL", "--suite", "missing.jsonl"], "missing.jsonl"),
        (["MODEL", "--suite", "DATA", "--protocol", "r2"], "unknown protocol 'r2'"),
        (["MODEL", "--suite", "DATA", "--template", "r0zero"], "did you mean 'r1zero'"),
        (["MODEL", "--suite", "DATA", "--verifier", "maths"], "did you mean 'math'"),
        (["MODEL", "--suite", "DATA,DATA", "--template", "plain"], "twice"),
        (["MODEL", "--suite", "DATA", "--shard", "2/2"], "must be I/N"),
        (["MODEL", "--suite", "DATA", "--shard", "0/2", "--data-parallel", "2"], "one"),
        (["MODEL", "--suite", "DATA", "--template", "plain", "--temperature", "nan"], "temperature must be 0"),
        (["MODEL", "--suite", "DATA", "--template", "plain", "--temperature", "0", "--k", "2"], "equal samples"),
        (["MODEL", "--suite", "DATA", "--template", "plain", "--top-p", "0"], "top-p must be above 0"),
        (["MODEL", "--suite", "DATA", "--template", "plain", "--min-p", "1"], "min-p must be 0"),
        (["--endpoint", "http://localhost:1/v1", "--model", "m", "--endpoint-mode", "completions"], "model's folder"),
        (["--endpoint", "http://localhost:1/v1", "--suite", "DATA"], "needs --model"),
        (["--regrade", "nowhere"], "holds no results.json"),
        (["decontaminate", "--suite", "math500"], "needs --train"),
    ],
)
def test_mistakes_are_one_line_that_says_what_to_do(
    arguments: list[str],
    message: str,
    model: str,
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [a.replace("MODEL", model).replace("DATA", data) for a in arguments]
    assert main(["eval", *given]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("r1zero: ")
    assert message in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []  # nothing half-written


@pytest.mark.parametrize(
    "argument", ["--seed=-1", "--top-k=-3", "--gpu-memory=2", "--timeout=nan", "--requests-per-minute=-1", "--k=0"]
)
def test_numbers_out_of_range_are_refused_by_the_parser(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["eval", "model", argument])
    assert argument.partition("=")[0] in capsys.readouterr().err


def test_the_commands_print_tables(model: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "out")
    options = ["--template", "plain", "--k", "2", "--max-tokens", "8", "--engine", "transformers", "--workers", "1"]
    assert main(["eval", model, "--suite", data, "--out", out, *options]) == 0
    printed = capsys.readouterr().out
    assert "avg@k" in printed
    assert "95% interval" in printed
    assert main(["compare", out, out]) == 0
    assert "+0.0" in capsys.readouterr().out
    assert main(["eval", "--regrade", out, "--workers", "1"]) == 0
    assert "0 verdicts changed" in capsys.readouterr().out
    assert main(["eval", "list"]) == 0
    assert "olympiadbench" in capsys.readouterr().out


def test_every_option_has_a_help_text_that_argparse_can_print() -> None:
    parser = argparse.ArgumentParser()
    eval_cli.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit, match="0"):
        parser.parse_args(["eval", "--help"])
