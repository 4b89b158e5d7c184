"""Progress on stderr, and only where stderr is a terminal: somebody who looks. Elsewhere all of this does nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from satchel.cli.output import console, is_terminal
from satchel.cli.visible import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

NOTICED = 1.0  # seconds after which somebody wonders


class Bar:
    """One thing that is under way."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task

    def reach(self, completed: int, *, note: str = "") -> None:
        """It has come this far."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=completed, note=one_line(note))

    def paper(self) -> Console:
        """Where lines of stdout go meanwhile, so that bar and lines on one terminal do not tear each other."""
        if self._progress is not None and is_terminal(sys.stdout):
            return self._progress.console
        return console()


@contextmanager
def bar(what: str, *, total: int | None, in_bytes: bool = False, beside_data: bool = False) -> Iterator[Bar]:
    """``total`` None: nobody knows how far it is. ``beside_data``: raw data goes to stdout meanwhile; on the same terminal
    it is progress enough, and a bar would tear it."""
    if not is_terminal(sys.stderr) or (beside_data and is_terminal(sys.stdout)):
        yield Bar()
        return
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    progress = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn() if in_bytes else MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        console=console(sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with progress:
        yield Bar(progress, progress.add_task(one_line(what), total=total, note=""))


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """For something of one piece. Most take no time that anybody notices, and show nothing."""
    if not is_terminal(sys.stderr):
        yield
        return
    lock = threading.Lock()
    shown: list[Progress] = []
    is_over = False

    def show() -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with lock:
            if is_over:
                return
            progress = Progress(
                *columns, console=console(sys.stderr), transient=True, redirect_stdout=False, redirect_stderr=False
            )
            progress.add_task(one_line(what), total=None)
            progress.start()
            shown.append(progress)

    timer = threading.Timer(NOTICED, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
        for progress in shown:
            progress.stop()
