"""What the libraries say goes to a file of the run: vLLM's and torch's chatter would hide the run's own lines."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARIES = ("vllm", "torch", "transformers", "accelerate", "datasets", "py.warnings")
FILE = "libraries.log"


@contextmanager
def library_log(folder: Path | None) -> Iterator[None]:
    """Within, the libraries' log records and warnings go to `folder/libraries.log`; None: nowhere.

    What a library writes to its standard error by itself, past Python's logging, still goes there.
    """
    # Else vLLM gives its logger handlers of its own when it is imported.
    os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
    handler = logging.NullHandler() if folder is None else logging.FileHandler(folder / FILE, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = {}
    for name in LIBRARIES:
        logger = logging.getLogger(name)
        before[name] = (list(logger.handlers), logger.propagate, logger.level)
        logger.handlers, logger.propagate = [handler], False
        # A library that was imported before may have put its own level higher; warnings are what the file is for.
        logger.setLevel(min(logger.getEffectiveLevel(), logging.WARNING))
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for name, (handlers, propagate, level) in before.items():
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()
