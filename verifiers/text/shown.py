"""What of a completion is for the reader: the text that verifiers of whole texts judge."""

from __future__ import annotations

from r1zero.verifiers.text.extract import visible


def shown(completion: str) -> str:
    """The last closed answer tag's content, else the text without its think blocks; empty where one is left open."""
    text = visible(completion)
    if text is None:
        return ""
    _, opened, rest = text.rpartition("<answer>")
    inner, closed, _ = rest.partition("</answer>")
    return inner if opened and closed else text
