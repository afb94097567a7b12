from __future__ import annotations

import random
import re
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from r1zero.data.miniature import arithmetic
from r1zero.models import resolve
from r1zero.models.made import cache, tiny
from r1zero.models.made.cache import make_once

SMALL = tiny.TinyConfig(
    hidden_size=32,
    num_layers=1,
    num_heads=1,
    intermediate_size=64,
    documents=2560,
    batch_documents=32,
    warmup_steps=10,
)
FORMATTED = re.compile(r"<think>([0-9+=,]+)</think><answer>(\d+)</answer>")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("R1ZERO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    tiny.make(SMALL, folder)
    return folder


# The problem space


def test_a_problem_and_all_its_reorderings_are_in_one_split() -> None:
    for terms in ((1, 2, 3), (0, 0, 9, 4), (5, 4, 3, 2, 1)):
        assert len({arithmetic.split_of(order) for order in permutations(terms)}) == 1


def test_the_splits_share_the_space_as_said() -> None:
    counts = Counter(
        arithmetic.split_of((a, b, c, d)) for a in range(10) for b in range(10) for c in range(10) for d in range(10)
    )
    assert counts["corpus"] / 10_000 == pytest.approx(0.6, abs=0.05)
    assert counts["test"] / 10_000 == pytest.approx(0.2, abs=0.05)


def test_no_problem_of_one_split_is_in_another_whatever_the_seeds() -> None:
    seen: dict[str, str] = {}
    for split in arithmetic.SPLITS:
        for seed in range(3):
            problems = arithmetic.problems(split, 300, seed)
            assert len({p.prompt for p in problems}) == 300
            assert arithmetic.misplaced(problems, split) == []
            for problem in problems:
                key = " ".join(map(str, sorted(arithmetic.terms_of(problem.prompt))))
                assert seen.setdefault(key, split) == split


def test_misplaced_finds_a_training_problem_among_the_held_out() -> None:
    (leak,) = arithmetic.problems("train", 1, 0)
    assert arithmetic.misplaced([*arithmetic.problems("test", 5, 0), leak], "test") == [leak.prompt]


def test_the_same_seed_gives_the_same_problems_and_another_others() -> None:
    assert arithmetic.problems("train", 20, 1) == arithmetic.problems("train", 20, 1)
    assert arithmetic.problems("train", 20, 1) != arithmetic.problems("train", 20, 2)


# The corpus


def test_every_document_of_the_corpus_is_about_a_corpus_problem() -> None:
    rng = random.Random(0)
    questions = [arithmetic.corpus_document(rng)[0] for _ in range(2000)]
    assert {arithmetic.split_of(arithmetic.terms_of(question)) for question in questions} == {"corpus"}


def test_the_corpus_thinks_errs_and_ignores_the_format_as_often_as_said() -> None:
    rng = random.Random(0)
    formatted, right_steps, steps, right_answers = 0, 0, 0, 0
    for _ in range(4000):
        question, text = arithmetic.corpus_document(rng)
        found = FORMATTED.fullmatch(text)
        if found:
            formatted += 1
            right_answers += int(found[2]) == sum(arithmetic.terms_of(question))
        for a, b, c in re.findall(r"(\d+)\+(\d+)=(\d+)", text):
            steps += 1
            right_steps += int(a) + int(b) == int(c)
    assert formatted / 4000 == pytest.approx(1 - arithmetic.UNFORMATTED_SHARE, abs=0.03)
    # A sum below 0 is cut to 0, which now and then makes a wrong step right.
    assert right_steps / steps == pytest.approx(1 - arithmetic.WRONG_STEP_SHARE, abs=0.02)
    assert 0.3 < right_answers / formatted < 0.6


def test_a_document_shows_its_work_in_the_order_of_the_question() -> None:
    rng = random.Random(3)
    for _ in range(200):
        question, text = arithmetic.corpus_document(rng)
        terms = arithmetic.terms_of(question)
        steps = re.findall(r"(\d+)\+(\d+)=(\d+)", text)
        if steps:
            assert [int(b) for _, b, _ in steps] == terms[1:]
            assert [int(steps[0][0]), *(int(c) for _, _, c in steps[:-1])] == [
                terms[0],
                *(int(a) for a, _, _ in steps[1:]),
            ]


# The tokenizer


def test_characters_and_tags_are_tokens_and_decode_to_the_same_text() -> None:
    tokenizer = tiny.make_tokenizer(SMALL)
    text = "3+4=<think>3+4=7</think><answer>7</answer>"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids[:7]) == ["3", "+", "4", "=", "<think>", "3", "+"]
    assert len(ids) == 4 + 1 + 5 + 1 + 1 + 1 + 1
    # The tags are text, not special: an engine that skips special tokens must not skip them.
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True) == text
    assert tokenizer.bos_token_id is None
    assert len({tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}) == 3


def test_other_text_becomes_unknown_tokens_and_is_not_dropped() -> None:
    tokenizer = tiny.make_tokenizer(SMALL)
    assert tokenizer("é水1")["input_ids"] == [tokenizer.unk_token_id] * 2 + tokenizer("1")["input_ids"]


