"""A progress bar for work in several stages. It is drawn at a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

BeginStage = Callable[[str], Callable[[float], None]]  # of a title; what it returns takes the fraction that is done


@contextmanager
def show_stages(console: Console, *, visible: bool) -> Iterator[BeginStage]:
    """One line with the name of the stage and its progress while the block runs."""
    # drawn only when progress is reported: a thread that redraws would disturb what is measured
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, console=console, transient=True, auto_refresh=False, disable=not visible) as progress:
        task = progress.add_task("", total=1.0)

        def advance(fraction: float) -> None:
            progress.update(task, completed=fraction)
            progress.refresh()

        def begin(title: str) -> Callable[[float], None]:
            progress.reset(task, description=title)
            progress.refresh()
            return advance

        yield begin
