"""The `code` verifier on HumanEval, MBPP and real GPT-4 outputs: what it accepts, and whether plain execution agrees.

    python tests/bench/bench_code.py [--mutants 4] [--workers 2] [--data FOLDER]

Reference programs must pass. Mutants (one small change each, tests/mutants.py) must fail, or survive plain execution
too: those are listed, and are equivalent to the original or beyond what the data set's tests can see. Plain execution:
program and tests in one interpreter, as a script in the sandbox.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from r1zero.data.records import Problem  # noqa: E402
from r1zero.verifiers import Sample, Verdict, VerifierPool, VerifierSpec  # noqa: E402
from tests.mutants import mutants  # noqa: E402

SPEC = VerifierSpec(name="code", options={"timeout_seconds": 20.0})
QUICK = VerifierSpec(name="code", options={"timeout_seconds": 3.0})  # a mutant may loop for ever
DEADLINE_SECONDS = 30.0


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def problem(row: dict[str, Any]) -> Problem:
    data = {"tests": row["tests"], "entry_point": row["entry_point"]}
    return Problem(id=row["id"], prompt=row["prompt"], data=data)


def plainly(program: str, row: dict[str, Any]) -> Sample:
    """Program and tests as one script that says `end` when no assert failed."""
    quiet = "import sys as _sys, io as _io\n_out, _sys.stdout = _sys.stdout, _io.StringIO()\n"
    source = f"{quiet}{program}\n{row['tests']}\n_out.write('end')\n"
    script = Problem(id=row["id"], prompt="", data={"stdin_tests": [{"input": "", "output": "end"}]})
    return Sample(completion=f"~~~~~python\n{source}\n~~~~~", problem=script)


def check_references(pool: VerifierPool, name: str, rows: list[dict[str, Any]]) -> None:
    began = time.perf_counter()
    samples = [Sample(completion=fenced(row["canonical_solution"]), problem=problem(row)) for row in rows]
    verdicts = pool.verify((SPEC, sample) for sample in samples)
    seconds = time.perf_counter() - began
    passed = sum(verdict.correct for verdict in verdicts)
    print(f"{name}: {passed}/{len(rows)} reference programs pass ({1e3 * seconds / len(rows):.1f} ms a program)")
    show(rows, [""] * len(rows), [None if verdict.correct else verdict for verdict in verdicts])


def check_mutants(pool: VerifierPool, name: str, rows: list[dict[str, Any]], count: int) -> None:
    of, labels, programs = [], [], []
    for row in rows:
        head = row["prompt"] if name == "HumanEval" else ""
        for label, program in mutants(head + row["canonical_solution"], row["entry_point"], count, head.count("\n")):
            of.append(row)
            labels.append(label)
            programs.append(program)
    pairs = list(zip(programs, of, strict=True))
    ours = pool.verify((QUICK, Sample(completion=fenced(program), problem=problem(row))) for program, row in pairs)
    plain = pool.verify((QUICK, plainly(program, row)) for program, row in pairs)
    agree = sum(mine.correct == theirs.correct for mine, theirs in zip(ours, plain, strict=True))
    outcomes = dict(Counter(verdict.outcome.value for verdict in ours))
    print(f"{name}: {len(pairs)} mutants: {outcomes}; plain execution agrees on {agree}. Accepted or disputed:")
    odd = [m if m.correct or m.correct != t.correct else None for m, t in zip(ours, plain, strict=True)]
    marks = [
        f"{'' if m.correct == t.correct else 'DISPUTED '}{text}" for m, t, text in zip(ours, plain, labels, strict=True)
    ]
    show(of, marks, odd)


def check_outputs(pool: VerifierPool, outputs: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    by_id = {row["id"]: row for row in rows}
    of = [by_id[output["problem_id"]] for output in outputs]
    samples = [Sample(completion=o["output"], problem=problem(row)) for o, row in zip(outputs, of, strict=True)]
    verdicts = pool.verify((SPEC, sample) for sample in samples)
    odd = [None if v.correct == o["correct"] else v for v, o in zip(verdicts, outputs, strict=True)]
    print(f"GPT-4 outputs: {odd.count(None)}/{len(outputs)} agree with their labels")
    show(of, [f"label {output['correct']}" for output in outputs], odd)


def fenced(program: str) -> str:
    return f"~~~~~python\n{program}\n~~~~~"  # a fence that no program holds


def show(rows: list[dict[str, Any]], labels: list[str], verdicts: list[Verdict | None]) -> None:
    for row, label, verdict in zip(rows, labels, verdicts, strict=True):
        if verdict is not None:
            print(f"  {row['id']}: {' '.join(label.split())[:100]}: {verdict.outcome} {verdict.reason[:200]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=4, help="a program")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "code")
    args = parser.parse_args()
    humaneval, mbpp = read(args.data / "humaneval.jsonl"), read(args.data / "mbpp.jsonl")
    with VerifierPool(workers=args.workers, deadline_seconds=DEADLINE_SECONDS) as pool:
        check_references(pool, "HumanEval", humaneval)
        check_references(pool, "MBPP", mbpp)
        check_outputs(pool, read(args.data / "outputs_humaneval_gpt4.jsonl"), humaneval)
        for name, rows in (("HumanEval", humaneval), ("MBPP", mbpp)):
            check_mutants(pool, name, rows, args.mutants)


if __name__ == "__main__":
    main()
