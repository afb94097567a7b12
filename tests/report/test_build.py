"""The page as text: the data in it are those of the folders, and nothing in them can act."""

import json
import math
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from r1zero.commands.main import main
from r1zero.errors import UserError
from r1zero.report.build import build, visible
from r1zero.runs.folder import RunFolder
from tests.report.made import HOSTILE, completion, eval_folder, run_folder


class Elements(HTMLParser):
    """Every element, the text between all tags, and the page's data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data
        else:
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.scripts[0])
        return found


def two_samples(step: int) -> list[dict[str, Any]]:
    return [completion(f"one {step}", paid=True, truth=True), completion(f"two {step}", paid=False, truth=False)]


def test_every_plotted_figure_is_the_one_in_metrics_jsonl(tmp_path: Path) -> None:
    run = run_folder(
        tmp_path, "a", {s: two_samples(s) for s in range(1, 8)}, lambda s: {"policy/kl": math.sin(s) / 3, "x": math.nan}
    )
    data = Elements(build([run])).data
    rows = RunFolder(tmp_path, "a").metrics()
    mine = data["runs"][0]
    assert mine["steps"] == [1, 2, 3, 4, 5, 6, 7]
    assert mine["columns"]["policy/kl"] == [row["policy/kl"] for row in rows]  # to the last bit
    assert mine["columns"]["reward/mean"] == [0.5] * 7
    assert "x" not in mine["columns"]  # JSON has no nan
    plotted = {key for panel in data["panels"] for key in panel["keys"]}
    assert {"policy/kl", "reward/mean", "reward/truth/score"} <= plotted <= set(mine["columns"])


def test_of_long_metrics_whole_rows_are_left_out_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r1zero.report.build.MOST_VALUES", 40)
    run = run_folder(
        tmp_path, "a", {s: two_samples(s) for s in range(1, 21)}, lambda s: {"eval/score": 0.1} if s == 6 else {}
    )
    page = build([run])
    steps = Elements(page).data["runs"][0]["steps"]
    assert steps == [1, 5, 6, 9, 13, 17, 20]  # 20 rows of 7 numbers, 40 allowed: every fourth, 6 evaluated, the last
    assert "7 of its 20 rows of metrics are in this page" in page


def test_a_hostile_completion_is_data_and_never_an_element(tmp_path: Path) -> None:
    rows = [completion(HOSTILE, paid=True, truth=False, problem=HOSTILE, prompt=HOSTILE)] * 2
    run = run_folder(tmp_path, "a", {1: two_samples(1), 2: rows})
    page = Elements(build([run]))
    assert len(page.scripts) == 2  # the data and ours
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert [s["completion"] for s in page.data["samples"] if s["step"] == 2] == [HOSTILE] * 2
    assert "\u202e" not in page.text
    assert "‹U+202E›right" in visible(HOSTILE)


def test_a_reward_that_is_no_number_is_none_and_breaks_no_figure(tmp_path: Path) -> None:
    rows = [*two_samples(1), {**completion("x", paid=True, truth=True), "reward": math.nan, "advantage": math.inf}]
    data = Elements(build([run_folder(tmp_path, "a", {1: rows})])).data
    assert {s["completion"]: (s["reward"], s["advantage"]) for s in data["samples"]}["x"] == (None, None)
    assert "reward/mean" not in data["runs"][0]["columns"]  # metrics.jsonl has nan there


def test_a_page_asks_nothing_of_the_network(tmp_path: Path) -> None:
    page = Elements(build([run_folder(tmp_path, "a", {1: two_samples(1)})]))
    for _, attributes in page.tags:
        for name in ("src", "href"):
            assert re.match(r"#|data:|$", attributes.get(name) or "")
    assert "default-src 'none'" in str(page.tags)


def test_a_megabyte_of_text_is_shortened_and_says_by_how_much(tmp_path: Path) -> None:
    run = run_folder(tmp_path, "a", {1: [completion("a" * 8_000 + "b" * 1_000_000, paid=True, truth=True)]})
    page = build([run])
    assert len(page) < 200_000
    assert "a\\n… 996,000 characters left out of this page …\\nb" in page


def test_older_samples_are_thinned_and_the_page_says_so(tmp_path: Path) -> None:
    steps = {s: [completion(f"{i}", paid=i == 3, truth=False) for i in range(9)] for s in range(1, 41)}
    page = build([run_folder(tmp_path, "a", steps)])
    kept = Elements(page).data["samples"]
    assert [s for s in sorted({one["step"] for one in kept}) if s > 30] == [32, 34, 35, 36, 37, 38, 39, 40]
    assert len(kept) == 24 * 4
    assert any(one["completion"] == "3" for one in kept if one["step"] == 40)  # the best is among the four
    assert "96 of 360 completions are in this page, from 24 of 40 steps" in page


def test_the_command_to_repeat_a_run_can_be_pasted(tmp_path: Path) -> None:
    page = Elements(build([run_folder(tmp_path, "a", {1: two_samples(1)})]))
    assert "r1zero train tiny-cpu --run.name 'a b'" in page.text


def test_what_two_runs_have_in_their_lineage_stands_once(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path, name, {1: two_samples(1)}) for name in "ab"]
    parent = {"run": "runs/parent", "stage": "sft", "checkpoint": "runs/parent/checkpoints/step-9", "weights": "77aa"}
    for run in runs:
        mine = {"run": f"runs/{run.name}", "stage": "grpo", "parents": {"model.path": {"path": parent["checkpoint"]}}}
        (run / "lineage.json").write_text(json.dumps({"runs": [parent, mine]}))
    text = Elements(build(runs)).text
    order = [text.index(f"runs/{name} (") for name in ("parent", "a", "b")]
    assert order == sorted(order)
    assert text.count("weights 77aa") == 1
    assert text.count("from model.path: runs/parent/checkpoints/step-9") == 2


def test_a_run_without_rollouts_has_a_page_without_samples(tmp_path: Path) -> None:
    run = run_folder(tmp_path, "a", {1: two_samples(1)})
    shutil.rmtree(run / "rollouts")
    sections = [attributes.get("id") for tag, attributes in Elements(build([run])).tags if tag == "section"]
    assert sections == ["runs", "curves", "evals", "lineage", "repeat"]


def test_seeds_of_one_experiment_are_known_as_such(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path, f"s{i}", {1: two_samples(1)}, seed=i) for i in (0, 1)]
    data = Elements(build(runs)).data
    assert data["runs"][0]["experiment"] == data["runs"][1]["experiment"]
    assert [run["seed"] for run in data["runs"]] == [0, 1]


def test_a_folder_of_runs_is_all_of_them(tmp_path: Path) -> None:
    for name in ("first", "second"):
        run_folder(tmp_path / "lab", name, {1: two_samples(1)})
    names = [run["name"] for run in Elements(build([tmp_path / "lab"])).data["runs"]]
    assert names == ["first", "second"]


def test_two_evaluations_stand_side_by_side_with_the_interval_of_their_difference(tmp_path: Path) -> None:
    a = eval_folder(tmp_path / "a", [True, False, False, False])
    b = eval_folder(tmp_path / "b", [False, True, True, False])
    page = Elements(build([a, b]))
    questions = page.data["questions"][0]["questions"]
    assert [q["shares"] for q in questions] == [[1, 0], [0, 1], [0, 1], [0, 0]]
    assert questions[0]["samples"][1][0]["completion"] == "the answer 0 bad"
    assert "+25.0 points" in page.text  # 2 of 4 less 1 of 4
    assert "the difference may be chance: its interval holds 0" in page.text


@pytest.mark.parametrize(("made", "says"), [(False, "is no folder"), (True, "holds no run")])
def test_a_folder_without_a_run_is_an_error_that_says_so(tmp_path: Path, made: bool, says: str) -> None:
    if made:
        (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match=says):
        build([tmp_path / "x"])


def test_the_command_writes_the_page_into_the_run_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder(tmp_path, "a", {1: two_samples(1)})
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.startswith(str(run / "report.html"))
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_page_of_runs_does_not_wait_for_torch(tmp_path: Path) -> None:
    run = run_folder(tmp_path, "a", {1: two_samples(1)})
    code = f"""import sys
from r1zero.commands.main import main
main(["report", {str(run)!r}])
print("torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_gold_term_that_no_run_has_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_folder(tmp_path, "a", {1: two_samples(1)})
    assert main(["report", str(run), "--gold", "nonsense"]) == 2
    assert "no run here has a reward term of that name" in capsys.readouterr().err
