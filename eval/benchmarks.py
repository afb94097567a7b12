"""The benchmarks, one entry each: where its rows are, what a row means, how it is graded.

A row comes from the hub (through `datasets`) or from a local file of `--data-dir`, in the hub's fields or in ours
(`problem`, `answer`, ...), and gives the same `Problem` either way: ids are the row's number in the benchmark's own
order, levels are text, whole numbers are written as such. `fingerprint` hashes what the rows say.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from r1zero.config import DataConfig
from r1zero.data.datasets import fingerprint, last_boxed, load_problems
from r1zero.data.records import Problem
from r1zero.data.rows import SUFFIXES, read_file, read_hub
from r1zero.errors import UserError, unknown_name
from r1zero.verifiers import VerifierSpec

Fields = Mapping[str, Any]
EQUAL = VerifierSpec(name="math")
# Well over what the slowest reference solution takes on a loaded machine: a score must not depend on the machine.
TESTS = VerifierSpec(name="code", options={"timeout_seconds": 20.0})


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark's entry."""

    name: str
    title: str
    kind: Literal["contest", "math", "code"]
    """contest: a few dozen problems, so many samples each; protocols set k by kind."""
    hub: str
    """Hub dataset id."""
    split: str
    config: str = ""
    files: tuple[str, ...] = ()
    """Names, without suffix, under which a local copy is looked for."""
    row: Callable[[Fields], Problem | None]
    """A row's problem (id left empty), or None for a row of another split. Raises KeyError for a missing field."""
    num_problems: int
    """What the published benchmark has; another number is an error unless a limit was asked for."""
    verifier: VerifierSpec = EQUAL


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A benchmark's problems and how to grade them."""

    name: str
    problems: tuple[Problem, ...]
    verifier: VerifierSpec
    fingerprint: str
    """Of the problems' text, golds and tests, in order."""
    source: str
    """The hub id or the file they came from."""
    kind: str = "math"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else made them what they are: limit, seed, size."""


def _math(row: Fields) -> Problem:
    """A problem with a gold answer, in ours or the hubs' fields."""
    answer = row["answer"] if "answer" in row else row["final_answer"]
    if answer is None or isinstance(answer, bool | dict):
        raise TypeError(f"the answer is {answer!r}")
    if isinstance(answer, list):  # OlympiadBench: several golds of one row
        answer = ", ".join(part.strip().removeprefix("$").removesuffix("$") for part in answer)
    data = {}
    for key, names in {"level": ("level",), "subject": ("subject", "subfield", "type")}.items():
        found = next((row[name] for name in names if row.get(name) not in (None, "")), None)
        if found is not None:
            data[key] = str(found)
    return Problem(id="", prompt=_question(row), answer=str(answer).strip(), data=data)


def _question(row: Fields) -> str:
    question = row["problem"] if "problem" in row else row["question"]
    if not isinstance(question, str):
        raise TypeError(f"the question is {question!r}")
    return question


def _whole_number(row: Fields) -> Problem:
    """A contest's gold is a whole number; hubs write it 27, "27", "27.0" or "027"."""
    problem = _math(row)
    if not re.fullmatch(r"-?\d+(\.0+)?", problem.answer):
        return problem
    return Problem(id="", prompt=problem.prompt, answer=str(int(problem.answer.partition(".")[0])), data=problem.data)


def _minerva(row: Fields) -> Problem:
    """The hub's copies keep the whole solution in `answer` or `solution`: the gold is its last box."""
    problem = _math({**row, "answer": row.get("answer") or row["solution"]})
    return Problem(id="", prompt=problem.prompt, answer=last_boxed(problem.answer) or problem.answer, data=problem.data)


def _gsm8k(row: Fields) -> Problem:
    """The hub's `answer` is the solution with the gold after `####`; commas in numbers are dropped."""
    problem = _math(row)
    gold = problem.answer.rpartition("####")[2].strip().replace(",", "")
    return Problem(id="", prompt=problem.prompt, answer=gold, data={})


def _humaneval(row: Fields) -> Problem:
    """The signature and docstring are the question, from which the verifier also takes the imports and helpers that
    stand before the function."""
    tests = row["tests"] if "tests" in row else f"{row['test']}\n\ncheck({row['entry_point']})\n"
    question = (
        "Complete this Python function. Answer with the whole function, its imports included, in one ```python block."
        f"\n\n```python\n{row['prompt'].strip()}\n```"
    )
    return Problem(id="", prompt=question, data={"tests": _blank_lines(tests), "entry_point": row["entry_point"]})


