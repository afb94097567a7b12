"""The served pages: what is answered, what is refused, and that a page follows its run."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from r1zero.errors import UserError
from r1zero.report.serve import Reports, address, server
from r1zero.runs.folder import RunFolder
from tests.report.browser import browser
from tests.report.made import completion, eval_folder, run_folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rows = [completion("one", paid=True, truth=True)]
    (tmp_path / "secret.txt").write_text("secret")
    run_folder(tmp_path / "runs", "a b&c", {1: rows, 2: rows})
    run_folder(tmp_path / "runs" / "lab", "seed-0", {1: rows})
    eval_folder(tmp_path / "runs" / "evals" / "first", [True, False])
    return tmp_path / "runs"


@pytest.fixture
def url(runs: Path) -> Iterator[str]:
    with server(Reports([runs]), "127.0.0.1", 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            yield address(running)
        finally:
            running.shutdown()
            thread.join()


def test_all_runs_and_evaluations_of_a_folder_are_in_one_list(url: str) -> None:
    page = httpx.get(url).text
    for name in ("a%20b%26c", "lab/seed-0", "evals/first"):
        assert f'href="/report?run={name}"' in page


def test_a_run_several_runs_and_an_evaluation_have_their_pages(url: str) -> None:
    assert "a b&amp;c" in httpx.get(url + "report", params={"run": "a b&c"}).text
    both = httpx.get(url + "report?run=a+b%26c&run=lab/seed-0").text
    assert both.count('<b class="run"') == 2
    assert "avg@k" in httpx.get(url + "report?run=evals/first").text


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "%2e%2e/secret.txt",
        "report?run=../secret.txt",
        "report?run=..",
        "report?run=/etc",
        "secret.txt",
    ],
)
def test_nothing_outside_the_list_is_answered(url: str, path: str) -> None:
    answer = httpx.get(url + path)
    assert answer.status_code == 404
    assert answer.text.startswith("there is no ")


def test_nothing_can_be_written_and_a_foreign_name_is_refused(url: str) -> None:
    assert httpx.post(url, content=b"x").status_code == 501
    assert httpx.delete(url + "report?run=evals/first").status_code == 501
    assert httpx.get(url, headers={"Host": "evil.example:80"}).status_code == 403
    assert httpx.get(url, headers={"Host": "localhost:80"}).status_code == 200


def test_a_broken_run_is_an_error_that_names_the_file_and_the_server_goes_on(url: str, runs: Path) -> None:
    (runs / "a b&c" / "rollouts" / "step-000001.jsonl.zst").write_bytes(b"no zstd")
    answer = httpx.get(url + "report", params={"run": "a b&c"})
    assert answer.status_code == 500
    assert "step-000001.jsonl.zst cannot be read" in answer.text
    assert httpx.get(url).status_code == 200


def test_a_port_that_is_taken_is_an_error_of_one_line(url: str, runs: Path) -> None:
    with pytest.raises(UserError, match="choose another --port"):
        server(Reports([runs]), "127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))
    with pytest.raises(UserError, match="is no folder"):
        Reports([runs / "nowhere"])


@pytest.mark.slow
def test_a_page_in_a_browser_follows_its_run(url: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r1zero.report.serve.REFRESH_SECONDS", 0.2)
    with browser() as page:
        page.open(url + "report?run=a+b%26c")
        assert page.run("return DATA.runs[0].steps") == [1, 2]
        page.run("scrollTo(0, 300)")
        folder = RunFolder(runs, "a b&c")
        folder.log({"step": 3, "reward/mean": 0.5})
        os.utime(folder.path / "metrics.jsonl")
        deadline = time.monotonic() + 20
        while page.run("return document.readyState === 'complete' ? DATA.runs[0].steps.length : 0") != 3:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert page.run("return scrollY") == 300
        page.enter("search", "one")
        folder.log({"step": 4, "reward/mean": 0.5})
        while page.run("return document.getElementById('fresh').hidden"):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert page.run("return DATA.runs[0].steps.length") == 3  # not under the reader's hands
        assert page.complaints() == []
