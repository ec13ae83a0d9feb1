"""The terminal that a command prints to."""

from rich.console import Console


def terminal(*, wraps: bool = True, stderr: bool = False) -> Console:
    """A console that prints text as it is: `[bold]` is no markup, `:cat:` is no emoji, and numbers get no colour.

    With `wraps=False`, a long line is left for the terminal to break, so that it can be copied whole.
    """
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=not wraps)
