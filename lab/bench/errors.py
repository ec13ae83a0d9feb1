"""What can go wrong with servers under test."""

from leftoff.errors import LeftoffError


class BenchError(LeftoffError):
    """A server that does not do what a benchmark needs. The message names it and the way out."""
