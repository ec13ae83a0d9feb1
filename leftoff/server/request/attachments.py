"""Pictures and documents of a request: fetched or out of base64, checked, decoded, and turned into text and markers."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from leftoff.chat.work import checkpoint
from leftoff.host.host import ModelHost
from leftoff.pdf import PdfError, can_read_pdfs, is_pdf
from leftoff.picture import Base64Error, KnownFile, PictureError, from_base64
from leftoff.server.http.body import known_files_of
from leftoff.server.http.endpoint import attended
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.server.http.known_files import KnownFiles
from leftoff.server.http.middleware import HOLD
from leftoff.server.request.content import Attached, Part, kind_of, place_of
from leftoff.server.request.fetch import FetchError, WebFiles
from leftoff.server.request.fields import ChatRequest, Message
from leftoff.server.tenant import namespace_of
from leftoff.types import owner_of

_NUMBER = re.compile(r"\[(\d+)\]")
_WEB = ("http://", "https://")


@dataclass(frozen=True)
class Attachment:
    """A part with a picture or a document, where it is, and its path in the request."""

    part: Part
    kind: str
    url: str
    place: str
    name: str  # for errors: "image 2 of message 3"

    @property
    def is_web(self) -> bool:
        return self.url.startswith(_WEB)

    def refusal(self, problem: object) -> ApiError:
        return bad_field(self.place, f"{self.name} {problem}")


async def attached_to(host: ModelHost, request: Request, body: ChatRequest) -> Attached:
    """Reads the pictures and documents of a chat, as far as the host can. Given up when the client leaves."""
    found = [*_attachments(host, body.messages)]
    if not found:
        return Attached()
    num_images = sum(each.kind == "image" for each in found)
    if num_images > host.settings.max_images:
        problem = f"there are {num_images} images: at most {host.settings.max_images} (--max-images) are taken"
        raise bad_field(found[-1].place, f"{problem}, so leave the oldest out")
    return await attended(request.receive, _attached(host, request, found, namespace_of(request, body.cache_salt)))


async def _attached(host: ModelHost, request: Request, found: list[Attachment], namespace: str) -> Attached:
    state = request.app.state
    wanted = {each.url: each for each in found if each.is_web}
    fetched = await _all_fetched(state.web_files, wanted, owner_of(namespace), getattr(request.state, HOLD))
    files: dict[str, bytes | KnownFile] = {**known_files_of(request), **fetched}
    return await host.lanes.decode(partial(_Reading(host, namespace, files, state.known_files).read, found))


def _attachments(host: ModelHost, messages: Sequence[Message]) -> Iterator[Attachment]:
    """The attachments that this host can read."""
    readable = {"image"} if host.prompts.sees_pictures else set()
    if can_read_pdfs():
        readable.add("file")
    numbers: Counter[tuple[str, str]] = Counter()
    for index, message in enumerate(messages):
        if not isinstance(message.content, list):
            continue
        for at, part in enumerate(message.content):
            kind, url = kind_of(part), part.url
            if kind in readable and url:
                place = place_of(part, f"messages[{index}].content[{at}]")
                yield Attachment(part, kind, url, place, _name(kind, place, numbers))


def _name(kind: str, place: str, numbers: Counter[tuple[str, str]]) -> str:
    """`image 2 of message 3`: as a person counts in the request as the client has sent it."""
    found = _NUMBER.search(place)
    message = str(int(found[1]) + 1) if found else "1"
    numbers[kind, message] += 1
    return f"{kind} {numbers[kind, message]} of message {message}"


async def _all_fetched(
    web: WebFiles | None, wanted: Mapping[str, Attachment], owner: str, hold: Callable[[int], None]
) -> dict[str, bytes]:
    """The files at these URLs. If one cannot be had, the others are not fetched to the end."""
    try:
        async with asyncio.TaskGroup() as group:
            fetching = {url: group.create_task(_fetched(web, each, owner, hold)) for url, each in wanted.items()}
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return {url: task.result() for url, task in fetching.items()}


async def _fetched(web: WebFiles | None, wanted: Attachment, owner: str, hold: Callable[[int], None]) -> bytes:
    if web is None:
        raise wanted.refusal("is at a URL: send the file itself, or start the server with --fetch-images")
    try:
        return await web.fetch(wanted.url, owner, hold)
    except FetchError as error:
        raise wanted.refusal(error) from error


class _Reading:
    """Reads the attachments of one request, in their order, on a thread for pictures."""

    def __init__(
        self, host: ModelHost, namespace: str, files: Mapping[str, bytes | KnownFile], known: KnownFiles
    ) -> None:
        """`files` has, by their URLs, those that are there already; the others are in their URLs themselves."""
        self._host = host
        self._namespace = namespace
        self._files = files
        self._known = known
        self._attached = Attached()

    def read(self, found: Sequence[Attachment]) -> Attached:
        for each in found:
            checkpoint()
            try:
                file = self._files.get(each.url, each.url)
                text = self._picture(file, each.name) if each.kind == "image" else self._document(file, each.name)
            except PictureError as error:
                raise bad_field(each.place, str(error)) from error
            except (PdfError, Base64Error) as error:
                raise each.refusal(error) from error
            self._attached.texts[id(each.part)] = text
        return self._attached

    def _picture(self, file: bytes | str | KnownFile, name: str) -> str:
        picture = self._host.pictures.take(file, name, self._namespace)
        if isinstance(file, str):
            self._known.learn(owner_of(self._namespace), file, picture.digest)
        self._attached.pictures[picture.marker] = picture
        return picture.marker

    def _document(self, file: bytes | str | KnownFile, name: str) -> str:
        """The text of each page behind its picture, if the model sees those; empty if the file is no PDF."""
        assert not isinstance(file, KnownFile), "pictures alone are known"
        data = from_base64(file) if isinstance(file, str) else file
        if not is_pdf(data):
            return ""
        settings, prompts = self._host.settings, self._host.prompts
        num_images = settings.max_images - len(self._attached.pictures) if prompts.sees_pictures else 0
        pages = self._host.documents.pages(data, self._namespace, max(0, num_images), checkpoint)
        shown = [(self._picture(page.image, name) if page.image else "", page.text) for page in pages]
        return "\n\n".join("\n".join(filter(None, page)) for page in shown) or "(a document without text)"
