"""`r1zero.evaluate`: what it refuses before the model is loaded."""

from typing import Any

import pytest

import r1zero
from r1zero.errors import UserError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": "x"}, "k is a int | None, got 'x'"),
        ({"temperature": "hot"}, "temperature is a float | None, got 'hot'"),
        ({"verifier": 3}, "verifier is a str, got 3"),
        ({"limits": 3}, "limits is no setting"),
    ],
)
def test_evaluate_names_a_setting_of_the_wrong_type(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        r1zero.evaluate("model", "tiny:arithmetic", **settings)
    assert message in str(raised.value)
