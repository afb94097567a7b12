"""`evaluate`: problems in, every sample graded, one `EvalResult` out. Training calls it at its intervals; so does
`r1zero eval`, with the same template, verifier and seed, and so gets the same samples.

Work goes to the engine in batches of fixed make-up: batch b holds samples b * B ... of the list (problem 0 sample 0,
problem 0 sample 1, ...) and has its own seed. A sample therefore depends on (seed, problem, index) and on its batch,
never on when the run was killed: kernels round differently in other batches, so a resumed run draws an unfinished batch
again as it was instead of filling its gaps with other company.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from r1zero.data.records import Completion, Problem
from r1zero.errors import UserError
from r1zero.eval.result import EvalResult, check_ids, summarise
from r1zero.eval.samples import EvalSample
from r1zero.rollout.base import Engine, OnCompletion, Sampling
from r1zero.rollout.openai import FailedCompletion
from r1zero.verifiers import Outcome, Verdict, VerifierPool, VerifierSpec

DEFAULT_BATCH = 1024
"""Samples in one call of the engine, and so the most that a kill can cost."""
BROKEN_AFTER = 20
"""Verdicts of `error` in a row, from the first on, that mean the verifier is broken."""


class EvalTemplate(Protocol):
    """What the harness asks of a prompt template; `r1zero.prompts.load` returns one."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a completion."""
        ...

    def stop_token_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Ids that end a completion."""
        ...

    def turn_prefill(self, tokenizer: Any) -> str:
        """Text the prompt already puts into the assistant's mouth, such as `<think>`."""
        ...

    def render(self, question: str, tokenizer: Any) -> str:
        """The whole prompt, prefill included."""
        ...

    def encode(self, question: str, tokenizer: Any) -> list[int]:
        """Its token ids."""
        ...


@runtime_checkable
class StreamEngine(Protocol):
    """An engine that draws each sample from a stream of its own, whatever else is in the call: an endpoint, where
    drawing an unfinished batch again would cost money and not give the same text anyway. It resumes by sample."""

    def generate_streams(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        streams: Sequence[int],
        on_completion: OnCompletion | None = None,
    ) -> list[Completion]:
        """One completion of each prompt, prompt i from stream `streams[i]` of `sampling.seed`."""
        ...


def evaluate(
    problems: Sequence[Problem],
    *,
    engine: Engine,
    tokenizer: Any,
    template: EvalTemplate,
    sampling: Sampling,
    k: int,
    pool: VerifierPool,
    verifier: VerifierSpec,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
    name: str = "",
    done: Sequence[EvalSample] = (),
    on_sample: Callable[[EvalSample], None] | None = None,
    batch: int = DEFAULT_BATCH,
) -> EvalResult:
    """Sample each problem k times, grade every sample, and summarise.

    sampling: its stop texts, stop token ids and seed are replaced by the template's and by each batch's own.
    on_progress: called with (graded, total). on_sample: called in this thread with each sample as it is graded, in any
    order: what a caller appends to a file. done: samples of an earlier, killed run of the same call, kept as they are.
    Raises UserError for no problems, k below 1, or k above 1 with greedy sampling (k equal samples).
    """
    began = time.perf_counter()
    samples = draw(
        problems,
        engine=engine,
        tokenizer=tokenizer,
        template=template,
        sampling=sampling,
        k=k,
        pool=pool,
        verifier=verifier,
        seed=seed,
        on_progress=on_progress,
        done=done,
        on_sample=on_sample,
        batch=batch,
    )
    return summarise(problems, samples, k, name=name, seconds=time.perf_counter() - began)


