"""`r1zero.train`: what it refuses before anything is loaded or written."""

from typing import Any

import pytest

import r1zero
from r1zero.errors import UserError


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (None, None, "None is no recipe"),
        (dict, None, "is no recipe"),
        ("tiny-cpu", ["run.steps"], "give a mapping"),
        ("tiny-cpu", {3: 1}, "give a mapping"),
    ],
)
def test_train_names_a_recipe_or_settings_of_the_wrong_type(recipe: Any, settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        r1zero.train(recipe, settings)
