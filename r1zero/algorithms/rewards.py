"""Verdicts -> one reward a completion: weights, gates, and what to do with each outcome. Stands between the rollout and
the advantages; imports no torch.

    rewarder = Rewarder(config.reward, pool)
    pending = [rewarder.submit(problem, prompt, completion, prefill) for …]   # as the engine finishes each
    rewards = rewarder.collect(pending)                                      # in the same order
    rewards = with_scores(config.reward.models, rewards, scores, truncated)  # trained reward models' part, if any

`submit` returns at once and may be called from any thread (an engine's callback), so that scoring overlaps generation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

from r1zero.config import OutcomePolicy, RewardConfig, RewardModelTerm, RewardTerm
from r1zero.data.records import Completion, Problem
from r1zero.errors import UserError
from r1zero.verifiers import Outcome, Sample, Verdict, VerifierPool, VerifierSpec, resolve
from r1zero.verifiers.running.by_value import NAME as BY_VALUE


@dataclass(frozen=True, kw_only=True)
class StepReward:
    """What one step of a completion earned."""

    end: int | None
    """Characters of the completion, prefill included, up to and with the step; None: all of it, its end token too."""
    value: float


@dataclass(frozen=True, kw_only=True)
class Reward:
    """What one completion earned."""

    value: float | None
    """Sum over terms and reward models of weight * score; None when the completion is dropped."""
    keep: bool
    """False: the completion takes no part in the step (its outcome's policy is `drop`)."""
    parts: Mapping[str, Verdict]
    """Each term's verdict by the term's name, whether it counted or not."""
    correct: bool | None
    """Outcome of the first term; None where it says nothing of the answer (`error`, `timeout`)."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """What each reward model's score came to, by its name, before the weight."""
    steps: tuple[StepReward, ...] = ()
    """weight * score of each step that a term judges, of the whole completion where it judges that: for process
    supervision, which takes these in place of `value`. Empty where the completion is dropped."""


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A completion being scored: what `submit` returns and `collect` takes."""

    sample: Sample
    futures: Mapping[str, Future[Verdict]]
    specs: Mapping[str, VerifierSpec]
    """Who judges it, by the term's name: the problem's own verifier stands in for the first term's."""


class Rewarder:
    """Scores completions by the terms of `config` in `pool`.

    Raises UserError at once for an unknown verifier or option, and for a policy that makes no sense.
    """

    def __init__(self, config: RewardConfig, pool: VerifierPool) -> None:
        self.config = config
        self.pool = pool
        self.specs = {term.key: VerifierSpec(name=term.verifier, options=term.options) for term in config.terms}
        for spec in self.specs.values():
            resolve(spec)
        for setting in ("on_unparseable", "on_truncated"):
            if getattr(config, setting) == "retry":
                raise UserError(f"reward.{setting}: retry would give the same verdict again: score, drop or stop")

    def submit(self, problem: Problem, prompt: str, completion: Completion, prefill: str = "") -> Pending:
        """Start scoring one completion.

        prompt: as sent to the engine, template applied; prefill: what the template wrote of the assistant's turn (such
        as `<think>`), which the verifiers see before the sampled text.
        """
        sample = Sample(
            completion=prefill + completion.text,
            answer=problem.answer,
            problem=problem,
            prompt=prompt,
            finish_reason=completion.finish_reason,
            num_tokens=completion.num_tokens,
        )
        first = self.config.terms[0].key
        specs = {**self.specs, first: self.specs[first].of(problem)}
        return Pending(
            sample=sample,
            futures={name: self.pool.submit(spec, sample) for name, spec in specs.items()},
            specs=specs,
        )

    def collect(self, pending: Sequence[Pending]) -> list[Reward]:
        """The rewards, in order; waits for them.

        A verdict of `error` is tried once more where the policy says `retry`; one that stays is dropped, never scored.
        Raises UserError where a policy says `stop`, and when more than `max_error_share` of one term's verdicts are
        errors: the verifier, not the model, is broken.
        """
        verdicts = [{name: future.result() for name, future in one.futures.items()} for one in pending]
        if self.config.on_error == "retry":
            self._retry_errors(pending, verdicts)
        self._stop_if_broken(pending, verdicts)
        return [combine(self.config, parts) for parts in verdicts]

    def _retry_errors(self, pending: Sequence[Pending], verdicts: list[dict[str, Verdict]]) -> None:
        """Replace each `error` in `verdicts` by the verdict of a second try."""
        retried = [
            (parts, name, self.pool.submit(one.specs[name], one.sample))
            for one, parts in zip(pending, verdicts, strict=True)
            for name, verdict in parts.items()
            if verdict.outcome is Outcome.ERROR
        ]
        for parts, name, future in retried:
            parts[name] = future.result()

    def _stop_if_broken(self, pending: Sequence[Pending], verdicts: Sequence[Mapping[str, Verdict]]) -> None:
        """Each verifier of each term by itself: one of a mixed run may be broken while the others judge well."""
        judged: dict[tuple[str, str], list[Verdict]] = {}
        for one, parts in zip(pending, verdicts, strict=True):
            for name, verdict in parts.items():
                judged.setdefault((name, one.specs[name].name), []).append(verdict)
        for (name, verifier), its in judged.items():
            reasons = Counter(verdict.reason for verdict in its if verdict.outcome is Outcome.ERROR)
            if reasons.total() > self.config.max_error_share * len(its):
                reason, count = reasons.most_common(1)[0]
                raise UserError(
                    f"{_who(verifier, name)} failed on {reasons.total()} of {len(its)} "
                    f"completions, more than reward.max_error_share={self.config.max_error_share:g}; "
                    f"the commonest reason ({count} times): {reason}"
                )


def _who(verifier: str, term: str) -> str:
    """A verifier in an error; a function given from Python is known to its author by its own name only."""
    return f"reward function {term!r}" if verifier == BY_VALUE else f"verifier {verifier!r} (reward term {term!r})"


def check_verifiers(problems: Iterable[Problem]) -> None:
    """Raises UserError for a verifier or option that a problem names and that is not there; names one such problem."""
    seen: dict[str, Problem] = {}
    for problem in problems:
        if problem.verifier:
            seen.setdefault(f"{problem.verifier} {sorted(problem.verifier_options.items())}", problem)
    for problem in seen.values():
        try:
            resolve(VerifierSpec(name=problem.verifier, options=problem.verifier_options))
        except UserError as error:
            raise UserError(f"problem {problem.id!r} of {problem.source}: {error}") from error


def combine(config: RewardConfig, parts: Mapping[str, Verdict]) -> Reward:
    """One completion's reward from its verdicts, `parts`, by term name.

    A term counts when the term its gate names is `correct` (whatever that one's own gate says); one that does not
    count adds nothing, and its outcome's policy is not consulted; nor is that of a term of weight 0, which is only
    measured. Raises UserError where a policy says `stop`.
    """
    value, keep = 0.0, True
    steps: list[StepReward] = []
    for term in config.terms:
        verdict = parts[term.key]
        if term.weight == 0:
            continue
        if term.gate and parts[term.gate].outcome is Outcome.ERROR:
            keep = False  # whether the term counts is not known, and the gate itself may be gated away
            continue
        if term.gate and not parts[term.gate].correct:
            continue
        policy = _policy(config, verdict.outcome)
        if policy == "stop":
            raise UserError(_stopped(term, verdict))
        # `retry` is over by now. An error has no score.
        if policy in ("drop", "retry") or verdict.score is None:
            keep = False
        else:
            value += term.weight * verdict.score
            judged: list[tuple[int | None, float]] = [(step.end, step.score) for step in verdict.steps]
            for end, score in judged or [(None, verdict.score)]:
                steps.append(StepReward(end=end, value=term.weight * score))
    first = parts[config.terms[0].key]
    unknown = first.outcome in (Outcome.ERROR, Outcome.TIMEOUT)
    return Reward(
        value=value if keep else None,
        keep=keep,
        parts=parts,
        correct=None if unknown else first.correct,
        steps=tuple(steps) if keep else (),
    )


def with_scores(
    terms: Sequence[RewardModelTerm],
    rewards: Sequence[Reward],
    scores: Mapping[str, Sequence[float]],
    truncated: Sequence[bool],
) -> list[Reward]:
    """`rewards` with the reward models' part added: `scores` by the model's name, one a completion.

    truncated: whether each completion lacks its end; what it earns then is the term's setting. A completion that a
    verdict dropped stays dropped.
    """
    result = []
    for i, reward in enumerate(rewards):
        value, keep, steps = reward.value, reward.keep, reward.steps
        own: dict[str, float] = {}
        for term in terms:
            score = scores[term.name][i]
            if truncated[i] and term.truncated == "penalty":
                score = term.truncated_score
            elif truncated[i] and term.truncated == "drop" and term.weight:
                keep, value, steps = False, None, ()
            own[term.name] = score
            if value is not None:
                value += term.weight * score
                steps += (StepReward(end=None, value=term.weight * score),) if term.weight else ()
        result.append(replace(reward, value=value, keep=keep, scores=own, steps=steps))
    return result


def _policy(config: RewardConfig, outcome: Outcome) -> OutcomePolicy:
    match outcome:
        case Outcome.CORRECT | Outcome.WRONG:
            return "score"
        case Outcome.UNPARSEABLE:
            return config.on_unparseable
        case Outcome.TRUNCATED:
            return config.on_truncated
        case Outcome.TIMEOUT:
            return config.on_timeout
        case Outcome.ERROR:
            return config.on_error


def _stopped(term: RewardTerm, verdict: Verdict) -> str:
    return (
        f"reward.on_{verdict.outcome} is stop, and verifier {term.verifier!r} says {verdict.outcome}: {verdict.reason}"
    )


def reward_metrics(rewards: Sequence[Reward]) -> dict[str, float]:
    """The step's figures: `reward/mean` over kept completions, `reward/accuracy` over those with a known outcome,
    `reward/dropped` (a count), and for each term its mean score (`reward/TERM/score`, over verdicts that have one), its
    mean seconds and the share of each outcome (`reward/TERM/correct`, `…/wrong`, `…/timeout`, …); for each reward model
    the mean and the deviation of what its score came to (`reward/MODEL/score`, `…/score_std`).

    A mean over nothing is left out, not 0.
    """
    figures: dict[str, float] = {"reward/dropped": float(sum(not reward.keep for reward in rewards))}
    _put_mean(figures, "reward/mean", [reward.value for reward in rewards if reward.value is not None])
    _put_mean(figures, "reward/accuracy", [float(reward.correct) for reward in rewards if reward.correct is not None])
    for name in rewards[0].parts if rewards else ():
        verdicts = [reward.parts[name] for reward in rewards]
        _put_mean(figures, f"reward/{name}/score", [v.score for v in verdicts if v.score is not None])
        _put_mean(figures, f"reward/{name}/seconds", [v.seconds for v in verdicts])
        for outcome in Outcome:
            share = sum(verdict.outcome is outcome for verdict in verdicts) / len(verdicts)
            figures[f"reward/{name}/{outcome}"] = share
    for name in rewards[0].scores if rewards else ():
        scores = [reward.scores[name] for reward in rewards]
        figures |= {f"reward/{name}/score": fmean(scores), f"reward/{name}/score_std": pstdev(scores)}
    return figures


def _put_mean(figures: dict[str, float], key: str, values: Sequence[float]) -> None:
    if values:
        figures[key] = sum(values) / len(values)