def draw(
    problems: Sequence[Problem],
    *,
    engine: Engine,
    tokenizer: Any,
    template: EvalTemplate,
    sampling: Sampling,
    k: int,
    pool: VerifierPool,
    verifier: VerifierSpec,
    seed: int,
    on_progress: Callable[[int, int], None] | None = None,
    done: Sequence[EvalSample] = (),
    on_sample: Callable[[EvalSample], None] | None = None,
    batch: int = DEFAULT_BATCH,
    shard: tuple[int, int] = (0, 1),
) -> list[EvalSample]:
    """The samples of `evaluate`, graded, by problem and index. shard (i, n): only every n-th batch, from the i-th on;
    n processes with the n shards draw what one would."""
    check_sampling(sampling, k)
    if batch < 1:
        raise UserError(f"batch must be 1 or more samples, got {batch}")
    check_ids(problems)
    prefill = template.turn_prefill(tokenizer)
    sampling = replace(sampling, stop=template.stop, stop_token_ids=template.stop_token_ids(tokenizer))
    prompts = {p.id: (template.render(p.prompt, tokenizer), template.encode(p.prompt, tokenizer)) for p in problems}
    everything = [(problem, index) for problem in problems for index in range(k)]
    mine = [i for i in range(len(everything)) if i // batch % shard[1] == shard[0]]
    work = [everything[i] for i in mine]
    wanted = {(problem.id, index) for problem, index in work}
    grading = _Grading({s.key: s for s in done if s.key in wanted}, len(work), pool, verifier, on_progress, on_sample)

    def sample(
        todo: Sequence[tuple[Problem, int]], generate: Callable[[list[list[int]], OnCompletion], object]
    ) -> None:
        def completed(position: int, _: int, completion: Completion) -> None:
            problem, index = todo[position]
            grading.add(problem, index, prompts[problem.id][0], prefill, completion)

        generate([prompts[problem.id][1] for problem, _ in todo], completed)

    try:
        if isinstance(engine, StreamEngine):
            streams = [i for i in mine if (everything[i][0].id, everything[i][1]) not in grading.finished]
            settings, by_stream = replace(sampling, seed=seed), engine.generate_streams
            sample(
                [everything[i] for i in streams],
                lambda ids, each: _report(by_stream(ids, settings, streams, each), each),
            )
        else:
            for start in range(0, len(work), batch):
                todo = work[start : start + batch]
                if all((problem.id, index) in grading.finished for problem, index in todo):
                    continue
                settings = replace(sampling, seed=batch_seed(seed, mine[start] // batch))
                sample(todo, partial(_generate_one_each, engine, settings))
    finally:
        # What was sampled before an engine failed or the user stopped is graded and kept too.
        grading.wait()
    return [grading.finished[problem.id, index] for problem, index in work]


def check_sampling(sampling: Sampling, k: int) -> None:
    """Raise UserError for what no engine can sample, or what would not be k samples."""
    if k < 1:
        raise UserError(f"k must be 1 or more samples a problem, got {k}")
    if not 0 <= sampling.temperature < math.inf:
        raise UserError(f"temperature must be 0 (greedy) or more, got {sampling.temperature}")
    if sampling.temperature == 0 and k > 1:
        raise UserError(f"temperature 0 gives {k} equal samples of each problem: set k to 1 or a temperature")
    if not 0 < sampling.top_p <= 1:
        raise UserError(f"top-p must be above 0 and at most 1 (off), got {sampling.top_p}")
    if not 0 <= sampling.min_p < 1:
        raise UserError(f"min-p must be 0 (off) or more and below 1, got {sampling.min_p}")
    if sampling.top_k < 0:
        raise UserError(f"top-k must be 0 (off) or more, got {sampling.top_k}")


def batch_seed(seed: int, batch: int) -> int:
    """A 31-bit seed for each batch; unrelated for neighbouring seeds and batches."""
    return int(np.random.SeedSequence((seed, batch)).generate_state(1)[0] >> 1)


def _generate_one_each(engine: Engine, settings: Sampling, ids: list[list[int]], each: OnCompletion) -> None:
    _report([group[0] for group in engine.generate(ids, settings, 1, each)], each)


def _report(completions: Sequence[Completion], each: OnCompletion) -> None:
    """Hand on what the engine did not report on the way; what it did is known already."""
    for position, completion in enumerate(completions):
        each(position, 0, completion)


class _Grading:
    """Verdicts under way: takes completions as they end, hands out samples as they are graded, all in one thread.

    The pool grades in its own processes while the engine goes on; files and progress are touched only here, so that a
    full disk or a Ctrl-C surfaces in the caller and not in a callback thread that swallows it.
    """

    def __init__(
        self,
        finished: dict[tuple[str, int], EvalSample],
        total: int,
        pool: VerifierPool,
        verifier: VerifierSpec,
        on_progress: Callable[[int, int], None] | None,
        on_sample: Callable[[EvalSample], None] | None,
    ) -> None:
        self.finished = finished
        self._total = total
        self._pool = pool
        self._verifier = verifier
        self._on_progress = on_progress
        self._on_sample = on_sample
        self._only_errors: int | None = 0
        """Errors in a row since the start; None once a sample was graded."""
        self._open: dict[tuple[str, int], tuple[EvalSample, Future[Verdict] | None]] = {}

    def add(self, problem: Problem, index: int, prompt: str, prefill: str, completion: Completion) -> None:
        key = (problem.id, index)
        if key not in self.finished and key not in self._open:
            failure = completion.error if isinstance(completion, FailedCompletion) else None
            sample = EvalSample(
                problem_id=problem.id,
                index=index,
                prompt=prompt,
                completion="" if failure is not None else prefill + completion.text,
                num_tokens=completion.num_tokens,
                finish_reason=completion.finish_reason,
                outcome=Outcome.ERROR,  # until its verdict is in
                score=None,
                reason=failure or "",
                answer=problem.answer,
                failed=failure is not None,
            )
            verifier = self._verifier.of(problem)
            future = None if sample.failed else self._pool.submit(verifier, sample.verifier_input(problem))
            self._open[key] = (sample, future)
        self._collect()

    def wait(self) -> None:
        while self._open:
            wait([future for _, future in self._open.values() if future is not None], return_when=FIRST_COMPLETED)
            self._collect()

    def _collect(self) -> None:
        for key, (sample, future) in list(self._open.items()):
            if future is not None and not future.done():
                continue
            del self._open[key]
            graded = sample if future is None else sample.with_verdict(future.result())
            self._count_errors(graded)
            self.finished[key] = graded
            if self._on_sample:
                self._on_sample(graded)
            if self._on_progress:
                self._on_progress(len(self.finished), self._total)

    def _count_errors(self, graded: EvalSample) -> None:
        """Stop before a night's sampling is graded by a verifier that works for nothing."""
        if graded.failed:
            return
        if graded.outcome is not Outcome.ERROR:
            self._only_errors = None
        elif self._only_errors is not None:
            self._only_errors += 1
        if self._only_errors == BROKEN_AFTER:
            name = self._verifier.name
            raise UserError(
                f"the verifier {name!r} failed on each of the first {BROKEN_AFTER} samples ({graded.reason}): "
                f"try `r1zero verifiers check {name}`"
            )
