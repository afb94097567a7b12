"""Generated sources: reasoning-gym tasks and the miniature arithmetic, as problems.

Split `test` has the questions that hash to a held-out fifth, whatever the seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from r1zero.config import DataConfig
from r1zero.data.records import Problem
from r1zero.errors import UserError, unknown_name

GYM = "reasoning_gym:"
TINY = "tiny:"
# One in five questions of a generated source is held out: which one depends on its text alone.
_TEST_SHARE = 5


def in_test_split(question: str) -> bool:
    """True for the fifth of all questions that a generated source holds out. Depends on the text alone, so that no
    seed, size or option can bring a held-out question into training."""
    return hashlib.sha256(normal(question).encode()).digest()[0] % _TEST_SHARE == 0


def normal(question: str) -> str:
    return " ".join(question.split()).casefold()


def gym_problems(config: DataConfig) -> list[Problem]:
    """`size` distinct problems of a reasoning-gym task; `options` are the task's own parameters.

    Split `test` has the questions that hash to the held-out fifth and `train` the others: reasoning-gym's own seeds do
    not separate them (item i of seed s is item 0 of seed s + i). Split `all` takes both.
    """
    task = config.source.removeprefix(GYM)
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise UserError("reasoning_gym sources need the package: pip install 'r1zero[gym]'") from error
    if task not in DATASETS:
        raise unknown_name("reasoning-gym task", task, DATASETS)
    _check_generated(config, ("train", "test", "all"))
    tries = 20 * config.size + 1000
    try:
        entries = reasoning_gym.create_dataset(task, seed=config.seed, size=tries, **config.options)
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(f"{config.source}: options {config.options} are not its own ({error})") from error
    problems: dict[str, Problem] = {}
    for index in range(tries):
        if len(problems) == config.size:
            break
        entry = entries[index]
        question = entry["question"]
        wanted = config.split == "all" or in_test_split(question) == (config.split == "test")
        if not wanted or question in problems:
            continue
        problems[question] = Problem(
            id=f"{task}-{config.seed}-{index}",
            prompt=question,
            answer="" if entry["answer"] is None else str(entry["answer"]),
            data={"reasoning_gym": task, "entry": entry},
            source=config.source,
        )
    return _enough(list(problems.values()), config)


def tiny_problems(config: DataConfig) -> list[Problem]:
    from r1zero.data.miniature import arithmetic

    if config.source != "tiny:arithmetic":
        raise unknown_name("generated source", config.source, ["tiny:arithmetic"])
    _check_generated(config, arithmetic.SPLITS)
    if config.options:
        raise UserError(f"tiny:arithmetic takes no options, got {', '.join(config.options)}")
    return _enough(arithmetic.problems(config.split, config.size, config.seed), config)


def _check_generated(config: DataConfig, splits: Sequence[str]) -> None:
    if config.split not in splits:
        raise unknown_name(f"split of {config.source}", config.split, splits)
    if config.filter:
        raise UserError(f"data.filter is for files and hub datasets; {config.source} is shaped by data.options")


def _enough(problems: list[Problem], config: DataConfig) -> list[Problem]:
    if len(problems) < config.size:
        raise UserError(
            f"{config.source}, split {config.split}: found only {len(problems)} distinct problems of the {config.size} "
            "asked for: lower data.size or widen data.options"
        )
    return problems
