"""PDF documents as the text of their pages, and as pictures of them. It takes pypdfium2 (`leftoff[pdf]`).

A parser of PDFs is large, and its input is anybody's: each document is read by a process of its own, this very file,
with limits on its memory and its time. Whatever happens to it, the server gets pages or an error.
"""

import io
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import Any

import msgspec
from blake3 import blake3

from leftoff.errors import LeftoffError, reason_of
from leftoff.lru import LruCache

START = b"%PDF-"
MAX_PAGES = 1000
PDF_WAY_OUT = "pip install 'leftoff[pdf]'"  # where none can be read
_START_WITHIN = 1024  # bytes: other readers allow as many before it
_KEPT_BYTES = 64 << 20
_SECONDS = 60
_CPU_SECONDS = 15  # a thousand pages of text take less than one
_POLL_SECONDS = 0.1
_READER_BYTES = 4 << 30  # of address space
_LARGEST_SCALE = 1.5  # 108 pixels per inch
_LONGEST_SIDE = 1600  # pixels
_REFUSED = 3  # the reader's exit status where it says what is wrong


class PdfError(LeftoffError):
    """A document cannot be read."""


@dataclass(frozen=True)
class Page:
    """The text of a page, and a PNG file of how it looks, which is empty if it was not asked for."""

    text: str
    image: bytes = b""


def is_pdf(data: bytes) -> bool:
    """Whether a file says that it is one."""
    return START in data[:_START_WITHIN]


@cache
def can_read_pdfs() -> bool:
    """Whether pypdfium2 is installed."""
    return find_spec("pypdfium2") is not None


class Documents:
    """Reads documents, and remembers the pages of the latest ones, for each namespace its own."""

    def __init__(self, cpu_seconds: int = _CPU_SECONDS) -> None:
        """A document that takes longer to compute is refused: others wait for their turn."""
        self._cpu_seconds = cpu_seconds
        self._pages: LruCache[tuple[str, bytes, int], tuple[Page, ...]] = LruCache(
            max_bytes=_KEPT_BYTES, size_of=lambda _, pages: sum(len(page.text) + len(page.image) for page in pages)
        )

    def forget(self) -> None:
        """Drops all that is remembered."""
        self._pages.remove_if(lambda _: True)

    def pages(self, data: bytes, namespace: str, num_images: int, check: Callable[[], None]) -> tuple[Page, ...]:
        """The first `num_images` pages have images. `check` is called now and then, and may raise to end the work."""
        key = (namespace, blake3(data).digest(), num_images)
        known = self._pages.get(key)
        if known is None:
            known = tuple(_read(data, num_images, self._cpu_seconds, check))
            self._pages.put(key, known)
        return known


def _read(data: bytes, num_images: int, cpu_seconds: int, check: Callable[[], None]) -> list[Page]:
    command = [sys.executable, "-m", "leftoff.pdf", str(num_images), str(cpu_seconds)]
    with TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
            try:
                output, errors = _outputs(reader, check)
            finally:
                reader.kill()
    if reader.returncode == 0:
        return msgspec.msgpack.decode(output, type=list[Page])
    reason = "its reader failed"
    if reader.returncode == _REFUSED:
        reason = errors.decode("utf-8", "replace").strip()
    elif reader.returncode == -signal.SIGXCPU:
        reason = f"it takes more than {cpu_seconds} s to compute"
    raise PdfError(f"cannot be read: {reason}")


def _outputs(reader: subprocess.Popen[bytes], check: Callable[[], None]) -> tuple[bytes, bytes]:
    for _ in range(int(_SECONDS / _POLL_SECONDS)):
        check()
        with suppress(subprocess.TimeoutExpired):
            return reader.communicate(timeout=_POLL_SECONDS)
    raise PdfError(f"cannot be read within {_SECONDS} seconds")


# --- the reader's process


def main() -> None:
    """Reads a PDF from standard input, and writes its pages."""
    cpu_seconds = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    with suppress(ValueError, OSError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (_READER_BYTES, _READER_BYTES))
    try:
        pages = _parsed(sys.stdin.buffer.read(), int(sys.argv[1]))
    except Exception as error:  # pdfium's, for the most part
        sys.stderr.write(reason_of(error)[:200])
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(msgspec.msgpack.encode(pages))


def _parsed(data: bytes, num_images: int) -> list[Page]:
    import pypdfium2  # noqa: PLC0415

    document = pypdfium2.PdfDocument(data)
    if len(document) > MAX_PAGES:
        raise PdfError(f"it has {len(document)} pages, and {MAX_PAGES} are the most")
    return [_page(document[index], renders=index < num_images) for index in range(len(document))]


def _page(page: Any, *, renders: bool) -> Page:  # noqa: ANN401
    text = page.get_textpage().get_text_range().replace("\r\n", "\n").strip()
    return Page(text, _rendered(page) if renders else b"")


def _rendered(page: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    scale = min(_LARGEST_SCALE, _LONGEST_SIDE / max(*page.get_size(), 1))
    page.render(scale=scale).to_pil().convert("RGB").save(file, "PNG")
    return file.getvalue()


if __name__ == "__main__":
    main()
