"""The page in a real browser: silent, offline, nothing on top of anything, and what one can do on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from r1zero.report.build import write
from tests.report.browser import Page, browser
from tests.report.made import HOSTILE, completion, eval_folder, run_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as opened:
        yield opened


def made(tmp_path: Path, *paths: Path) -> str:
    """The address of a page of these folders."""
    out = tmp_path / "report.html"
    write(paths, out)
    return out.as_uri()


def a_run(root: Path, name: str = "a", seed: int = 0) -> Path:
    steps = {}
    for step in range(1, 9):
        steps[step] = [
            completion(f"<think>wait, {step}</think><answer>3</answer>", paid=True, truth=step < 5),
            completion(f"unsure {step} Zebra", paid=False, truth=False, problem="p1", prompt="2+2="),
        ]
    extra = {"policy/kl": 0.1, "policy/entropy": 0.5, "reward/paid/correct": 0.5, "reward/paid/wrong": 0.5}
    return run_folder(
        root, name, steps, lambda s: {k: v * (1 + s / 10 + seed / 5) for k, v in extra.items()}, seed=seed
    )


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_is_silent_offline_and_nothing_overlaps(page: Page, tmp_path: Path, width: int, dark: bool) -> None:
    runs = [a_run(tmp_path, "a name that goes on and on and on", 0), a_run(tmp_path, "b", 1)]
    page.width(width, dark=dark)
    page.requests()
    page.complaints()
    page.open(made(tmp_path, *runs))
    assert page.overlaps() == []
    assert page.complaints() == []
    assert page.requests() == []
    assert page.run("return getComputedStyle(document.body).backgroundColor") == (
        "rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)"
    )


def test_charts_stand_where_their_values_are(page: Page, tmp_path: Path) -> None:
    page.open(made(tmp_path, a_run(tmp_path)))
    titles = page.run("return [...document.querySelectorAll('#panels figure')].map((f) => f.dataset.title)")
    assert titles[:2] == ["Reward", "Score of each reward term"]
    # reward/paid/score is 0.5 at each step: a level line; reward/truth/score falls to 0 after step 4.
    page.enter("smoothing", "0")
    lines = page.run(
        "return [...document.querySelectorAll('[data-title=\"Score of each reward term\"] polyline')]"
        ".map((l) => l.getAttribute('points').split(' ').map((p) => Number(p.split(',')[1])))"
    )
    assert [len(line) for line in lines] == [8, 8]
    assert len(set(lines[0])) == 1
    assert lines[1][:4] == [lines[0][0]] * 4
    assert len(set(lines[1][4:])) == 1
    assert lines[1][4] > lines[1][3]  # lower on the screen


def test_seeds_are_one_line_in_a_band_until_each_is_asked_for(page: Page, tmp_path: Path) -> None:
    page.open(made(tmp_path, a_run(tmp_path, "a", 0), a_run(tmp_path, "b", 1)))
    count = "return document.querySelectorAll('[data-title=\"KL to the reference\"] {}').length"
    page.enter("smoothing", "0")
    assert (page.run(count.format("polyline")), page.run(count.format("polygon"))) == (1, 1)
    page.run("document.getElementById('each').click()")
    assert (page.run(count.format("polyline")), page.run(count.format("polygon"))) == (2, 0)


def test_search_and_filters_choose_the_samples(page: Page, tmp_path: Path) -> None:
    page.open(made(tmp_path, a_run(tmp_path)))
    assert page.texts("#sample-count") == ["16 of 16 samples"]
    page.enter("search", "zebra")
    assert page.texts("#sample-count") == ["8 of 16 samples"]
    assert set(page.texts("#sample-list mark")) == {"Zebra"}
    page.enter("by-step", "3")
    assert page.texts("#sample-list .completion") == ["unsure 3 Zebra"]
    page.enter("search", "")
    page.enter("by-step", "")
    page.enter("by-outcome", "truth: correct")
    assert page.texts("#sample-count") == ["4 of 16 samples"]
    page.enter("by-outcome", "")
    page.run("document.getElementById('disputed').click()")
    assert page.texts("#sample-count") == ["4 of 16 samples"]  # steps 5 to 8: paid, and not true
    page.enter("order", "oldest")
    assert page.texts("#sample-list .think")[0] == "<think>wait, 5</think>"


def test_one_prompt_is_seen_across_steps(page: Page, tmp_path: Path) -> None:
    page.open(made(tmp_path, a_run(tmp_path)))
    page.run("document.querySelector('.across').click()")
    shown = page.texts("#across-body .completion")
    assert len(shown) == 8
    assert shown[0].startswith("<think>wait, 1<")


def test_a_hostile_completion_is_shown_as_text_and_breaks_nothing(page: Page, tmp_path: Path) -> None:
    rows = [completion(HOSTILE + "x" * 1_000_000, paid=True, truth=False, problem=HOSTILE, prompt=HOSTILE)]
    run = run_folder(tmp_path, "a", {1: rows, 2: rows * 2, 3: rows})
    page.complaints()
    page.requests()
    page.width(390)
    page.open(made(tmp_path, run))
    assert page.run("return window.broken === undefined")
    assert page.texts("#sample-count") == ["4 of 4 samples"]
    text = page.texts("#sample-list .completion")[0]
    assert text.startswith("</script><script>window.broken = 1</script><img src=x")
    assert "‹U+0000›‹U+001B›[31m‹U+0008› &lt;b&gt; ‹U+202E›right to left‹U+202C›" in text
    assert "characters left out of this page" in text
    assert (page.overlaps(), page.complaints(), page.requests()) == ([], [], [])


def test_a_right_and_b_wrong_is_one_choice(page: Page, tmp_path: Path) -> None:
    a = eval_folder(tmp_path / "a", [True, False, True, False], HOSTILE.replace("\u2028", ""))
    b = eval_folder(tmp_path / "b", [False, True, True, False])
    page.width(1280)
    page.open(made(tmp_path, a, b))
    assert page.texts("#q-count") == ["4 of 4 questions"]
    page.enter("q-filter", "a")
    assert page.texts("#q-count") == ["1 of 4 questions"]
    assert [one.rsplit(" ", 2)[1:] for one in page.texts("#q-list .completion")] == [["0", "good"], ["0", "bad"]]
    assert page.run("return window.broken === undefined")
    assert page.complaints() == []
