from __future__ import annotations

import pytest

from r1zero.config import DemonstrationDataConfig, PreferenceDataConfig
from r1zero.data.shapes import as_read
from r1zero.errors import UserError

SFT, DPO = DemonstrationDataConfig(source="x"), PreferenceDataConfig(source="x")


def test_sharegpt_turns_are_messages() -> None:
    row = {
        "conversations": [
            {"from": "system", "value": "S"},
            {"from": "human", "value": "Q"},
            {"from": "gpt", "value": "A"},
        ]
    }
    assert as_read(row, SFT)["messages"] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A"},
    ]


def test_an_unknown_speaker_is_refused() -> None:
    with pytest.raises(UserError, match="a turn needs a from"):
        as_read({"conversations": [{"from": "narrator", "value": "Q"}]}, SFT)


def test_alpaca_has_its_input_below_the_instruction() -> None:
    row = as_read({"instruction": "Add.", "input": "1 2", "output": "3"}, SFT)
    assert (row["prompt"], row["response"]) == ("Add.\n\n1 2", "3")
    assert as_read({"instruction": "Hi.", "input": "", "output": "Ho."}, SFT)["prompt"] == "Hi."


def test_hh_transcripts_are_chats_that_keep_blank_lines_within_a_turn() -> None:
    head = "\n\nHuman: Q\n\nmore\n\nAssistant: A\n\nHuman: And?\n\nAssistant:"
    row = as_read({"chosen": f"{head} Good.", "rejected": f"{head} Bad."}, DPO)
    assert [m["role"] for m in row["chosen"]] == ["user", "assistant", "user", "assistant"]
    assert row["chosen"][0]["content"] == "Q\n\nmore"
    assert row["chosen"][:-1] == row["rejected"][:-1]
    assert (row["chosen"][-1]["content"], row["rejected"][-1]["content"]) == ("Good.", "Bad.")


def test_ultrafeedback_completions_are_ranked_and_ties_are_no_pair() -> None:
    said = [("C", 2.0), ("A", 4.5), ("B", 2.0)]
    row = {"instruction": "Q", "completions": [{"response": r, "overall_score": s} for r, s in said]}
    assert as_read(row, DPO)["responses"] == ["A", "C"]
    assert as_read(row, DPO)["prompt"] == "Q"


def test_a_kto_completion_is_the_response_as_text_or_as_one_message() -> None:
    assert as_read({"prompt": "Q", "completion": "A", "label": True}, DPO)["response"] == "A"
    chat = {"prompt": [], "completion": [{"role": "assistant", "content": "A"}], "label": False}
    assert as_read(chat, DPO)["response"] == "A"


def test_rows_in_the_projects_own_fields_are_left_as_they_are() -> None:
    for row in (
        {"messages": [], "conversations": []},
        {"prompt": "Q", "response": "A", "instruction": "I", "output": "O"},
    ):
        assert as_read(row, SFT) is row
    pair = {"prompt": "Q", "chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "c"}
    assert as_read(pair, DPO) is pair
