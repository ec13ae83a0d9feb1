"""The page at /: its files, which come with the package, and the headers that let a browser run nothing else.

A browser that asks for HTML gets the page; any other client that knocks at / gets a line of text.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from blake3 import blake3
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

import leftoff
from leftoff.scenes import MAX_GUESTS, guest_list, make_scenes
from leftoff.server.dialect import Dialect
from leftoff.server.hosts import Hosts
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.http.middleware import PAGE_FILES, SCENES
from leftoff.server.reply.response import json_response

FOLDER = Path(leftoff.__file__).parent / "page"
_PRESENCE = "leftoff is running: its API is under /v1, its health at /health, and /openapi.json describes all of it\n"
_PART_OF_CONTEXT = 0.7  # for the guest list of the demonstration
_SAMPLE = 10  # guests, to tell how many tokens one takes
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Scripts and styles are those of the page's own files, and HTML is made by DOMPurify alone: nothing that a model or a
# conversation says can run, load an image or send a word to another server. Pictures that the user has attached are
# blobs, whose URLs only the page itself can make.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types dompurify"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page as it is sent. The tag tells a browser whether the copy it has is still current."""

    body: bytes
    media_type: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """All files by their path; read when the first is asked for."""
    paths = [path for path in FOLDER.rglob("*") if path.suffix in _MEDIA_TYPES]
    return {path.relative_to(FOLDER).as_posix(): _read(path) for path in paths}


def _read(path: Path) -> PageFile:
    body = path.read_bytes()
    return PageFile(body, _MEDIA_TYPES[path.suffix], f'"{blake3(body).hexdigest()[:16]}"')


class PageApi(Dialect):
    """The page, unless the settings turn it off."""

    def __init__(self, hosts: Hosts, *, is_shown: bool) -> None:
        super().__init__(hosts)
        self._is_shown = is_shown

    def endpoints(self) -> list[Endpoint]:
        start = Endpoint("GET", "/", "The page; a line of text for clients that ask for no HTML", self.start)
        files = Endpoint("GET", f"{PAGE_FILES}{{path:path}}", "A file of the page", self.file)
        scenes = Endpoint("GET", SCENES, "The script of the demonstration", self.scenes)
        return [start, *([scenes, files] if self._is_shown else [])]

    async def start(self, request: Request) -> Response:
        is_browser = "text/html" in request.headers.get("accept", "")
        return _sent(request, "index.html") if self._is_shown and is_browser else PlainTextResponse(_PRESENCE)

    async def file(self, request: Request) -> Response:
        return _sent(request, request.path_params["path"])

    async def scenes(self, _: Request) -> Response:
        """The script, whose guest list is as long as the context allows beside questions and replies."""
        host = self._hosts.first
        guest_tokens = host.prompts.tokens(guest_list(_SAMPLE, "")).size / _SAMPLE
        num_guests = min(MAX_GUESTS, int(_PART_OF_CONTEXT * host.context_tokens / guest_tokens))
        return json_response({"scenes": make_scenes(num_guests, guest_tokens)})


def _sent(request: Request, path: str) -> Response:
    file = page_files().get(path)
    if file is None:
        raise HTTPException(404)
    headers = _HEADERS | {"ETag": file.tag}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)
