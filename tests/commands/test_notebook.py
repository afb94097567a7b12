"""The front door as a notebook uses it, in a real kernel: problems, reward function and plot stand in its cells."""

import time
from pathlib import Path

import pytest

from tests import ROOT
from tests.tiny_models import save_model, tiny_llama

nbformat = pytest.importorskip("nbformat", reason="notebooks need nbformat and nbclient")
nbclient = pytest.importorskip("nbclient", reason="notebooks need nbformat and nbclient")
pytest.importorskip("ipykernel", reason="a notebook's kernel is ipykernel")

CELLS = [
    "import r1zero",
    """
problems = [(f"{n} + {n} = ", str(2 * n)) for n in range(1, 11)]
BONUS = 0.25

def reward(completion, answer):
    if completion.strip() == answer:
        return 1.0
    return BONUS * ("1" in completion)
""",
    """
run = r1zero.train(
    "tiny-cpu",
    {"model.path": "model", "run.name": "cell", "run.steps": 3, "run.trackers": [], "reward.workers": 1,
     "algorithm.prompts_per_step": 4, "algorithm.group_size": 4, "sampling.max_tokens": 12},
    problems=problems[:8],
    held_out=problems[8:],
    reward=reward,
)
rows = run.metrics()
assert list(rows["step"]) == [0, 1, 2, 3]
""",
    """
try:
    import matplotlib
    matplotlib.use("Agg")
    rows.plot(x="step", y="reward/mean").figure.savefig("reward.png")
except ImportError as error:
    print("no plot:", error)
""",
    """
scored = {row["reward"] for row in run.rollouts(1)}
assert scored <= {0.0, 0.25, 1.0}, scored
assert any(row["reward"] == (0.25 if "1" in row["completion"] else 0.0) for row in run.rollouts(1))
run = run.resume({"run.steps": 4})
assert run.checkpoint("last").name == "step-4"
assert run.checkpoint("best").is_dir()
""",
    """
first = r1zero.evaluate("model", k=1, problems=problems, template="plain", max_tokens=8, engine=run.config.engine)
second = r1zero.evaluate(run, k=1, problems=problems, max_tokens=8)
print(second)
print(r1zero.compare(first, second))
""",
    'print(r1zero.verify("so it is \\\\boxed{1/2}", "0.5"))',
]


@pytest.mark.slow
def test_a_notebook_trains_plots_resumes_and_evaluates_with_what_its_cells_define(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    save_model(tmp_path / "model", tiny_llama())
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    began = time.monotonic()
    nbclient.NotebookClient(notebook, timeout=110, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert time.monotonic() - began < 120
    training = str(notebook.cells[2].outputs)
    assert "step 1/3" in training  # progress is seen
    assert (tmp_path / "reward.png").is_file() or "no plot" in str(notebook.cells[3].outputs)
    assert "10 x 1" in str(notebook.cells[5].outputs)
    assert "B - A" in str(notebook.cells[5].outputs)
    assert "Outcome.CORRECT" in str(notebook.cells[6].outputs)
