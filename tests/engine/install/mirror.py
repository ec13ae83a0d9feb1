"""A package index and an npm registry on this machine, over HTTP, that can break off a download or lack a file."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.patience import POLL_S


@dataclass
class Mirror:
    """What the server has, by path, and how it behaves. Requests are noted as (path, Range)."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None  # bytes of an answer after which the connection is closed
    knows_ranges: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)

    def add_wheel(self, project: str, file: str, content: bytes) -> None:
        """A project of a package index with one file, as PEP 503 has it."""
        link = f'<a href="../../files/{file.replace("+", "%2B")}#sha256=of-no-interest">{file}</a>'
        self.files[f"/simple/{project}/"] = f"<!DOCTYPE html><html><body>{link}</body></html>".encode()
        self.files[f"/files/{file}"] = content

    def ranges(self) -> list[str]:
        """The ranges that files were asked for in."""
        return [asked for path, asked in self.requests if not path.startswith("/simple")]


@contextmanager
def serving_mirror() -> Iterator[Mirror]:
    mirror = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, mirror)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Not of interest."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield mirror
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(request: BaseHTTPRequestHandler, mirror: Mirror) -> None:
    asked = request.headers.get("Range", "")
    path = unquote(request.path)
    mirror.requests.append((path, asked))
    mirror.logins.append(request.headers.get("Authorization", ""))
    content = mirror.files.get(path)
    if content is None:
        request.send_error(404)
        return
    match = re.fullmatch(r"bytes=(\d+)-", asked) if mirror.knows_ranges else None
    start = int(match[1]) if match else 0
    request.send_response(206 if match else 200)
    request.send_header("Content-Length", str(len(content) - start))
    request.end_headers()
    is_file = not path.startswith("/simple")
    with suppress(ConnectionError):  # who has seen too much leaves
        request.wfile.write(content[start:][: mirror.break_after if is_file else None])
