"""What commands print beside their results."""

import pytest

from r1zero.commands.output import Bar
from r1zero.errors import UserError


def test_a_bar_that_never_began_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError), Bar():
        raise UserError("no model folder")
    assert capfd.readouterr() == ("", "")


def test_a_bar_names_the_benchmark_it_counts(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar() as bar:
        bar.update("math500", 3, 3)
    out, err = capfd.readouterr()
    assert out == ""
    assert "math500" in err
    assert "3/3" in err
