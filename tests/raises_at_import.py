"""A module of a user's whose import fails."""

raise RuntimeError("boom")
