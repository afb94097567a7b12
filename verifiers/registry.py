"""The registry: a verifier is a function that returns a `Verdict`, found by name.

Three ways in: the decorator (built-ins and a recipe's own module), the entry-point group `r1zero.verifiers`
(installed plugins), and `package.module:function` written in a recipe. A verifier in ten lines, in its own package:

    # my_verifiers.py
    from r1zero.verifiers import Outcome, Sample, Verdict, register

    @register("palindrome", example=Sample(completion="<answer>abba</answer>", answer="4"))
    def palindrome(completion: str, answer: str, *, ignore_case: bool = False) -> Verdict:
        \"\"\"Correct when the last answer tag holds a palindrome of `answer` letters.\"\"\"
        _, tag, text = completion.rpartition("<answer>")
        word = text.partition("</answer>")[0].strip()
        if not tag:
            return Verdict(Outcome.UNPARSEABLE, reason="no answer tag")
        word = word.lower() if ignore_case else word
        good = word == word[::-1] and len(word) == int(answer)
        return Verdict(Outcome.CORRECT if good else Outcome.WRONG, reason=f"{len(word)} letters", extracted=word)

    # pyproject.toml
    [project.entry-points."r1zero.verifiers"]
    palindrome = "my_verifiers:palindrome"

Then `pip install .`, `r1zero verifiers check palindrome`, and `verifier: palindrome` in a recipe. What stands before
the `*` is taken from `Sample` by name; what stands after it is an option that a recipe may set.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from r1zero.data.plugins import Plugins
from r1zero.data.records import FinishReason, Problem
from r1zero.data.verdict import Outcome, Verdict
from r1zero.verifiers.text.cut import has_closed_fence
from r1zero.verifiers.text.extract import CUT, is_committed

Judges = Literal["answer", "format", "shaping"]
"""What a verifier judges: the answer; the form it stands in, whatever it says; or length, language, repetition and the
like, where an empty text may be without fault."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a verifier may ask for, by parameter name. Picklable: it crosses into the worker."""

    completion: str
    """The assistant's whole turn: the template's prefill, if it has one, then the text sampled."""
    answer: str = ""
    """The gold answer."""
    problem: Problem = field(default_factory=lambda: Problem(id="", prompt=""))
    """The whole problem, for a verifier that needs more than the answer (tests, options)."""
    prompt: str = ""
    """The prompt as sent, template applied."""
    finish_reason: FinishReason = "stop"
    num_tokens: int = 0
    """Tokens sampled."""


INPUTS = frozenset(f.name for f in fields(Sample))


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """A registered verifier."""

    name: str
    function: Callable[..., Verdict]
    inputs: tuple[str, ...]
    """Which fields of `Sample` it takes."""
    options: Mapping[str, Any]
    """Its keyword-only parameters and their defaults: what a recipe may set."""
    example: Sample | None = None
    """A sample it must call correct; `r1zero verifiers check` starts from it."""
    preload: tuple[str, ...] = ()
    """Modules that workers import before they take up a sample: slow imports that are not to cost a deadline."""
    judges: Judges = "answer"

    @property
    def code(self) -> Callable[..., Verdict]:
        """The function, as a table of plugins asks for it."""
        return self.function

    def __call__(self, sample: Sample, options: Mapping[str, Any] | None = None) -> Verdict:
        """The verdict on `sample`, timed. What the function raises propagates; the pool turns it into `error`.

        One rule for a completion cut off at the limit, whichever verifier looks: it counts only where it has committed
        itself to an answer (a closed answer tag, a complete box or marked answer with no open reasoning behind it, a
        closed fence). All else is `truncated`, never `wrong` or `unparseable`; penalties judge what is there.
        """
        began = time.perf_counter()
        cut = sample.finish_reason == "length" and self.judges != "shaping"
        if cut and not (is_committed(sample.completion) or has_closed_fence(sample.completion)):
            return Verdict(Outcome.TRUNCATED, reason=CUT, seconds=time.perf_counter() - began)
        verdict = self.function(**{name: getattr(sample, name) for name in self.inputs}, **(options or {}))
        if not isinstance(verdict, Verdict):
            raise TypeError(f"verifier {self.name!r} returned {type(verdict).__name__}, not a Verdict")
        outcome = verdict.outcome
        if outcome is Outcome.UNPARSEABLE and sample.finish_reason == "length":
            outcome = Outcome.TRUNCATED
        return replace(verdict, outcome=outcome, seconds=time.perf_counter() - began)


@dataclass(frozen=True, kw_only=True)
class VerifierSpec:
    """A verifier as a recipe names it: picklable, resolved again in each worker."""

    name: str
    """A registered name or `package.module:function`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values for the verifier's keyword-only parameters."""

    def of(self, problem: Problem) -> VerifierSpec:
        """Who judges `problem`: the verifier it names itself, else this one."""
        return VerifierSpec(name=problem.verifier, options=problem.verifier_options) if problem.verifier else self


def register(
    name: str, *, example: Sample | None = None, preload: tuple[str, ...] = (), judges: Judges = "answer"
) -> Callable[[Callable[..., Verdict]], Callable[..., Verdict]]:
    """Register a verifier function under `name`; returns the function unchanged.

    Positional parameters are taken from `Sample` by name; keyword-only parameters are options and need defaults.
    example: a sample it calls correct; preload: modules its workers import beforehand; judges: see `Judges`.
    Raises ValueError at import when the name is taken or a parameter is none of `Sample`'s fields.
    """

    def decorate(function: Callable[..., Verdict]) -> Callable[..., Verdict]:
        PLUGINS.add(name, replace(describe(name, function), example=example, preload=preload, judges=judges))
        return function

    return decorate


def describe(name: str, function: Callable[..., Verdict]) -> Verifier:
    """Read a function's signature into a `Verifier`; raises ValueError where it does not fit."""
    inputs, options = [], {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty:
                raise ValueError(f"verifier {name!r}: option {parameter.name!r} needs a default")
            options[parameter.name] = parameter.default
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.name in INPUTS:
            inputs.append(parameter.name)
        else:
            raise ValueError(
                f"verifier {name!r}: parameter {parameter.name!r} is not one of {', '.join(sorted(INPUTS))}; "
                "an option must be keyword-only (after `*`)"
            )
    return Verifier(name=name, function=function, inputs=tuple(inputs), options=options)


PLUGINS = Plugins(
    "verifier",
    group="r1zero.verifiers",
    builtin="r1zero.verifiers.builtin",
    describe=describe,
    named="module:function",
)
get, names, broken, load_plugins = PLUGINS.get, PLUGINS.names, PLUGINS.broken, PLUGINS.load


def resolve(spec: VerifierSpec) -> Verifier:
    """The verifier of `spec`. Raises UserError for an unknown one, an unknown option, or a value of another kind."""
    return PLUGINS.resolve(spec.name, spec.options)
