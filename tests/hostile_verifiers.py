"""Verifiers that misbehave on demand; the pool's workers import this module by name."""

from __future__ import annotations

import collections
import ctypes
import itertools
import os
import subprocess
import sys
import time

from r1zero.verifiers import Outcome, Sample, Verdict, register

EXAMPLE = Sample(completion="ok")


@register("hostile", example=EXAMPLE)
def hostile(completion: str) -> Verdict:
    """Does what `completion` says; `correct` where it says nothing of the kind."""
    deed, _, argument = completion.partition(" ")
    match deed:
        case "sleep":
            time.sleep(float(argument))
        case "spin":
            while True:
                pass
        case "spin_in_c":
            # One C call without end that holds the interpreter lock: no signal handler and no thread gets to run.
            collections.deque(itertools.repeat(0), maxlen=0)
        case "power":
            _ = 7 ** (7**10)
        case "recurse":
            hostile(completion)
        case "crash":
            ctypes.string_at(0)  # reads address 0
        case "exit":
            os._exit(int(argument))
        case "sys_exit":
            sys.exit(0)
        case "raise":
            raise ValueError(argument)
        case "interrupt":
            raise KeyboardInterrupt
        case "memory":
            _ = bytearray(int(argument))
        case "child":
            subprocess.Popen(["sleep", argument])
            time.sleep(float(argument))
        case "print":
            print("CORRECT" * 1000, flush=True)
        case "none":
            return None  # type: ignore[return-value]
        case "nan":
            return Verdict(Outcome.CORRECT, score=float("nan"))
        case "object":
            return Verdict(Outcome.CORRECT, details={"x": object()})
        case "pid":
            return Verdict(Outcome.CORRECT, extracted=str(os.getpid()))
        case "main":
            return Verdict(Outcome.CORRECT, extracted=str("torch" in sys.modules))
        case "long":
            return Verdict(Outcome.CORRECT, extracted="x" * int(argument))
    return Verdict(Outcome.CORRECT, extracted=completion)
