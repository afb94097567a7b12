"""Where problems come from: one source, or several mixed by weight."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from r1zero.config.checks import require, require_least


@dataclass(frozen=True, kw_only=True)
class SourceConfig:
    """One place that problems come from, and how its rows are read."""

    source: str = ""
    """A .json/.jsonl(.gz)/.parquet file, a hub dataset id, `preset:NAME` (a public set: `r1zero data presets`),
    `reasoning_gym:TASK`, `tiny:arithmetic`, or `package.module:function` that makes rows from split, size, seed and
    `options`."""
    config: str = ""
    """The hub dataset's configuration (subset) name."""
    split: str = "train"
    """Split of a hub dataset, or of a generated source."""
    prompt_field: str = "problem"
    """Field that holds the question: a text, or chat messages (the last of the user is taken). Dots go inward:
    `prompt.0.content`."""
    answer_field: str = "answer"
    """Field that holds the gold answer; dots go inward. Empty: the rows have none (code with tests)."""
    filter: dict[str, list[Any]] = field(default_factory=dict)
    """Keep rows whose field has one of these values, such as {level: [3, 4, 5]}."""
    limit: int = 0
    """Keep the first so many rows after filter and shuffle; 0: all."""
    size: int = 1000
    """How many problems a generated source makes."""
    options: dict[str, Any] = field(default_factory=dict)
    """Parameters of a generated source, such as reasoning-gym's {min_terms: 2}; of a file or hub dataset how the answer
    is taken: {answer_after: "####"}, {answer_in: boxed} or {answer_in: json}."""
    verifier: str = ""
    """Judges these problems in place of `reward`'s first term, the accuracy term; empty: that term does."""
    verifier_options: dict[str, Any] = field(default_factory=dict)
    """Options of `verifier`."""
    verifier_field: str = ""
    """Field whose value names the verifier of its row, by `verifiers` where that has it; a row without uses
    `verifier`."""
    verifiers: dict[str, str] = field(default_factory=dict)
    """What the values of `verifier_field` mean, such as {gsm8k: math, ifeval: instructions}."""

    def __post_init__(self) -> None:
        require_least("", self, 0, "limit")
        require_least("", self, 1, "size")
        require(
            not self.verifiers or bool(self.verifier_field), "data.verifiers says what verifier_field means: set it"
        )
        require(
            not self.verifier_options or bool(self.verifier), "data.verifier_options are data.verifier's: set that too"
        )


@dataclass(frozen=True, kw_only=True)
class MixedSource(SourceConfig):
    """One source of several."""

    weight: float = 1.0
    """Its share of the prompts, against the other sources' weights."""
    name: str = ""
    """Its name in the metrics; empty: `source`."""

    @property
    def key(self) -> str:
        return self.name or self.source

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.source), "each of data.sources needs a source")
        require(self.weight > 0, f"the weight of source {self.key!r} must be above 0, got {self.weight}")


@dataclass(frozen=True, kw_only=True)
class DataConfig(SourceConfig):
    """Where problems come from."""

    sources: list[MixedSource] = field(default_factory=list)
    """Several sources in place of `source`, mixed by weight; each is read by its own settings, a verifier included."""
    folder: str = ""
    """A folder with local copies of hub datasets, as FOLDER/OWNER/NAME; one that is there is read instead of the
    hub."""
    seed: int = 0
    """Seed of the shuffle and of a generated source."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Questions that stand twice, spaces and case aside (of all sources together): keep them, or the first only."""
    solve_rate: list[float] = field(default_factory=list)
    """[lowest, highest] share of right answers, of rows whose `solve_rate` was measured (`r1zero data difficulty`):
    [0.1, 0.9] leaves out what is too hard and too easy to learn from. Empty: all."""
    max_prompt_tokens: int = 1024
    """Limit of one prompt with its template."""
    too_long: Literal["error", "skip"] = "error"
    """What to do with a prompt over the limit: refuse the run, or skip it (counted). It is never cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least("", self, 1, "max_prompt_tokens")
        require(not (self.source and self.sources), "data.source is one source, data.sources are several: set one")
        keys = [source.key for source in self.sources]
        require(len(set(keys)) == len(keys), f"data.sources: two sources are called the same, give them names: {keys}")
        bounds = self.solve_rate
        require(
            not bounds or (len(bounds) == 2 and 0 <= bounds[0] <= bounds[1] <= 1),
            f"data.solve_rate must be [lowest, highest] in 0 .. 1, got {bounds}",
        )
