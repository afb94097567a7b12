"""A hub that takes connections and never answers: a socket that listens."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from r1zero.data.hub import HUB_SECONDS
from tests.tiny_models import save_model, tiny_llama


@pytest.fixture
def deaf(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which that is the hub."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        yield {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}


def run(code: str, environment: dict[str, str]) -> tuple[str, str]:
    command = [sys.executable, "-W", "ignore", "-c", "from r1zero.errors import UserError\n" + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "from r1zero import models\ntry: models.resolve('someone/model')\nexcept UserError as e: print(e)",
        "from r1zero.data.rows import read_rows\nfrom r1zero.config import DataConfig\n"
        "try: read_rows(DataConfig(source='someone/data', split='train'))\nexcept UserError as e: print(e)",
    ],
)
def test_a_hub_that_does_not_answer_is_a_line_within_its_deadline(code: str, deaf: dict[str, str]) -> None:
    out, err = run(code, deaf)
    assert f"has not answered for {HUB_SECONDS:g} s: only what is cached here is used" in err
    assert "Traceback" not in err
    assert "Retry" not in err  # its client was kept from trying again and again
    assert "someone/" in out
    assert out.count("\n") == 1


def test_what_is_cached_is_used(deaf: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "home" / "hub" / "models--someone--model"
    snapshot = place / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    shutil.copytree(save_model(tmp_path / "model", tiny_llama()), snapshot, dirs_exist_ok=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)
    code = "from r1zero import models\nprint(models.resolve('someone/model'))"
    out, err = run(code, deaf)
    assert Path(out.strip()) == snapshot
    assert "only what is cached here is used" in err
