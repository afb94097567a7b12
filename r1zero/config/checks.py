"""What the sections check their numbers with."""

from __future__ import annotations


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def require_least(section: str, config: object, least: float, *names: str) -> None:
    """Each of these settings of `config` is at least `least`; `section` is what they stand under, or empty."""
    for name in names:
        value = getattr(config, name)
        where = f"{section}.{name}" if section else name
        require(value >= least, f"{where} must be {least:g} or more, got {value}")
