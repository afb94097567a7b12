"""Episodes: what the policy said and what it was told, in turn. A single completion is an episode of one turn.

Tokens stand as the engine saw them, from the prompt's first to the last: each turn's completion was sampled after
exactly the ids before it, so nothing is decoded and tokenised again. Importable without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Verdict

EpisodeEnd = Literal["stop", "length", "turns", "tool_error"]
"""`stop`: the policy ended it, or the environment gave its verdict; `length`: the token budget; `turns`: the turn
budget; `tool_error`: the environment hung, crashed or answered nonsense, which is ours and not the policy's."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What the policy said once, and what came back."""

    completion: Completion
    """The policy's own tokens."""
    observation: str = ""
    """What the environment answered, as text; empty where the episode ended here."""
    observation_ids: tuple[int, ...] = ()
    """(O,) all tokens between this completion and the next: the template's turn marks and the observation."""
    reward: float | None = None
    """Of this turn, where the environment rewards by turn."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A prompt and the turns that followed."""

    prompt_ids: tuple[int, ...]
    """(P,) before the first turn."""
    turns: tuple[Turn, ...]
    """One or more; the last has no observation."""
    finish_reason: EpisodeEnd
    verdict: Verdict | None = None
    """The environment's; None where it gave none, and the verifiers judge as they judge any completion."""
    reason: str = ""
    """Of a `tool_error`: what happened."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """(T,) everything after the prompt, in the order the engine saw it."""
        return tuple(i for turn in self.turns for i in (*turn.completion.token_ids, *turn.observation_ids))

    @property
    def own(self) -> tuple[bool, ...]:
        """(T,) True on the policy's own tokens: what is trained on."""
        return tuple(
            own
            for turn in self.turns
            for own in (*[True] * turn.completion.num_tokens, *[False] * len(turn.observation_ids))
        )

    @property
    def logprobs(self) -> tuple[float, ...]:
        """(T,) the engine's, on the policy's own tokens; 0 elsewhere, where there is none."""
        return tuple(
            value for turn in self.turns for value in (*turn.completion.logprobs, *[0.0] * len(turn.observation_ids))
        )

    @property
    def num_tokens(self) -> int:
        """Tokens after the prompt, the environment's too."""
        return sum(turn.completion.num_tokens + len(turn.observation_ids) for turn in self.turns)

    @property
    def num_own_tokens(self) -> int:
        return sum(turn.completion.num_tokens for turn in self.turns)

    @property
    def text(self) -> str:
        """What the policy said in its last turn: what a verifier judges."""
        return self.turns[-1].completion.text

    def per_token(self, rewards: Mapping[int, float]) -> tuple[float, ...]:
        """(T,) `rewards[turn index]` on that turn's last own token, else 0: how rewards by turn meet a token's."""
        values: list[float] = []
        for index, turn in enumerate(self.turns):
            own = turn.completion.num_tokens
            values += [0.0] * (own - 1) + [rewards.get(index, 0.0)] + [0.0] * len(turn.observation_ids)
        return tuple(values)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long an episode may go on."""

    max_turns: int = 1
    """Completions of one episode."""
    max_tokens: int = 1024
    """Tokens after the prompt, the environment's too."""

    def __post_init__(self) -> None:
        if self.max_turns < 1 or self.max_tokens < 1:
            raise ValueError(f"an episode has at least one turn and one token, got {self}")


@dataclass(frozen=True, kw_only=True)
class EpisodeGroup:
    """One problem's episodes: the group whose mean reward is the baseline."""

    problem: Problem
    episodes: tuple[Episode, ...]
