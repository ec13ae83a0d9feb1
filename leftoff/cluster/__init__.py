"""A fleet of `leftoff serve` processes: what each tells of itself, and the router over them, alone or on Ray Serve."""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """`serve run leftoff.cluster:app`: Ray is imported when somebody asks for it."""
    if name == "app":
        from leftoff.cluster.ray_serve import app  # noqa: PLC0415

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
