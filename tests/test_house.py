"""The house as its README draws it: the floors are those that the lint holds, each room says what it is for."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from r1zero.verifiers import registry
from tests import ROOT

ROOMS = sorted(p for p in (ROOT / "r1zero").iterdir() if p.is_dir() and p.name != "__pycache__")


def test_the_readme_draws_the_floors_that_the_lint_checks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    drawn = [line.strip() for line in (ROOT / "r1zero" / "README.md").read_text(encoding="utf-8").splitlines()]
    floors = [layer.replace("r1zero.", "") for layer in layers]
    start = drawn.index(floors[0])
    assert drawn[start : start + len(floors)] == floors


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_each_room_has_a_readme_of_at_most_25_lines_that_names_files_that_are_there(room: Path) -> None:
    text = (room / "README.md").read_text(encoding="utf-8")
    # The verifiers' own table stands behind their page: a row for each of them.
    head = text.split("\n## ")[0] if room.name == "verifiers" else text
    assert len(head.splitlines()) <= 25
    named = [word for word in text.split("`") if word.endswith(".py") and " " not in word]
    assert named, "names the file to open first"
    missing = [name for name in named if not [*room.glob(name), *ROOT.glob(name)]]
    assert not missing


def test_the_verifiers_table_has_a_row_for_each_that_is_built_in() -> None:
    text = (ROOT / "verifiers" / "README.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    ours = [name for name in registry.names() if registry.get(name).function.__module__.startswith("r1zero.")]
    assert sorted(rows) == ours


def test_importing_the_package_loads_no_torch() -> None:
    code = "import sys; import r1zero; print({'torch', 'numpy', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"
