"""The runner: problems in, groups of episodes out. Between the engine and the advantages; a single turn goes through
it too, and is then exactly the engine's one call.

    prompts -> generate -> step -> observation -> generate -> ... -> episodes

An environment answers in its own process while the engine samples: whoever is answered goes into the next call, and
nobody waits for a slow tool of another episode. What an engine caches of a prefix stays good, as an episode only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from r1zero.data.episodes import Budget, Episode, EpisodeEnd, Turn
from r1zero.data.records import Completion, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.environments.base import Observation, Start
from r1zero.environments.host import Answer, EnvironmentHost, Live
from r1zero.environments.worker import Fault
from r1zero.errors import UserError
from r1zero.prompts.tokens import decode
from r1zero.prompts.turns import TurnText, encode_messages
from r1zero.rollout.base import Engine, Sampling
from r1zero.rollout.requests import stream_seed

OnEpisode = Callable[[int, int, Episode], None]
"""Called as each episode ends, with its problem's index, its index in the group and itself; in any order."""
LINGER_SECONDS = 0.05
"""How long the next call waits, after the first answer, for others: a batch of one wastes the engine."""


@dataclass(eq=False)
class _Going:
    """One episode while it grows."""

    problem_index: int
    sample_index: int
    prompt_ids: tuple[int, ...]
    live: Live | None
    turns: list[Turn] = field(default_factory=list)
    num_tokens: int = 0
    """After the prompt."""

    @property
    def ids(self) -> list[int]:
        return [*self.prompt_ids, *(i for t in self.turns for i in (*t.completion.token_ids, *t.observation_ids))]


def play(
    engine: Engine,
    problems: Sequence[Problem],
    *,
    text: TurnText,
    sampling: Sampling,
    n: int,
    budget: Budget | None = None,
    host: EnvironmentHost | None = None,
    in_step: bool = False,
    on_episode: OnEpisode | None = None,
) -> list[tuple[Episode, ...]]:
    """`n` episodes of each problem, in order.

    `sampling.max_tokens` bounds one turn, `budget` the episode (None: one turn of `sampling.max_tokens`). The engine's
    context must hold the longest prompt plus `budget.max_tokens`. Without a `host` every episode is one turn, and its
    verdict is left to the verifiers. in_step: every call waits for all environments, so that a seeded run is the same
    whatever the tools' speed. Raises UserError as the engine does, and where an environment cannot start.
    """
    budget = budget or Budget(max_tokens=sampling.max_tokens)
    run = _Run(engine, text, sampling, budget, on_episode, [[None] * n for _ in problems])
    try:
        return run.play(problems, n, host, in_step)
    finally:
        for live in run.lives:
            live.close()


