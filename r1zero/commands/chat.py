"""`r1zero chat CHECKPOINT`: put questions to a checkpoint in the terminal; the answer comes as it is sampled.

Each question stands alone, in the run's own template: these models are trained on single problems.
"""

from __future__ import annotations

import argparse
import re
import sys
import threading
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from r1zero.errors import UserError, at_least

if TYPE_CHECKING:
    from r1zero.prompts import Template
    from r1zero.verifiers import VerifierSpec

HELP = "A line is a question. /gold ANSWER: the next answer is judged against it. /quit: the end."
_TAGS = ("<think>", "</think>")


def add_parser(commands: Any) -> None:
    """Add `chat` to the subparsers `commands` of an argparse parser; `arguments.run(arguments)` runs it."""
    parser = commands.add_parser(
        "chat", help="put questions to a checkpoint", description=f"Put questions to a checkpoint. {HELP}"
    )
    parser.add_argument(
        "checkpoint", help="a checkpoint, a run folder (its latest checkpoint), a model folder, a hub id"
    )
    parser.add_argument("--template", default="", help="default: the run's, else boxed_chat")
    parser.add_argument("--temperature", type=at_least(0, float), default=None, help="default: the run's; 0 is greedy")
    parser.add_argument("--max-tokens", type=at_least(1), default=None, metavar="N", help="default: the run's")
    parser.add_argument("--verifier", default="", help="judges against /gold; default: the run's first, else math")
    parser.add_argument("--seed", type=at_least(0), default=None, help="the same answers again")
    parser.set_defaults(run=chat)


def chat(arguments: argparse.Namespace) -> int:
    """Questions from standard input until it ends."""
    import transformers
    from rich.console import Console
    from rich.text import Text

    from r1zero.data.records import Problem
    from r1zero.report.build import visible
    from r1zero.verifiers import Sample, VerifierPool

    transformers.utils.logging.disable_progress_bar()
    speaker = Speaker(arguments)
    console = Console(highlight=False, soft_wrap=True)
    if arguments.seed is not None:
        transformers.set_seed(arguments.seed)
    print(HELP, file=sys.stderr)
    gold = ""
    with VerifierPool(1) as pool:
        while (line := _read()) is not None:
            if line == "/quit":
                break
            if line.startswith("/gold"):
                gold = line.removeprefix("/gold").strip()
                continue
            if not line:
                continue
            parts, said = Parts(), ""
            for piece in chain([speaker.prefill], speaker.say(line)):
                said += piece
                for text, thinks in parts.feed(piece):
                    console.print(Text(visible(text), style="dim" if thinks else ""), end="")
            for text, thinks in parts.end():
                console.print(Text(visible(text), style="dim" if thinks else ""), end="")
            console.print()
            if gold:
                problem = Problem(id="", prompt=line, answer=gold)
                sample = Sample(completion=said, answer=gold, problem=problem)
                (verdict,) = pool.verify([(speaker.verifier, sample)])
                style = "green" if verdict.correct else "red"
                console.print(Text(visible(f"{verdict.outcome}: {verdict.reason}"), style=style))
                gold = ""
    return 0


class Parts:
    """Cuts a stream of text at its think tags, wherever the pieces end."""

    def __init__(self) -> None:
        self.thinking = False
        self._held = ""

    def feed(self, piece: str) -> Iterator[tuple[str, bool]]:
        """What can be shown by now, each text with whether it is thought. What may be half a tag is held back."""
        text = self._held + piece
        self._held = next((text[-n:] for n in range(8, 0, -1) if any(t.startswith(text[-n:]) for t in _TAGS)), "")
        if self._held in _TAGS:
            self._held = ""
        for part in re.split(r"(<think>|</think>)", text[: len(text) - len(self._held)]):
            self.thinking = self.thinking or part == "<think>"
            if part:
                yield part, self.thinking
            self.thinking = self.thinking and part != "</think>"

    def end(self) -> Iterator[tuple[str, bool]]:
        """What was held back."""
        if self._held:
            yield self._held, self.thinking


class Speaker:
    """A checkpoint that answers, sampled as its run sampled."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Raises UserError for a checkpoint, template or verifier that is not there."""
        from r1zero import models, prompts
        from r1zero.config import ModelConfig, SamplingConfig
        from r1zero.eval.model import run_of
        from r1zero.models.policy import compute_dtype, load_tokenizer
        from r1zero.rollout.hf import TransformersEngine
        from r1zero.verifiers import VerifierSpec, resolve

        run = run_of(arguments.checkpoint)
        path = models.resolve(arguments.checkpoint)
        self.tokenizer = load_tokenizer(path)
        self.template: Template = prompts.load(arguments.template or (run.template if run else "boxed_chat"))
        self.prefill = self.template.turn_prefill(self.tokenizer)
        sampling = run.sampling if run else SamplingConfig()
        self.temperature = sampling.temperature if arguments.temperature is None else arguments.temperature
        self.max_tokens = arguments.max_tokens or sampling.max_tokens
        self.top_p, self.top_k = sampling.top_p, sampling.top_k
        term = run.reward.terms[0] if run and run.reward.terms else None
        options = dict(term.options) if term and not arguments.verifier else {}
        name = arguments.verifier or (term.verifier if term else "math")
        self.verifier: VerifierSpec = VerifierSpec(name=name, options=options)
        resolve(self.verifier)
        dtype = compute_dtype(run.model if run else ModelConfig())
        engine = TransformersEngine(
            str(path), tokenizer=self.tokenizer, compute_dtype=dtype, max_context=self.max_tokens
        )
        self.model: Any = engine.model

    def say(self, question: str) -> Iterator[str]:
        """The answer, piece by piece as it is sampled. Raises UserError when the model fails."""
        import torch
        from transformers import GenerationConfig, TextIteratorStreamer

        ids = torch.tensor([self.template.encode(question, self.tokenizer)], device=self.model.device)
        ends = list(self.template.stop_token_ids(self.tokenizer))
        config = GenerationConfig(  # whole: the model folder's own settings would change the distribution
            max_new_tokens=self.max_tokens,
            do_sample=self.temperature > 0,
            temperature=self.temperature if self.temperature > 0 else None,
            top_p=self.top_p if self.temperature > 0 else None,
            top_k=self.top_k if self.temperature > 0 else None,
            eos_token_id=ends or None,
            pad_token_id=self.tokenizer.pad_token_id,
            stop_strings=list(self.template.stop) or None,
        )
        streamer = TextIteratorStreamer(self.tokenizer, skip_prompt=True, skip_special_tokens=True)
        failed: list[Exception] = []

        def generate() -> None:
            try:
                self.model.generate(
                    input_ids=ids,
                    attention_mask=torch.ones_like(ids),
                    generation_config=config,
                    streamer=streamer,
                    tokenizer=self.tokenizer,
                )
            except (RuntimeError, ValueError, IndexError) as error:  # out of memory, a prompt past the context
                failed.append(error)
                streamer.end()

        thread = threading.Thread(target=generate, daemon=True)
        thread.start()
        yield from streamer
        thread.join()
        if failed:
            raise UserError(f"the model could not answer ({failed[0]}): a smaller --max-tokens may help")


def _read() -> str | None:
    """The next line, with a prompt where someone types; None at the end."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None
