"""What can go wrong with servers under test."""


class BenchError(Exception):
    """A server that does not do what a benchmark needs. The message names it and the way out."""
