from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.folder import EvalFolder
from r1zero.eval.inspect_log import write_logs
from r1zero.eval.output import figures
from r1zero.eval.result import summarise
from r1zero.eval.samples import EvalSample
from r1zero.verifiers import Outcome

INSTALLED = importlib.util.find_spec("inspect_ai") is not None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished evaluation of one problem: a right answer after thinking, one cut off, one the endpoint never gave."""
    problem = Problem(id="p0", prompt="1+1", answer="2", data={"level": "1"})
    right = {"outcome": Outcome.CORRECT, "score": 1.0, "extracted": "2", "reason": "equal", "finish_reason": "stop"}
    cut = {"outcome": Outcome.TRUNCATED, "score": 0.0, "reason": "no answer", "finish_reason": "length"}
    lost = {"outcome": Outcome.ERROR, "score": None, "reason": "status 500", "finish_reason": "length", "failed": True}
    samples = [
        EvalSample(problem_id="p0", index=0, prompt="Q: 1+1", completion="<think>hm</think> 2", num_tokens=9, **right),
        EvalSample(problem_id="p0", index=1, prompt="Q: 1+1", completion="<think>hm", num_tokens=4, **cut),
        EvalSample(problem_id="p0", index=2, prompt="Q: 1+1", completion="", num_tokens=0, **lost),
    ]
    sampling = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 9}
    facts = {"source": "sums.jsonl", "k": 3, "sampling": sampling, "verifier": {"name": "math", "options": {}}}
    manifest = {"checkpoint": "m", "benchmarks": {"sums": facts}, "machine": {"versions": {"torch": "2"}}}
    target = EvalFolder(tmp_path / "eval")
    target.open(manifest)
    target.start("sums", [problem])
    target.finish("sums", samples)
    scores = {"sums": figures(summarise([problem], samples, 3, name="sums"))}
    target.write_results({"benchmarks": scores, "manifest": manifest}, "")
    target.close()
    return target.path


@pytest.mark.skipif(INSTALLED, reason="inspect_ai is installed")
def test_without_the_package_the_error_says_what_to_install(folder: Path) -> None:
    with pytest.raises(UserError, match="pip install 'inspect_ai"):
        write_logs(folder)


@pytest.mark.skipif(not INSTALLED, reason="inspect_ai is not installed")
def test_the_log_holds_verdicts_reasons_and_the_thinking_apart(folder: Path) -> None:
    from inspect_ai.log import read_eval_log

    (path,) = write_logs(folder)
    log = read_eval_log(str(path))
    assert (log.status, log.eval.task, log.eval.config.epochs) == ("success", "sums", 3)
    first, second, third = sorted(log.samples, key=lambda sample: sample.epoch)
    assert (first.scores["math"].value, first.scores["math"].answer) == ("C", "2")
    assert first.scores["math"].explanation == "correct: equal"
    assert first.messages[-1].content[0].reasoning == "hm"
    assert first.messages[-1].content[1].text == "2"
    assert (second.scores["math"].value, second.output.stop_reason) == ("N", "max_tokens")
    assert second.messages[-1].content[0].reasoning == "hm"  # cut while it thought
    assert (third.scores, third.error.message) == (None, "status 500")  # no value that could count as wrong
    assert json.loads(log.model_dump_json())["results"]["scores"][0]["metrics"]["avg@k"]["value"] == 0.5
