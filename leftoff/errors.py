"""The base of all errors, apart from other types: commands that only show help import nothing heavy."""


class LeftoffError(Exception):
    """Something that a person can solve: the message names the value and the way out."""
