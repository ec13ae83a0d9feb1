"""A hub on this machine, over HTTP: it answers as huggingface.co does, may break off, and may send another file."""

import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch
from urllib.parse import unquote

from tests.patience import POLL_S

_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass
class LocalHub:
    """What it has, by repository and file, and how it behaves. Requests are noted as (method, path, Range)."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    break_after: int | None = None  # bytes of an answer after which the connection is closed
    sends: bytes | None = None  # instead of the file
    claims_bytes: int | None = None  # instead of the size of the file
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def ranges(self) -> list[str]:
        """The ranges in which contents were asked for."""
        return [asked for method, path, asked in self.requests if method == "GET" and path.startswith("/cdn/")]


@contextmanager
def no_certificates() -> Iterator[None]:
    """For servers that speak plain HTTP: else every client of them reads the certificates of all authorities."""
    with patch("certifi.where", str), patch.dict(os.environ, dict.fromkeys(_CERTIFICATES, "")):
        yield


@contextmanager
def serving_hub() -> Iterator[LocalHub]:
    hub = LocalHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, hub)

        def do_HEAD(self) -> None:
            _answer(self, hub)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Not of interest."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        with no_certificates():
            yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(request: BaseHTTPRequestHandler, hub: LocalHub) -> None:
    path = unquote(request.path)
    hub.requests.append((request.command, path, request.headers.get("Range", "")))
    hub.tokens.append(request.headers.get("Authorization", ""))
    if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
        _listed(request, hub, match[1])
    elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path):
        _file(request, hub, match[1], match[2])
    elif match := re.fullmatch(r"/cdn/([^/]+/[^/]+)/(.+)", path):
        _content(request, hub, hub.repos[match[1]][match[2]])
    else:
        _send(request, 200 if path.startswith("/page/") else 404, {}, b"a page")


def _listed(request: BaseHTTPRequestHandler, hub: LocalHub, repo: str) -> None:
    files = hub.repos.get(hub.renamed.get(repo, repo))
    siblings = [{"rfilename": name} for name in files or ()]
    _send(request, 401 if files is None else 200, {}, json.dumps({"id": repo, "siblings": siblings}).encode())


def _file(request: BaseHTTPRequestHandler, hub: LocalHub, repo: str, file: str) -> None:
    if repo in hub.renamed:
        _send(request, 307, {"Location": f"/{hub.renamed[repo]}/resolve/main/{file}"})
        return
    content = hub.repos.get(repo, {}).get(file)
    if repo in hub.gated:
        _send(request, 403, {"X-Error-Code": "GatedRepo"})
    elif content is None:
        _send(request, 404, {"X-Error-Code": "EntryNotFound"})
    else:
        facts = {
            "X-Repo-Commit": hashlib.sha1(b"".join(hub.repos[repo].values())).hexdigest(),
            "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Linked-Size": str(hub.claims_bytes or len(content)),
        }
        _send(request, 302, {**facts, "Location": f"{hub.url.replace('127.0.0.1', 'localhost')}/cdn/{repo}/{file}"})


def _content(request: BaseHTTPRequestHandler, hub: LocalHub, content: bytes) -> None:
    content = content if hub.sends is None else hub.sends
    match = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    start = int(match[1]) if match else 0
    _send(request, 206 if match else 200, {}, content[start:], hub.break_after)


def _send(
    request: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"", most: int | None = None
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    if request.command != "HEAD":
        with suppress(ConnectionError):  # who has seen too much leaves
            request.wfile.write(body[:most])