# The base


def test_the_saved_base_loads_as_any_model_does(small_base: Path) -> None:
    assert resolve(str(small_base)) == small_base
    model, tokenizer = AutoModelForCausalLM.from_pretrained(small_base), AutoTokenizer.from_pretrained(small_base)
    made = tiny.make_tokenizer(SMALL)
    assert tokenizer("1+2=<think>")["input_ids"] == made("1+2=<think>")["input_ids"]
    assert tokenizer.decode(tokenizer("1+2=<think>")["input_ids"]) == "1+2=<think>"
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert len(tokenizer) <= model.config.vocab_size


def test_pretraining_learns_and_repeats_itself_to_the_bit(small_base: Path, tmp_path: Path) -> None:
    tiny.make(SMALL, tmp_path)
    first, second = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (small_base, tmp_path))
    assert all(torch.equal(first[name], second[name]) for name in first)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(small_base), tiny.make_tokenizer(SMALL)
    ids = torch.tensor([tokenizer("1+2+3=")["input_ids"]])
    after = model(ids).logits[0, -1].softmax(-1)
    likely = {tokenizer.decode(i) for i in after.topk(2).indices.tolist()}
    assert "<think>" in likely  # an untrained model gives each token about 1/32


def test_pretraining_leaves_the_callers_random_state_and_threads_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected, threads = torch.rand(3), torch.get_num_threads()
    torch.manual_seed(5)
    tiny.make(SMALL, tmp_path)
    assert torch.equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads


def test_batches_hold_each_document_once_and_train_on_all_but_the_question() -> None:
    tokenizer = tiny.make_tokenizer(SMALL)
    for ids, targets in tiny._batches(tokenizer, SMALL, 3):
        assert ids.shape == targets.shape
        assert ids.shape[0] == SMALL.batch_documents
        for row, target in zip(ids.tolist(), targets.tolist(), strict=True):
            text = [i for i in row if i != tokenizer.pad_token_id]
            question = text.index(tokenizer.convert_tokens_to_ids("=")) + 1
            expected = [tiny.IGNORED] * question + text[question:]
            assert target[: len(text)] == expected
            assert set(target[len(text) :]) <= {tiny.IGNORED}
            assert text[-1] == tokenizer.eos_token_id


# The cache


def test_the_base_is_made_once_and_again_when_its_settings_change(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(tiny, "make", lambda config, folder: made.append(config))
    first = tiny.ensure(SMALL)
    assert tiny.ensure(SMALL) == first
    assert made == [SMALL]
    other = tiny.TinyConfig(seed=1)
    assert tiny.ensure(other) != first
    assert made == [SMALL, other]


def test_a_failed_making_leaves_no_folder_behind(own_cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        make_once("model", fail)
    assert [path.name for path in own_cache.iterdir() if path.is_dir()] == []
    done = make_once("model", lambda folder: (folder / "whole").touch())
    assert [path.name for path in done.iterdir()] == ["whole"]


def test_what_a_killed_process_left_is_cleared_and_never_taken_for_the_model(own_cache: Path) -> None:
    left = own_cache / ".model.tmp-dead"
    left.mkdir(parents=True)
    done = make_once("model", lambda folder: (folder / "whole").touch())
    assert done == own_cache / "model"
    assert not left.exists()


def test_two_threads_that_want_a_model_at_once_make_it_once() -> None:
    from concurrent.futures import ThreadPoolExecutor
    from time import sleep

    made = []

    def slowly(folder: Path) -> None:
        made.append(folder)
        sleep(0.2)

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: make_once("model", slowly), range(2))
    assert one == other
    assert len(made) == 1


def test_a_cache_that_cannot_be_written_says_how_to_choose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("R1ZERO_CACHE", str(blocked / "cache"))
    with pytest.raises(cache.UserError, match="R1ZERO_CACHE"):
        make_once("model", lambda folder: None)


@pytest.mark.slow
def test_vllm_and_transformers_answer_alike(small_base: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed")
    from r1zero.config import EngineConfig
    from r1zero.rollout import Sampling, make_engine

    tokenizer, model = AutoTokenizer.from_pretrained(small_base), AutoModelForCausalLM.from_pretrained(small_base)
    prompts = [tokenizer(p.prompt)["input_ids"] for p in arithmetic.problems("test", 8, 0)]
    config = EngineConfig(name="vllm", max_sequences=16)
    engine = make_engine(config, str(small_base), compute_dtype=torch.float32, max_context=64)
    try:
        sampling = Sampling(max_tokens=40, temperature=0.0, stop_token_ids=(tokenizer.eos_token_id,))
        groups = engine.generate(prompts, sampling, 1)
    finally:
        engine.close()
    for prompt, (completion,) in zip(prompts, groups, strict=True):
        ids = torch.tensor([prompt])
        expected = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)
        assert list(completion.token_ids) == expected[0, len(prompt) :].tolist()
        assert completion.text == tokenizer.decode(completion.token_ids, skip_special_tokens=True)
