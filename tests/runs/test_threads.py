import subprocess
import sys
from pathlib import Path

from r1zero.runs.threads import available_cores, trainer_threads


def start_run(folder: Path) -> "subprocess.Popen[str]":
    code = (
        "import sys; from pathlib import Path; from r1zero.runs.threads import trainer_threads; "
        f"print(*trainer_threads(0, Path({str(folder)!r})), flush=True); sys.stdin.read()"
    )
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_second_run_says_what_to_set_until_the_first_has_died(tmp_path: Path) -> None:
    cores = available_cores()
    first = start_run(tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == str(cores)  # alone: every core, nothing to say
    second = start_run(tmp_path)
    assert second.stdout is not None
    line = second.stdout.readline()
    assert line.startswith(f"{cores} 1 other run is under way")
    assert f"--run.threads {max(cores // 2, 1)}" in line
    for process in (first, second):
        process.kill()
        process.communicate()
    third = start_run(tmp_path)
    assert third.communicate(timeout=30)[0].strip() == str(cores)


def test_what_a_run_asks_for_it_gets(tmp_path: Path) -> None:
    assert trainer_threads(3, tmp_path) == (3, "")