def _mbpp(row: Fields) -> Problem | None:
    """The 500 problems of the test split (task ids 11 to 510). The tests are shown, as in arXiv 2108.07732: without
    them the function's name cannot be known."""
    number = int(row["task_id"] if "task_id" in row else str(row["id"]).rpartition("-")[2])
    if not 11 <= number <= 510:
        return None
    if "tests" in row:
        tests = str(row["tests"])
    else:
        tests = "\n".join([row["test_setup_code"], *row["test_list"]] if row["test_setup_code"] else row["test_list"])
    tests = tests.replace("\r\n", "\n").strip() + "\n"
    text = str(row["prompt"] if "prompt" in row else row["text"]).strip()
    question = f"{text}\nYour Python code, in one ```python block, must pass these tests:\n\n```python\n{tests}```"
    return Problem(id="", prompt=question, data={"tests": tests, "entry_point": _first_called(tests)})


def _first_called(tests: str) -> str:
    """The function under test: the innermost name that the first assert calls with the test's values, which is not a
    built-in wrapped around it (`assert set(f(x)) == ...`), unless only built-in names are called (MBPP 126 asks for a
    function `sum`)."""
    asserts = [node for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Assert)]
    calls = [node for first in asserts[:1] for node in ast.walk(first) if isinstance(node, ast.Call)]
    called = [call.func.id for call in calls if isinstance(call.func, ast.Name)]
    if not called:
        raise ValueError("the first assert of the tests calls no function")
    return next((name for name in called if not hasattr(builtins, name)), called[0])


def _blank_lines(code: str) -> str:
    """Copies differ in the blank lines around the tests."""
    return code.strip("\n") + "\n"


BENCHMARKS: dict[str, Benchmark] = {
    entry.name: entry
    for entry in (
        Benchmark(
            name="math500",
            title="MATH-500",
            kind="math",
            hub="HuggingFaceH4/MATH-500",
            split="test",
            files=("math500", "MATH-500"),
            row=_math,
            num_problems=500,
        ),
        Benchmark(
            name="aime2024",
            title="AIME 2024",
            kind="contest",
            hub="HuggingFaceH4/aime_2024",
            split="train",
            files=("aime2024", "aime24"),
            row=_whole_number,
            num_problems=30,
        ),
        Benchmark(
            name="aime2025",
            title="AIME 2025",
            kind="contest",
            hub="yentinglin/aime_2025",
            split="train",
            files=("aime2025", "aime25"),
            row=_whole_number,
            num_problems=30,
        ),
        Benchmark(
            name="amc2023",
            title="AMC 2023",
            kind="contest",
            hub="math-ai/amc23",
            split="test",
            files=("amc2023", "amc23"),
            row=_whole_number,
            num_problems=40,
        ),
        Benchmark(
            name="minerva",
            title="Minerva (OCW courses)",
            kind="math",
            hub="math-ai/minervamath",
            split="test",
            files=("minerva_math", "minerva"),
            row=_minerva,
            num_problems=272,
        ),
        Benchmark(
            name="olympiadbench",
            title="OlympiadBench (maths, English)",
            kind="math",
            hub="Hothan/OlympiadBench",
            config="OE_TO_maths_en_COMP",
            split="train",
            files=("olympiadbench_math_en", "olympiadbench"),
            row=_math,
            num_problems=675,
        ),
        Benchmark(
            name="gsm8k",
            title="GSM8K",
            kind="math",
            hub="openai/gsm8k",
            config="main",
            split="test",
            files=("gsm8k_test", "gsm8k"),
            row=_gsm8k,
            num_problems=1319,
        ),
        Benchmark(
            name="humaneval",
            title="HumanEval",
            kind="code",
            hub="openai/openai_humaneval",
            split="test",
            files=("humaneval", "HumanEval"),
            row=_humaneval,
            num_problems=164,
            verifier=TESTS,
        ),
        Benchmark(
            name="mbpp",
            title="MBPP (test split)",
            kind="code",
            hub="google-research-datasets/mbpp",
            config="full",
            split="test",
            files=("mbpp",),
            row=_mbpp,
            num_problems=500,
            verifier=TESTS,
        ),
    )
}
ALIASES = {"aime24": "aime2024", "aime25": "aime2025", "amc23": "amc2023", "math-500": "math500"}


