"""What the commands share: tables on stdout, progress on stderr, file errors as the user's to mend."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r1zero.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from r1zero.eval.result import EvalResult


@contextmanager
def file_errors() -> Iterator[None]:
    """A file that cannot be read or written is the user's to mend. A full disk has no file name: the command line's."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str | Path):
            raise
        raise UserError(f"{error.filename}: {error.strerror}: choose another path, or its permissions") from error


def print_results(results: list[EvalResult], shown: Any, warnings: Callable[[EvalResult], list[str]]) -> None:
    console().print(shown)
    for result in results:
        for warning in warnings(result):
            print(f"warning: {warning}")


def console() -> Console:
    """A table in a log file is not cut to the 80 columns of a terminal that is not there."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


def name_list(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


class Bar:
    """Progress on stderr: a bar a benchmark."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._tasks: dict[str, Any] = {}

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False)

    def update(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._progress.start()
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tasks:  # never begun, it would still print an empty line: an error is one line
            self._progress.stop()
