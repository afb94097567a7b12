"""The libraries' chatter goes to a file of the run."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest

from r1zero.runs.library_log import FILE, library_log


def test_log_records_and_warnings_go_to_the_file_and_loggers_are_put_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("vllm.engine")
    before = logging.getLogger("vllm").handlers
    with warnings.catch_warnings(), library_log(tmp_path):
        warnings.simplefilter("always")
        logger.warning("a request was preempted")
        warnings.warn("deprecated", stacklevel=1)
    text = (tmp_path / FILE).read_text()
    assert "WARNING vllm.engine: a request was preempted" in text
    assert "deprecated" in text
    assert capsys.readouterr().err == ""
    assert logging.getLogger("vllm").handlers == before


def test_a_level_that_a_library_set_for_itself_does_not_keep_warnings_out(tmp_path: Path) -> None:
    parent = logging.getLogger("vllm")
    level = parent.level
    parent.setLevel(logging.CRITICAL)  # what vLLM does when it was imported with VLLM_LOGGING_LEVEL=CRITICAL
    try:
        with library_log(tmp_path):
            logging.getLogger("vllm.engine").warning("a request was preempted")
        assert "a request was preempted" in (tmp_path / FILE).read_text()
        assert parent.level == logging.CRITICAL
    finally:
        parent.setLevel(level)


def test_a_quiet_run_leaves_no_file(tmp_path: Path) -> None:
    with library_log(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