def load(
    name: str,
    *,
    data_dir: str = "",
    limit: int = 0,
    seed: int = 0,
    size: int = 500,
    verifier: VerifierSpec | None = None,
) -> Loaded:
    """The problems of a benchmark, of `reasoning_gym:TASK`, of `tiny:arithmetic`, or of a data file.

    data_dir: a folder with local copies of the benchmarks; empty: the hub. limit: a benchmark's first so many, or as
    many of a file or a generated source, drawn with `seed`. size: how many a generated source makes. verifier: instead
    of the benchmark's own.
    Raises UserError for an unknown name, a missing file, a row without its fields (named), another number of rows.
    """
    name = ALIASES.get(name, name)
    if name in BENCHMARKS:
        return _load_benchmark(BENCHMARKS[name], data_dir, limit, verifier)
    is_file = name.endswith(SUFFIXES)
    if not (":" in name or is_file):
        raise unknown_name("benchmark", name, [*BENCHMARKS, "reasoning_gym:TASK", "tiny:arithmetic", "FILE.jsonl"])
    problems = load_problems(DataConfig(source=name, split="test", seed=seed, size=size, limit=limit))
    if is_file and verifier is None:  # one that was named may need neither answer nor tests
        _check_gradable(name, problems)
    return Loaded(
        name=_stem(name) if is_file else name.replace(":", "-"),
        problems=tuple(problems),
        verifier=verifier or _verifier_of(name, problems),
        fingerprint=fingerprint(problems),
        source=name,
        settings={"limit": limit, "seed": seed, **({} if is_file else {"size": size})},
    )


def _stem(path: str) -> str:
    """A file's name without its suffix and a hidden file's dot: what its samples' folder is called."""
    suffix = max((suffix for suffix in SUFFIXES if path.endswith(suffix)), key=len)
    return Path(path).name.removesuffix(suffix).lstrip(".") or "problems"


def _check_gradable(path: str, problems: Sequence[Problem]) -> None:
    """Raise UserError where one verifier cannot grade all rows."""
    broken = next((p for p in problems if "tests" in p.data and not _is_text(p.data["tests"])), None)
    if broken is not None:
        raise UserError(f"{path}: the tests of {broken.id!r} are no text: check the file")
    graded_by_tests = all("tests" in p.data for p in problems)
    lacking = next((p for p in problems if not p.answer and not graded_by_tests), None)
    if lacking is not None:
        raise UserError(f"{path}: {lacking.id!r} has no answer and others no tests: a file per kind of problem")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _verifier_of(source: str, problems: Sequence[Problem]) -> VerifierSpec:
    if source.startswith("reasoning_gym:"):
        return VerifierSpec(name="reasoning_gym")
    if source.startswith("tiny:"):
        return VerifierSpec(name="answer", options={"rules": ["answer_tag"]})  # as in the recipe tiny-cpu
    return TESTS if all("tests" in problem.data for problem in problems) else EQUAL


def _load_benchmark(entry: Benchmark, data_dir: str, limit: int, verifier: VerifierSpec | None) -> Loaded:
    path = _local_copy(entry, Path(data_dir)) if data_dir else None
    config = DataConfig(source=entry.hub, config=entry.config, split=entry.split)
    problems: list[Problem] = []
    for row in read_file(path) if path else read_hub(config):
        try:
            problem = entry.row(row.fields)
        except KeyError as error:
            raise UserError(
                f"{row.where}: no field {error}, so this is no row of {entry.title}: check the file"
            ) from None
        # What a field of another type, or tests that are no Python, raise on their way through `row`.
        except (TypeError, ValueError, AttributeError, SyntaxError) as error:
            raise UserError(f"{row.where}: not a row of {entry.title} ({error}): check the file") from None
        if problem is None:
            continue
        if not problem.prompt.strip() or not (problem.answer or "tests" in problem.data):
            raise UserError(f"{row.where}: an empty question or gold answer: check the file")
        if any("\ud800" <= c <= "\udfff" for c in problem.prompt + problem.answer):
            raise UserError(f"{row.where}: half of a UTF-16 pair (\\ud800 to \\udfff): not valid text")
        problems.append(replace(problem, id=f"{entry.name}-{len(problems):04d}", source=entry.name))
    source = str(path) if path else entry.hub
    # OlympiadBench's public copies differ by one row; anything else is a wrong or a cut file.
    if abs(len(problems) - entry.num_problems) > (entry.name == "olympiadbench"):
        raise UserError(f"{source} has {len(problems)} problems and {entry.title} has {entry.num_problems}")
    problems = problems[:limit] if limit else problems
    return Loaded(
        name=entry.name,
        problems=tuple(problems),
        verifier=verifier or entry.verifier,
        fingerprint=fingerprint(problems),
        source=source,
        kind=entry.kind,
        settings={"limit": limit},
    )


def _local_copy(entry: Benchmark, folder: Path) -> Path:
    """The benchmark's file in `folder` or one folder down. Raises UserError that lists the names looked for."""
    if not folder.is_dir():
        raise UserError(f"--data-dir {folder} is no folder")
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for stem in entry.files:
            for suffix in SUFFIXES:
                if (place / f"{stem}{suffix}").is_file():
                    return place / f"{stem}{suffix}"
    names = " or ".join(f"{stem}{{{','.join(SUFFIXES)}}}" for stem in entry.files)
    raise UserError(f"--data-dir {folder} has no copy of {entry.title}: looked for {names} in it and one folder down")
