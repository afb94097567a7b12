"""Evaluation: a checkpoint and a benchmark in, a score that its author can defend out, and every sample kept."""

from r1zero.eval.harness import evaluate
from r1zero.eval.result import EvalResult, summarise
from r1zero.eval.samples import EvalSample, read_samples, write_samples

__all__ = ["EvalResult", "EvalSample", "evaluate", "read_samples", "summarise", "write_samples"]
