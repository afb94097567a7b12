"""Evaluation: a checkpoint and a benchmark in, a score that its author can defend out, and every sample kept.

`harness.evaluate` does the work; training calls it at its intervals. `run.run_eval` is `r1zero eval`. Nothing is
imported here, so that the command line's help needs no torch.
"""
