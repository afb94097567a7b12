"""What a score depends on, written down: two runs may be compared, and a killed one resumed, only where it agrees.

`like` is the part that decides whether two scores are of the same thing (data, template, sampling, grader); the rest
(engine, versions, seed) may move a score by noise and is reported, not refused.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from r1zero.eval.benchmarks import Loaded
from r1zero.rollout.base import Sampling
from r1zero.verifiers import VerifierSpec, get

Manifest = dict[str, Any]
LIKE = ("fingerprint", "num_problems", "sampling", "template", "verifier")
"""Facts of one benchmark that must agree for two scores to be comparable."""
_EDGE_BYTES = 1 << 20


def benchmark_facts(loaded: Loaded, sampling: Sampling, k: int, template: Mapping[str, Any]) -> dict[str, Any]:
    """One benchmark's entry in the manifest."""
    return {
        "source": loaded.source,
        "fingerprint": loaded.fingerprint,
        "num_problems": len(loaded.problems),
        "settings": dict(loaded.settings),
        "k": k,
        "sampling": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": sampling.min_p,
            "max_tokens": sampling.max_tokens,
        },
        "template": dict(template),
        "verifier": verifier_facts(loaded.verifier),
    }


def verifier_facts(spec: VerifierSpec) -> dict[str, Any]:
    """Name, options, and a hash of the code that grades: the grader's version, whoever wrote it."""
    return {"name": spec.name, "options": dict(spec.options), "fingerprint": grader_fingerprint(spec)}


def grader_fingerprint(spec: VerifierSpec) -> str:
    """Hash of the verifier's source and of the packages it leans on. 16 hex digits.

    A built-in's source is all of r1zero.verifiers, since its files share code; a plugin's is its own file.
    """
    digest = hashlib.sha256()
    source = Path(inspect.getsourcefile(get(spec.name).function) or "")
    package = Path(inspect.getsourcefile(get) or "").resolve().parent
    if source.resolve().is_relative_to(package):
        files = sorted(path for path in package.rglob("*.py"))
    else:
        files = [source]
    for file in files:
        digest.update(file.read_bytes())
    for name in ("sympy", "math-verify", "latex2sympy2-extended"):
        try:
            digest.update(f"{name} {version(name)}\n".encode())
        except PackageNotFoundError:
            continue
    return digest.hexdigest()[:16]


def model_fingerprint(folder: Path) -> str:
    """Hash of a model folder that sees any training step: names, sizes, and both ends of each weight file. 16 hex
    digits; empty where the path is no folder (a hub id)."""
    if not folder.is_dir():
        return ""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".safetensors", ".bin", ".json", ".model", ".jinja") or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_EDGE_BYTES))
            # Every tensor moves in training; the middle of a 60 GB file need not be read to see it.
            file.seek(max(0, size - _EDGE_BYTES))
            digest.update(file.read(_EDGE_BYTES))
    return digest.hexdigest()[:16]


def differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two manifests differ: dotted key, value in a, value in b."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted({*a, *b}, key=str):
            yield from differences(a.get(key), b.get(key), f"{path}.{key}" if path else str(key))
    elif a != b:
        yield path, a, b
