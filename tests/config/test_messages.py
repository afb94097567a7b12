"""What a wrong value of a setting is told: the setting, what it takes, what it got."""

import pytest

from r1zero.config import recipe
from r1zero.errors import UserError


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("run.steps", "abc", "recipe tiny-cpu: run.steps: Expected a int. Got value: abc"),
        ("optimizer.lr", "high", "recipe tiny-cpu: optimizer.lr: Expected a float. Got value: high"),
        ("algorithm.loss", "clp", "recipe tiny-cpu: algorithm.loss: Expected a Literal['clip', "),
    ],
)
def test_a_value_of_the_wrong_type_is_told_without_class_names(option: str, value: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        recipe.load("tiny-cpu", [f"--{option}", value])
    assert str(raised.value).startswith(message)


def test_help_shows_both_sides_of_the_clip() -> None:
    shown = recipe.help_text("tiny-cpu")
    assert "--algorithm.clip_low" in shown
    assert "--algorithm.clip_high" in shown
