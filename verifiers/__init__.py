"""Verifiers: completion text and gold answer in, `Verdict` out. Imports no torch; see `registry` for how to add one."""

from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.registry import Sample, Verifier, VerifierSpec, get, names, register, resolve
from r1zero.verifiers.running.pool import VerifierPool

__all__ = [
    "Outcome",
    "Sample",
    "Verdict",
    "Verifier",
    "VerifierPool",
    "VerifierSpec",
    "get",
    "names",
    "register",
    "resolve",
]
