"""A verifier in a package of its own: installed with pip into a fresh environment, found, checked, audited, trained on.

Nothing is downloaded: the environment sees the installed packages of the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import zstandard

from tests import ROOT, TESTS
from tests.tiny_models import save_model, tiny_llama

pytestmark = pytest.mark.slow


class Environment:
    """A virtual environment with the example plugin in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def run(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """`python ARGUMENTS` in the environment, away from the checkout."""
        return subprocess.run(
            [str(self.python), *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )

    def r1zero(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return self.run(
            "-c", "import sys; from r1zero.commands.main import main; sys.exit(main())", *arguments, seconds=seconds
        )


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
    environment = Environment(folder)
    # A copy: the build leaves files beside the source.
    source = shutil.copytree(TESTS / "example_plugin", folder / "source")
    installed = environment.run(
        "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", str(source)
    )
    assert installed.returncode == 0, installed.stderr
    return environment


def test_the_plugin_is_listed_and_passes_the_conformance_suite(environment: Environment) -> None:
    listed = environment.r1zero("verifiers", "list")
    assert listed.returncode == 0, listed.stderr
    (line,) = [line for line in listed.stdout.splitlines() if line.startswith("palindrome")]
    assert "r1zero_palindrome" in line
    checked = environment.r1zero("verifiers", "check", "palindrome")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_recipe_can_set_its_options_and_a_typo_is_named(environment: Environment) -> None:
    rows = environment.folder / "rows.jsonl"
    rows.write_text(json.dumps({"gold": "4", "output": "<answer>abBA</answer>", "correct": True}) + "\n")
    audit = environment.r1zero(
        "verifiers", "audit", "rows.jsonl", "--verifier", "palindrome", "--option", "ignore_case=true"
    )
    assert "100.00" in audit.stdout, audit.stderr
    typo = environment.r1zero("verifiers", "check", "palindrom")
    assert typo.returncode == 2
    assert "did you mean 'palindrome'" in typo.stderr


def test_three_steps_of_training_use_it(environment: Environment) -> None:
    model = environment.folder / "model"
    save_model(model, tiny_llama())
    recipe = environment.folder / "palindrome.yaml"
    recipe.write_text(
        textwrap.dedent(f"""
        extends: tiny-cpu
        model: {{path: "{model}"}}
        engine: {{name: transformers}}
        reward: {{terms: [{{verifier: palindrome, options: {{ignore_case: true}}}}, {{verifier: answer_tags}}]}}
        algorithm: {{group_size: 4, prompts_per_step: 4}}
        eval: {{data: {{source: ""}}}}
        sampling: {{max_tokens: 16}}
        run: {{name: palindrome, steps: 3, trackers: [], threads: 1}}
        """)
    )
    trained = environment.r1zero("train", str(recipe), seconds=600)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    files = sorted((environment.folder / "runs" / "palindrome" / "rollouts").glob("step-*.jsonl.zst"))
    assert len(files) == 3
    text = zstandard.ZstdDecompressor().decompressobj().decompress(files[0].read_bytes()).decode()
    verdicts = [json.loads(line)["verdicts"]["palindrome"] for line in text.splitlines()]
    assert len(verdicts) == 16
    assert all(verdict["outcome"] in ("correct", "wrong", "unparseable", "truncated") for verdict in verdicts)
