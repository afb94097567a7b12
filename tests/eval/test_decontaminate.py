from __future__ import annotations

import pytest

from r1zero.config import DataConfig
from r1zero.data.datasets import load_problems
from r1zero.data.records import Problem
from r1zero.errors import UserError
from r1zero.eval.benchmarks import load
from r1zero.eval.decontaminate import find_overlaps, require_clean, words
from tests import SHARED

needs_data = pytest.mark.skipif(not (SHARED / "data" / "math").is_dir(), reason="no ../shared/data")


def problem(text: str, name: str = "p") -> Problem:
    return Problem(id=name, prompt=text)


def test_words_leave_out_how_a_formula_looks() -> None:
    assert words(r"Find $\dfrac{1}{2}\,x+1$.") == ["find", "\\frac", "1", "2", "x", "1"]
    assert words(r"find \( \left( \tfrac12 \right) \)") == ["find", "\\frac", "12"]


def test_ten_words_in_a_row_are_a_hit_and_nine_are_not() -> None:
    benchmark = [problem("a b c d e f g h i j k l m n o", "bench")]
    (hit,) = find_overlaps([problem("x A, b c d e f g h i $j$ y", "train")], benchmark)
    assert (hit.train_id, hit.benchmark_id, hit.num_words) == ("train", "bench", 10)
    assert hit.coverage == pytest.approx(1 / 6)  # of the six 10-grams of fifteen words
    assert find_overlaps([problem("x a b c d e f g h i y")], benchmark) == []
    assert len(find_overlaps([problem("x a b c d e f g h i y")], benchmark, ngram=9)) == 1


def test_a_short_benchmark_problem_counts_when_all_of_it_is_there() -> None:
    benchmark = [problem("What is the sum of 17 and 25?")]
    assert len(find_overlaps([problem("Hard one: what is the sum of 17 and 25? Explain.")], benchmark)) == 1
    assert find_overlaps([problem("What is the sum of 17 and 26?")], benchmark) == []
    assert find_overlaps([problem("Compute 2+2 twice")], [problem("Compute 2+2")]) == []  # three words: no evidence


def test_the_same_words_in_another_order_are_no_hit() -> None:
    assert find_overlaps([problem("j i h g f e d c b a")], [problem("a b c d e f g h i j")]) == []


def test_a_recipe_can_refuse_a_contaminated_training_set() -> None:
    same = problem("a b c d e f g h i j k", "bench")
    with pytest.raises(UserError, match=r"1 training problems share 10 words in a row with 1 evaluation problems"):
        require_clean([problem("a b c d e f g h i j k", "train")], [same])
    require_clean([problem("something else entirely")], [same])


@needs_data
def test_the_aime_problems_that_stand_in_math500_are_found() -> None:
    train = load_problems(DataConfig(source=str(SHARED / "data" / "math" / "aime_1983_2023.jsonl.gz")))
    hits = find_overlaps(train, load("math500", data_dir=str(SHARED / "data")).problems)
    same = {(hit.train_id, hit.benchmark_id) for hit in hits if hit.coverage == 1.0}
    # The data's own list, made by comparing whole texts.
    assert same >= {
        ("aime1983-I-02", "math500-0489"),
        ("aime2001-II-03", "math500-0292"),
        ("aime2010-I-06", "math500-0412"),
        ("aime2015-II-06", "math500-0285"),
        ("aime2017-II-07", "math500-0080"),
    }


@needs_data
def test_gsm8k_train_shares_no_ten_words_with_math500() -> None:
    train = load_problems(DataConfig(source=str(SHARED / "data" / "math" / "gsm8k_train.jsonl.gz")))
    assert find_overlaps(train, load("math500", data_dir=str(SHARED / "data")).problems) == []
