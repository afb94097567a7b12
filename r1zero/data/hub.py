"""A hub that takes connections and answers none: found out in seconds, where its client would wait and retry for
minutes for each of a repository's files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

HUB_SECONDS = 10.0
"""How long the hub may take for its first answer."""


@contextmanager
def hub() -> Iterator[None]:
    """Within, the hub is asked; where it does not answer in `HUB_SECONDS`, the local cache alone is, which is said on
    stderr: what it lacks is then an error of the client's at once."""
    import huggingface_hub.constants as settings

    if settings.HF_HUB_OFFLINE or _answers(settings.ENDPOINT):
        yield
        return
    said = f"the hub at {settings.ENDPOINT} has not answered for {HUB_SECONDS:g} s: only what is cached here is used"
    print(said, file=sys.stderr)
    import datasets.config as others  # Hugging Face's; it keeps its own copy of the setting

    before = settings.HF_HUB_OFFLINE, others.HF_HUB_OFFLINE
    settings.HF_HUB_OFFLINE = others.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        settings.HF_HUB_OFFLINE, others.HF_HUB_OFFLINE = before


@cache
def _answers(endpoint: str) -> bool:
    """False where the hub is silent. One that cannot be reached at all is left to its client, which says so at once."""
    import httpx

    try:
        httpx.head(endpoint, timeout=HUB_SECONDS)
    except httpx.TimeoutException:
        return False
    except httpx.HTTPError:
        return True
    return True
