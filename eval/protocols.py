"""How a score is sampled: published protocols by name, each with its source; what a result is compared under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from r1zero.errors import unknown_name
from r1zero.eval.benchmarks import Loaded


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Sampling settings of one paper's evaluation."""

    name: str
    source: str
    temperature: float
    top_p: float
    max_tokens: int
    k: Mapping[str, int]
    """Samples a problem by benchmark; a kind (`contest`, `math`, `code`, `choice`, `instructions`) stands for the
    benchmarks of that kind not named."""

    def samples_of(self, loaded: Loaded) -> int:
        return self.k.get(loaded.name, self.k[loaded.kind])


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="r1",
            source="DeepSeek-R1, arXiv 2501.12948 app. D.1: k is 64 on AIME and 16 on MATH; on the others it is ours",
            temperature=0.6,
            top_p=0.95,
            max_tokens=32_768,
            k={"contest": 64, "math": 16, "gsm8k": 4, "code": 8, "choice": 4, "instructions": 1},
        ),
        Protocol(
            name="dapo",
            source="DAPO, arXiv 2503.14476 and its eval script: mean@32, T 1.0, top-p 0.7, 20,480 tokens",
            temperature=1.0,
            top_p=0.7,
            max_tokens=20_480,
            k={"contest": 32, "math": 32, "gsm8k": 4, "code": 8, "choice": 4, "instructions": 1},
        ),
        Protocol(
            name="oat-greedy",
            source="Oat-Zero, arXiv 2503.20783 and its evaluate_model.py: greedy, one sample, 3,000 tokens",
            temperature=0.0,
            top_p=1.0,
            max_tokens=3_000,
            k={"contest": 1, "math": 1, "code": 1, "choice": 1, "instructions": 1},
        ),
        Protocol(
            name="qwen",
            source="Qwen2.5-Math, arXiv 2409.12122 and its evaluation folder: greedy, one sample, 2,048 tokens",
            temperature=0.0,
            top_p=1.0,
            max_tokens=2_048,
            k={"contest": 1, "math": 1, "code": 1, "choice": 1, "instructions": 1},
        ),
    )
}


def get(name: str) -> Protocol:
    """The protocol called so. Raises UserError with the near names."""
    if name not in PROTOCOLS:
        raise unknown_name("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
