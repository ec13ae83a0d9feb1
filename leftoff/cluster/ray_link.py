"""Joins the ingress and the request router of one Ray process.

Ray copies the module of a request router into each process by value: its globals are not those that others import.
"""

from typing import Protocol


class Listener(Protocol):
    """The request router, as the ingress sees it. Called from any thread."""

    def begun(self, body: bytes, headers: dict[str, str], points: str | None) -> None:
        """A replica has begun to answer a request, and told where its prompt may be resumed."""
        ...

    def metrics(self) -> bytes:
        """The figures of this process for Prometheus: the same as those of `leftoff route`."""
        ...


_listeners: list[Listener] = []


def join(listener: Listener) -> None:
    """Sets the router of this process."""
    _listeners[:] = [listener]


def begun(body: bytes, headers: dict[str, str], points: str | None) -> None:
    """Tells the router, if there is one yet."""
    for listener in _listeners:
        listener.begun(body, headers, points)


def metrics() -> bytes:
    """The figures of the router, if there is one yet."""
    return b"".join(listener.metrics() for listener in _listeners)
