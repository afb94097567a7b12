"""Repeated n-grams, counted by hand, and on real solutions where they are at hand."""

from __future__ import annotations

import gzip
import json

import pytest

from r1zero.verifiers import Outcome
from r1zero.verifiers.repetition import repeated_share, repetition
from tests import SHARED


def test_the_share_counts_each_n_gram_that_stood_before() -> None:
    # a b a b a: the pairs are ab ba ab ba, of which two are repeats.
    assert repeated_share("a b a b a", 2) == 0.5
    assert repeated_share("a b c d", 2) == 0.0
    assert repeated_share("A a A a", 1) == 0.75
    assert repeated_share("a b", 3) == 0.0
    assert repeated_share("", 3) == 0.0
    assert repeated_share("一二一二一", 2) == 0.5


def test_the_penalty_is_free_up_to_a_share_and_then_linear_to_minus_one() -> None:
    verdict = repetition("a b a b a", ngram=2, free=0.0)
    assert (verdict.outcome, verdict.score) == (Outcome.WRONG, -0.5)
    assert repetition("a b a b a", ngram=2, free=0.25).score == pytest.approx(-0.25 / 0.75)
    free = repetition("a b a b a", ngram=2, free=0.5)
    assert (free.outcome, free.score) == (Outcome.CORRECT, 0.0)


def test_a_loop_is_penalised_nearly_whole_and_senseless_options_are_our_error() -> None:
    loop = repetition("wait, let me check this once more and see whether it holds. " * 200)
    assert loop.score is not None
    assert loop.score < -0.99
    assert repetition("a", ngram=0).outcome is Outcome.ERROR
    assert repetition("a", free=1.0).outcome is Outcome.ERROR


def test_honest_solutions_go_free() -> None:
    path = SHARED / "data" / "outputs" / "think_qwen25_15b_sft_vs_rlvr_gsm8k.jsonl.gz"
    if not path.exists():
        pytest.skip(f"needs {path.name}, real model outputs kept beside the checkout")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][:300]
    assert all(repetition(row["output"]).correct for row in rows)
