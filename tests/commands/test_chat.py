"""`r1zero chat`: a stream cut at its think tags, and a checkpoint that answers from standard input."""

import io
from pathlib import Path

import pytest

from r1zero.commands.chat import Parts
from r1zero.commands.main import main
from tests.tiny_models import save_model, tiny_llama


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_thought_is_told_from_the_rest_wherever_the_pieces_end(size: int) -> None:
    text = "a < b <think>no <thin>, yes</think>the <b>end</b> <"
    parts, thought, spoken = Parts(), "", ""
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    for shown, thinks in [*(one for piece in pieces for one in parts.feed(piece)), *parts.end()]:
        thought, spoken = (thought + shown, spoken) if thinks else (thought, spoken + shown)
    assert thought == "<think>no <thin>, yes</think>"
    assert spoken == "a < b the <b>end</b> <"


def test_the_prefill_that_opens_the_thought_is_shown_and_is_part_of_it() -> None:
    parts = Parts()
    assert list(parts.feed("<think>")) == [("<think>", True)]
    assert list(parts.feed("so</think>3")) == [("so", True), ("</think>", True), ("3", False)]


def test_a_checkpoint_answers_each_line_and_is_judged_where_there_is_a_gold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_model(tmp_path / "model", tiny_llama())
    monkeypatch.setattr("sys.stdin", io.StringIO("1+2=\n\n/gold 3\n1+2=\n/quit\nnever read\n"))
    assert main(["chat", folder, "--template", "plain", "--max-tokens", "5", "--temperature", "0"]) == 0
    first, second, verdict = capsys.readouterr().out.splitlines()
    assert first == second  # greedy
    assert len(first) == 5  # a token is a character
    assert verdict.partition(":")[0] in ("wrong", "unparseable")


def test_a_checkpoint_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
