"""A progress bar for work in several stages. It is drawn at a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn


class Stages:
    """One line with the name of the stage and its progress."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def begin(self, title: str) -> Callable[[float], None]:
        """Starts a stage. The returned function takes the fraction that is done, from 0 to 1."""
        self._progress.reset(self._task, description=title)
        self._progress.refresh()
        return self._advance

    def _advance(self, fraction: float) -> None:
        self._progress.update(self._task, completed=fraction)
        self._progress.refresh()


@contextmanager
def show_stages(console: Console, *, visible: bool) -> Iterator[Stages]:
    """A progress bar while the block runs."""
    # drawn only when progress is reported: a thread that redraws would disturb what is measured
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=not visible) as progress:
        yield Stages(progress, progress.add_task("", total=1.0))
