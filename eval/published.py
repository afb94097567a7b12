"""The published benchmarks, one entry each: where its rows are, what a row means, how it is graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from r1zero.data.records import Problem
from r1zero.eval import benchmark_rows as rows
from r1zero.verifiers import VerifierSpec

Fields = Mapping[str, Any]
CHOICE = VerifierSpec(name="choice")
EQUAL = VerifierSpec(name="math")
# Well over what the slowest reference solution takes on a loaded machine: a score must not depend on the machine.
TESTS = VerifierSpec(name="code", options={"timeout_seconds": 20.0})


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One benchmark's entry."""

    name: str
    title: str
    kind: Literal["contest", "math", "code", "choice", "instructions"]
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
            row=rows.math_row,
            num_problems=500,
        ),
        Benchmark(
            name="aime2024",
            title="AIME 2024",
            kind="contest",
            hub="HuggingFaceH4/aime_2024",
            split="train",
            files=("aime2024", "aime24"),
            row=rows.whole_number_row,
            num_problems=30,
        ),
        Benchmark(
            name="aime2025",
            title="AIME 2025",
            kind="contest",
            hub="yentinglin/aime_2025",
            split="train",
            files=("aime2025", "aime25"),
            row=rows.whole_number_row,
            num_problems=30,
        ),
        Benchmark(
            name="amc2023",
            title="AMC 2023",
            kind="contest",
            hub="math-ai/amc23",
            split="test",
            files=("amc2023", "amc23"),
            row=rows.whole_number_row,
            num_problems=40,
        ),
        Benchmark(
            name="minerva",
            title="Minerva (OCW courses)",
            kind="math",
            hub="math-ai/minervamath",
            split="test",
            files=("minerva_math", "minerva"),
            row=rows.minerva_row,
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
            row=rows.math_row,
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
            row=rows.gsm8k_row,
            num_problems=1319,
        ),
        Benchmark(
            name="humaneval",
            title="HumanEval",
            kind="code",
            hub="openai/openai_humaneval",
            split="test",
            files=("humaneval", "HumanEval"),
            row=rows.humaneval_row,
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
            row=rows.mbpp_row,
            num_problems=500,
            verifier=TESTS,
        ),
        *(
            Benchmark(
                name=name,
                title=title,
                kind="contest",
                hub=f"MathArena/{hub}",
                split="train",
                files=(name, hub),
                row=row,
                num_problems=30,
            )
            for name, title, hub, row in (
                ("aime2026", "AIME 2026", "aime_2026", rows.whole_number_row),
                ("hmmt2025", "HMMT February 2025", "hmmt_feb_2025", rows.math_row),
                ("brumo2025", "BRUMO 2025", "brumo_2025", rows.math_row),
            )
        ),
        Benchmark(
            name="gpqa-diamond",
            title="GPQA-Diamond",
            kind="choice",
            hub="Idavidrein/gpqa",
            config="gpqa_diamond",
            split="train",
            files=("gpqa_diamond", "gpqa-diamond"),
            row=rows.gpqa_row,
            num_problems=198,
            verifier=CHOICE,
        ),
        Benchmark(
            name="mmlu-pro",
            title="MMLU-Pro",
            kind="choice",
            hub="TIGER-Lab/MMLU-Pro",
            split="test",
            files=("mmlu_pro", "mmlu-pro"),
            row=rows.mmlu_pro_row,
            num_problems=12_032,
            verifier=CHOICE,
        ),
        Benchmark(
            name="ifeval",
            title="IFEval",
            kind="instructions",
            hub="google/IFEval",
            split="train",
            files=("ifeval", "IFEval"),
            row=rows.ifeval_row,
            num_problems=541,
            verifier=VerifierSpec(name="instructions"),
        ),
        Benchmark(
            name="livecodebench",
            title="LiveCodeBench (release 6)",
            kind="code",
            hub="livecodebench/code_generation_lite",
            config="release_v6",
            split="test",
            files=("livecodebench", "livecodebench_v6"),
            row=rows.livecodebench_row,
            num_problems=1055,
            verifier=TESTS,
        ),
    )
}
ALIASES = {
    "aime24": "aime2024",
    "aime25": "aime2025",
    "aime26": "aime2026",
    "amc23": "amc2023",
    "gpqa": "gpqa-diamond",
    "math-500": "math500",
}
