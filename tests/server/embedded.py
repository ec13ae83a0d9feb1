"""A server that runs the model which comes with leftoff: small, but it calls tools and thinks before it speaks."""

from collections.abc import Iterator
from contextlib import contextmanager

from leftoff.config import Settings
from leftoff.host.build import open_host
from leftoff.hub.reference import default_model
from leftoff.server.server import serving


@contextmanager
def embedded_server() -> Iterator[str]:
    """Gives its URL."""
    settings = Settings(model=str(default_model()), alias=("tiny",), ctx=4096, threads=1, slots=2, ram=128, draft="off")
    with open_host(settings) as host, serving(host) as url:
        yield url
