"""Step time by arithmetic for models and clusters that are not at hand: `r1zero plan --scale`.

A step has five parts: rollout (reading weights and keys), verification, training (FLOPs), the exchange of gradients,
the sync of weights to the engines. Synchronous, they follow one another on all devices; with staleness, devices are
dealt between rollout and training so that both take equally long, and the longer part is the step.
"""

from __future__ import annotations

from dataclasses import dataclass

from r1zero.models.memory_plan import Shape, forward_flops, training_flops
from r1zero.pipelines.plan import DECODE_SHARE, GIB, TRAIN_SHARE, Device

SHAPES = {
    "1.5B": Shape(
        layers=28, hidden=1536, intermediate=8960, heads=12, kv_heads=2, head_dim=128, vocab=151_936, tied=True
    ),
    "7B": Shape(
        layers=28, hidden=3584, intermediate=18_944, heads=28, kv_heads=4, head_dim=128, vocab=152_064, tied=False
    ),
    "32B": Shape(
        layers=64, hidden=5120, intermediate=27_648, heads=40, kv_heads=8, head_dim=128, vocab=152_064, tied=False
    ),
}
"""Qwen2.5's, from their config.json."""
H100 = Device(gib=80, tflops=989, bandwidth=3350)
GPUS = (1, 8, 64, 512)
NODE = 8
NODE_LINK, NETWORK = 450e9, 50e9
"""Bytes/s that a device exchanges within its node (NVLink 4, one way) and beyond it (400 Gb/s), full rate."""
VERIFY_SECONDS, CORES = 0.005, 16
"""Processor seconds of one mathematical verification; cores beside each device."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One step's rollout."""

    completions: int = 8192
    prompt: int = 256
    mean: int = 2000
    """Tokens of a mean completion."""
    longest: int = 8000
    """Tokens of the longest one, which the synchronous step waits for."""


def parts(shape: Shape, count: int, work: Work, *, share: float = 1.0) -> dict[str, float]:
    """Seconds of each part with `count` devices; `share` of them generate, the others train (1: all do both)."""
    makers = count if share == 1 else max(1.0, count * share)
    trainers = count if share == 1 else max(1.0, count * (1 - share))
    weights = 2 * shape.total
    # Tensor parallel over as few devices as leave half of their memory to keys and values.
    span = next((n for n in (1, 2, 4, 8) if weights / n < H100.gib * GIB / 2), NODE)
    replicas = max(1.0, makers / span)
    room = span * (H100.gib * GIB * 0.9) - weights
    fit = room / ((work.prompt + work.mean) * shape.kv_bytes(2))
    batch = max(1.0, min(work.completions / replicas, fit))
    rounds = work.completions / replicas / batch
    rate, reads = span * H100.tflops * 1e12 * TRAIN_SHARE, span * H100.bandwidth * 1e9 * DECODE_SHARE
    step = max(
        (weights + batch * (work.prompt + work.mean / 2) * shape.kv_bytes(2)) / reads,
        batch * forward_flops(shape, 1, work.mean) / rate,
    )
    alone = weights / reads
    # The mean completion's tokens with a full batch; the tail of the longest one with an almost empty engine.
    rollout = rounds * work.mean * step + (work.longest - work.mean) * alone * (1 if share == 1 else 0)
    tokens = work.completions * (work.mean + work.prompt / 8)
    train = training_flops(shape, int(tokens), work.mean, checkpointing=True)
    link = NODE_LINK if trainers <= NODE else NETWORK
    return {
        "rollout": rollout,
        "verify": work.completions * VERIFY_SECONDS / (count * CORES),
        "train": train / (trainers * H100.tflops * 1e12 * TRAIN_SHARE),
        # Ring all-reduce of float32 gradients: twice their bytes, (n - 1) / n of them.
        "gradients": 0.0 if trainers <= 1 else 2 * 4 * shape.total * (trainers - 1) / trainers / link,
        "sync": weights / (NODE_LINK if count <= NODE else NETWORK),
    }


def fits(shape: Shape, count: int) -> bool:
    """Whether float32 weights, gradients and optimizer fit, sharded over all devices, in 0.8 of their memory."""
    return 16 * shape.total / count < 0.8 * H100.gib * GIB


def step_seconds(shape: Shape, count: int, work: Work, *, stale: bool) -> tuple[float, str]:
    """`(seconds of a step, the part that binds)`."""
    if not stale:
        found = parts(shape, count, work)
        return sum(found.values()), max(found, key=lambda name: found[name])
    best: tuple[float, str] | None = None
    for tenth in range(1, 20):
        found = parts(shape, count, work, share=tenth / 20)
        sides = {"rollout": found["rollout"], "train": found["train"] + found["gradients"], "verify": found["verify"]}
        name = max(sides, key=lambda side: sides[side])
        candidate = (sides[name] + found["sync"], name)
        best = candidate if best is None else min(best, candidate)
    assert best is not None
    return best


def table(work: Work | None = None) -> str:
    """The table of step times, with what it assumes."""
    work = work or Work()
    lines = [
        f"{work.completions} completions, mean {work.mean} and longest {work.longest} tokens, H100-80: "
        f"{TRAIN_SHARE:.0%} of the matrix rate, {DECODE_SHARE:.0%} of the bandwidth (assumed, not measured)",
        f"{'model':6}{'GPUs':>6}{'synchronous s':>15}  {'binds':10}{'stale s':>9}  {'binds':10}{'gain':>6}",
    ]
    for name, shape in SHAPES.items():
        for count in GPUS:
            if not fits(shape, count):
                lines.append(f"{name:6}{count:6}{'does not fit':>15}")
                continue
            one, binds = step_seconds(shape, count, work, stale=False)
            if count == 1:
                lines.append(f"{name:6}{count:6}{one:15.1f}  {binds:10}{'-':>9}  one device has nothing to overlap")
                continue
            two, then = step_seconds(shape, count, work, stale=True)
            lines.append(f"{name:6}{count:6}{one:15.1f}  {binds:10}{two:9.1f}  {then:10}{one / two:6.2f}")
    return "\n".join(lines)
