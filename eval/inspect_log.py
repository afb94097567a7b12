"""A finished evaluation as Inspect logs (inspect_ai's EvalLog), so that `inspect view` shows every sample with its
verdict, the reason, and the thinking apart from the answer. Needs the package inspect_ai, which is not one of ours."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.folder import read_problems, read_results
from r1zero.eval.samples import EvalSample, read_samples
from r1zero.verifiers import Outcome

_THINKING = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def write_logs(folder: Path, out: Path | None = None) -> list[Path]:
    """One `.eval` file a benchmark, in `out` (default: FOLDER/inspect). Returns their paths.

    Raises UserError where inspect_ai is missing or the folder is no finished evaluation.
    """
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as error:
        raise UserError("Inspect logs need the package inspect_ai: pip install 'inspect_ai>=0.3.150'") from error
    results = read_results(folder)
    out = out or folder / "inspect"
    out.mkdir(parents=True, exist_ok=True)
    created = datetime.fromtimestamp((folder / "results.json").stat().st_mtime, tz=UTC).isoformat()
    paths = []
    for name in results["benchmarks"]:
        problems = {p.id: p for p in read_problems(folder, name)}
        samples = read_samples(folder / name / "samples.jsonl")
        path = out / f"{name.replace(':', '-').replace('/', '-')}.eval"
        write_eval_log(_log(name, results, problems, samples, created), str(path))
        paths.append(path)
    return paths


def _log(
    name: str, results: dict[str, Any], problems: dict[str, Problem], samples: list[EvalSample], created: str
) -> Any:
    from inspect_ai import log
    from inspect_ai.model import GenerateConfig

    manifest, figures = results["manifest"], results["benchmarks"][name]
    facts = manifest["benchmarks"][name]
    sampling = facts["sampling"]
    scorer = str(facts["verifier"]["name"])
    metrics = {
        key: log.EvalMetric(name=key, value=figures[key])
        for key in ("avg@k", "stderr", "truncated", "unparseable", "error")
        if figures[key] is not None
    }
    return log.EvalLog(
        status="success",
        eval=log.EvalSpec(
            created=created,
            task=name,
            model=f"r1zero/{manifest['checkpoint']}",
            dataset=log.EvalDataset(name=facts["source"], samples=len(problems), sample_ids=list(problems)),
            config=log.EvalConfig(epochs=figures["k"]),
            model_generate_config=GenerateConfig(
                temperature=sampling["temperature"], top_p=sampling["top_p"], max_tokens=sampling["max_tokens"]
            ),
            packages={key: str(value) for key, value in manifest["machine"]["versions"].items()},
            metadata={"manifest": manifest},
        ),
        results=log.EvalResults(
            total_samples=len(samples),
            completed_samples=sum(s.outcome is not Outcome.ERROR for s in samples),
            scores=[log.EvalScore(name=scorer, scorer=scorer, metrics=metrics)],
        ),
        samples=[_sample(s, problems[s.problem_id], scorer, str(manifest["checkpoint"])) for s in samples],
    )


def _sample(sample: EvalSample, problem: Problem, scorer: str, model: str) -> Any:
    from inspect_ai.log import EvalError
    from inspect_ai.log import EvalSample as InspectSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    answer = ChatMessageAssistant(content=_content(sample.completion), model=model)
    output = ModelOutput.from_message(answer, stop_reason="max_tokens" if sample.truncated else "stop")
    output.model = model
    output.usage = ModelUsage(output_tokens=sample.num_tokens, total_tokens=sample.num_tokens)
    failed = sample.outcome is Outcome.ERROR  # no score: Inspect would count any value of it
    score = Score(
        value=_VALUES.get(sample.outcome, "I"),
        answer=sample.extracted,
        explanation=f"{sample.outcome}: {sample.reason}",
        metadata=dict(sample.details),
    )
    return InspectSample(
        id=sample.problem_id,
        epoch=sample.index + 1,
        input=problem.prompt,
        target=problem.answer,
        messages=[ChatMessageUser(content=sample.prompt), answer],
        output=output,
        metadata={**problem.data, "outcome": str(sample.outcome), "finish_reason": sample.finish_reason},
        scores=None if failed else {scorer: score},
        error=EvalError(message=sample.reason, traceback="", traceback_ansi="") if failed else None,
    )


# Inspect's marks: correct, incorrect, no answer.
_VALUES = {Outcome.CORRECT: "C", Outcome.UNPARSEABLE: "N", Outcome.TRUNCATED: "N"}


def _content(completion: str) -> Any:
    """The turn with its think block, whole or cut off, as reasoning, which the viewer folds away; plain text where
    there is none."""
    from inspect_ai.model import ContentReasoning, ContentText

    found = _THINKING.match(completion.lstrip())
    if found is None:
        return completion
    return [ContentReasoning(reasoning=found[1].strip()), ContentText(text=completion.lstrip()[found.end() :].strip())]
