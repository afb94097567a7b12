"""Run and evaluation folders made for the tests, by the project's own writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from r1zero.data.records import Problem
from r1zero.eval.folder import EvalFolder
from r1zero.eval.output import figures
from r1zero.eval.result import summarise
from r1zero.eval.samples import EvalSample
from r1zero.runs.folder import RunFolder
from r1zero.verifiers import Outcome

TERMS = [{"verifier": "answer", "weight": 1.0, "name": "paid"}, {"verifier": "math", "weight": 0.0, "name": "truth"}]

HOSTILE = (
    "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'></script ></script\n>"
    "<think>\x00\x1b[31m\x08 &lt;b&gt; \u202eright to left\u202c \u200b</think><answer>{{ 7 * 7 }}</answer>"
    "]]> <!-- <script> \u2028 "
)


def completion(text: str, *, paid: bool, truth: bool, problem: str = "p0", prompt: str = "1+2=") -> dict[str, Any]:
    """A row of a rollouts file; the reward is 1 where `paid`."""

    def verdict(right: bool) -> dict[str, Any]:
        outcome = "correct" if right else "wrong"
        return {"outcome": outcome, "score": float(right), "reason": f"it is {outcome}", "extracted": "3"}

    return {
        "problem_id": problem,
        "question": prompt,
        "answer": "3",
        "data": {},
        "prompt": prompt,
        "sample": 0,
        "completion": text,
        "finish_reason": "stop",
        "num_tokens": len(text.split()),
        "verdicts": {"paid": verdict(paid), "truth": verdict(truth)},
        "scores": {},
        "reward": float(paid),
        "advantage": 0.5 if paid else -0.5,
    }


def run_folder(
    root: Path,
    name: str,
    steps: Mapping[int, Sequence[Mapping[str, Any]]],
    metrics: Callable[[int], Mapping[str, Any]] = lambda step: {},
    *,
    seed: int = 0,
) -> Path:
    """A GRPO run with these rollouts; its metrics are the rewards' means and what `metrics` adds."""
    folder = RunFolder(root, name)
    folder.open()
    folder.write_config(
        {
            "stage": "grpo",
            "model": {"path": "tiny:arithmetic"},
            "data": {"source": "tiny:arithmetic", "seed": seed},
            "reward": {"terms": TERMS},
            "run": {"name": name, "root": str(root), "seed": seed, "steps": len(steps)},
        }
    )
    folder.write_manifest({"seed": seed, "command": ["/somewhere/r1zero", "train", "tiny-cpu", "--run.name", "a b"]})
    for step, rows in steps.items():
        mean = {
            f"reward/{term}/score": sum(row["verdicts"][term]["score"] for row in rows) / len(rows)
            for term in ("paid", "truth")
        }
        reward = sum(row["reward"] for row in rows) / len(rows)
        folder.log(
            {"step": step, "reward/mean": reward, **mean, "time/rollout": 1.0, "time/step": 2.0, **metrics(step)}
        )
        folder.save_rollouts(step, rows)
    folder.close()
    return folder.path


def eval_folder(path: Path, right: Sequence[bool], text: str = "the answer") -> Path:
    """A finished evaluation of one sample a question; `right` says which are."""
    problems = [Problem(id=f"q{i}", prompt=f"question {i}", answer=str(i)) for i in range(len(right))]
    samples = [
        EvalSample(
            problem_id=problem.id,
            index=0,
            prompt=problem.prompt,
            completion=f"{text} {i} {'good' if right[i] else 'bad'}",
            num_tokens=3,
            finish_reason="stop",
            outcome=Outcome.CORRECT if right[i] else Outcome.WRONG,
            score=float(right[i]),
            answer=problem.answer,
        )
        for i, problem in enumerate(problems)
    ]
    facts = {"fingerprint": "f", "num_problems": len(right), "sampling": {}, "template": {}, "verifier": {}, "k": 1}
    manifest = {"benchmarks": {"sums": facts}, "checkpoint": str(path.name), "machine": {"versions": {}}}
    folder = EvalFolder(path)
    folder.open(manifest)
    folder.start("sums", problems)
    folder.finish("sums", samples)
    entry = figures(summarise(problems, samples, 1, name="sums"))
    folder.write_results({"manifest": manifest, "benchmarks": {"sums": entry}}, "")
    folder.close()
    return path
