"""What a person sees who asks: short help, whole help, tab completion, readable lines."""

import subprocess

import pytest

from r1zero.commands.main import main
from r1zero.runs.tracking import readable


def test_help_begins_with_the_settings_people_change_and_help_all_has_every_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["train", "tiny-cpu", "--help"]) == 0
    short = capsys.readouterr().out
    options = [line for line in short.splitlines() if line.startswith("  --")]
    assert 15 <= len(options) <= 25
    assert "  --run.steps 50" in options  # the recipe's value, not the default of 100
    assert "algorithm.importance_cap" not in short
    assert main(["train", "tiny-cpu", "--help-all"]) == 0
    assert "algorithm.importance_cap" in capsys.readouterr().out


def test_completion_offers_commands_recipes_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab", reason="completion needs shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for word in ("compare", "tiny-cpu", "--algorithm.clip_high", "--optimizer.lr"):
        assert word in script


def test_sampled_text_is_shown_as_text_and_a_long_one_is_cut_in_the_middle() -> None:
    assert readable(" a\nb ") == "a\n    b"
    assert readable("x" * 700 + "y" * 700, limit=20) == "x" * 10 + " … " + "y" * 10