@dataclass(eq=False)
class _Run:
    engine: Engine
    text: TurnText
    sampling: Sampling
    budget: Budget
    on_episode: OnEpisode | None
    done: list[list[Episode | None]]
    lives: list[Live] = field(default_factory=list)
    waiting: dict[Future[Answer], _Going] = field(default_factory=dict)
    num_calls: int = 0

    def play(
        self, problems: Sequence[Problem], n: int, host: EnvironmentHost | None, in_step: bool
    ) -> list[tuple[Episode, ...]]:
        lives = [[host.open(problem) if host else None for _ in range(n)] for problem in problems]
        self.lives += [live for group in lives for live in group if live is not None]
        prompts = self._prompts(problems, lives)
        going = [
            [_Going(i, j, tuple(prompt), live) for j, live in enumerate(group)]
            for i, (prompt, group) in enumerate(zip(prompts, lives, strict=True))
        ]
        context = max(map(len, prompts), default=0) + self.budget.max_tokens
        first = replace(self.sampling, max_tokens=min(self.sampling.max_tokens, self.budget.max_tokens))
        self.num_calls = 1
        if problems:
            self.engine.generate(prompts, first, n, lambda i, j, completion: self._said(going[i][j], completion))
        while self.waiting:
            ready, _ = wait(self.waiting, return_when=ALL_COMPLETED if in_step else FIRST_COMPLETED)
            if len(ready) < len(self.waiting):
                ready, _ = wait(self.waiting, timeout=LINGER_SECONDS)
            answered = [(self.waiting.pop(future), future.result()) for future in ready]
            answered.sort(key=lambda pair: (pair[0].problem_index, pair[0].sample_index))
            self._generate([one for one, answer in answered if self._told(one, answer)], context)
        return [tuple(episode for episode in group if episode is not None) for group in self.done]

    def _prompts(self, problems: Sequence[Problem], lives: list[list[Live | None]]) -> list[list[int]]:
        """Each problem's prompt ids; a group's episodes begin alike."""
        started = [[live.start() for live in group if live is not None] for group in lives]
        prompts = []
        for problem, group in zip(problems, started, strict=True):
            answers = [future.result() for future in group]
            faults = [answer.reason for answer in answers if isinstance(answer, Fault)]
            if faults:
                raise UserError(f"problem {problem.id!r}: {faults[0]}")
            begun = answers[0] if answers else Start(messages=({"role": "user", "content": problem.prompt},))
            if any(answer != begun for answer in answers):
                raise UserError(
                    f"problem {problem.id!r}: its environment starts differently each time: one group, one prompt"
                )
            assert isinstance(begun, Start)
            prompts.append(encode_messages(self.text.template, begun.messages, self.text.tokenizer, begun.tools))
        return prompts

    def _generate(self, ready: list[_Going], context: int) -> None:
        """One more turn of each, in as few calls as the context allows: a call's longest text plus its token limit."""
        calls: list[tuple[int, list[_Going]]] = []
        for one in sorted(ready, key=lambda one: one.num_tokens):
            limit = min(self.sampling.max_tokens, self.budget.max_tokens - one.num_tokens)
            length = len(one.prompt_ids) + one.num_tokens
            fitting = next((members for most, members in calls if length + most <= context), None)
            if fitting is None:
                calls.append((limit, [one]))
            else:
                fitting.append(one)
        for limit, members in calls:
            seed = None if self.sampling.seed is None else stream_seed(self.sampling.seed, self.num_calls, 0)
            self.num_calls += 1
            sampling = replace(self.sampling, max_tokens=limit, seed=seed)
            self._call(members, sampling)

    def _call(self, members: list[_Going], sampling: Sampling) -> None:
        self.engine.generate(
            [one.ids for one in members], sampling, 1, lambda i, _, completion: self._said(members[i], completion)
        )

    def _said(self, one: _Going, completion: Completion) -> None:
        """Take up a completion, and have it answered while the engine goes on."""
        completion = _cut(completion, self.budget.max_tokens - one.num_tokens, self.text.tokenizer)
        one.turns.append(Turn(completion=completion))
        one.num_tokens += completion.num_tokens
        if one.live is None:
            self._end(one, "length" if completion.truncated else "stop")
            return
        opened = len(one.turns) == 1 or self.text.template.kind == "chat"
        prefill = self.text.template.turn_prefill(self.text.tokenizer) if opened else ""
        self.waiting[one.live.step(replace(completion, text=prefill + completion.text))] = one

    def _told(self, one: _Going, answer: Answer) -> bool:
        """Take up an answer; True when the episode goes on."""
        completion = one.turns[-1].completion
        if isinstance(answer, Verdict):
            self._end(one, "length" if completion.truncated else "stop", answer)
            return False
        if not isinstance(answer, Observation):
            reason = answer.reason if isinstance(answer, Fault) else "no answer to a turn"
            hung = isinstance(answer, Fault) and answer.hung
            self._end(one, "tool_error", Verdict(Outcome.TIMEOUT if hung else Outcome.ERROR, reason=reason), reason)
            return False
        one.turns[-1] = replace(one.turns[-1], reward=answer.reward)
        if completion.truncated:
            self._end(one, "length", Verdict(Outcome.TRUNCATED, reason="cut off at the token limit"))
            return False
        if len(one.turns) == self.budget.max_turns:
            reason = f"no answer within {self.budget.max_turns} turns"
            self._end(one, "turns", Verdict(Outcome.TRUNCATED, reason=reason))
            return False
        ids = self.text.encode(
            answer.text, role=answer.role, last_token_id=completion.token_ids[-1], said=completion.text
        )
        if one.num_tokens + len(ids) >= self.budget.max_tokens:
            reason = f"no answer within {self.budget.max_tokens} tokens"
            self._end(one, "length", Verdict(Outcome.TRUNCATED, reason=reason))
            return False
        one.turns[-1] = replace(one.turns[-1], observation=answer.text, observation_ids=tuple(ids))
        one.num_tokens += len(ids)
        return True

    def _end(self, one: _Going, why: EpisodeEnd, verdict: Verdict | None = None, reason: str = "") -> None:
        if one.live is not None:
            one.live.close()
        episode = Episode(
            prompt_ids=one.prompt_ids, turns=tuple(one.turns), finish_reason=why, verdict=verdict, reason=reason
        )
        self.done[one.problem_index][one.sample_index] = episode
        if self.on_episode is not None:
            self.on_episode(one.problem_index, one.sample_index, episode)


def _cut(completion: Completion, limit: int, tokenizer: Any) -> Completion:
    """The first `limit` tokens: what the engine would have given, had that been its limit, as it samples in order."""
    if completion.num_tokens <= limit:
        return completion
    token_ids = completion.token_ids[:limit]
    return Completion(
        token_ids=token_ids,
        text=decode(tokenizer, token_ids),
        logprobs=completion.logprobs[:limit],
        finish_reason="length",
    )
