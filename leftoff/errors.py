"""What the errors of all layers have in common."""


class LeftoffError(Exception):
    """Something that a person can solve: the message names the value and the way out."""
