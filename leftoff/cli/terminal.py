"""The terminal that a command prints to."""

from textwrap import TextWrapper

from rich.console import Console

from leftoff.units import printable

Rows = list[tuple[str, str]]  # labels and values
_MIN_WIDTH = 20  # of values


def terminal(*, wraps: bool = False, stderr: bool = False) -> Console:
    """A console that prints text as it is: `[bold]` is no markup, `:cat:` is no emoji, and numbers get no colour.

    Unless it `wraps`, a long line is left for the terminal to break, so that it can be copied whole.
    """
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=not wraps)


def show_rows(console: Console, rows: Rows) -> None:
    """Prints each label with its value, which is broken between words alone: a path can be copied whole."""
    indent = 4 + max(len(label) for label, _ in rows)
    width = max(_MIN_WIDTH, console.width - indent)
    wrapper = TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    for label, value in rows:
        lines = (line for paragraph in value.splitlines() for line in wrapper.wrap(paragraph))
        console.print(f"  {label}".ljust(indent), style="cyan", end="")
        console.print(printable(f"\n{' ' * indent}".join(lines)), soft_wrap=True)
