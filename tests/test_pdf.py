import subprocess
import sys
from typing import Any

import pytest

from leftoff.pdf import MAX_PAGES, Documents, PdfError, is_pdf
from leftoff.picture import Pictures
from tests.pdfs import endless_pdf, pdf


def pages(data: bytes, num_images: int = 0) -> list[str]:
    return [page.text for page in Documents().pages(data, "", num_images, lambda: None)]


def test_a_document_becomes_the_text_of_its_pages() -> None:
    assert pages(pdf("one two", "three")) == ["one two", "three"]
    assert is_pdf(pdf("a"))
    assert not is_pdf(b"PK")


def test_the_first_pages_become_pictures() -> None:
    first, second = Documents().pages(pdf("one", "two"), "", 1, lambda: None)
    picture = Pictures().take(first.image)
    assert (picture.width, picture.height, second.image) == (300, 150, b"")
    assert picture.pixels().min() < 64 < 192 < picture.pixels().max(), "black on white"


def test_a_document_that_takes_too_long_is_refused_with_the_reason() -> None:
    with pytest.raises(PdfError, match="it takes more than 1 s to compute"):
        Documents(cpu_seconds=1).pages(endless_pdf(), "", 0, lambda: None)


def test_an_equal_document_is_read_once_for_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    start = subprocess.Popen.__init__

    def watched(*given: Any, **more: Any) -> None:  # noqa: ANN401
        begun.append(given)
        start(*given, **more)

    monkeypatch.setattr(subprocess.Popen, "__init__", watched)
    documents = Documents()
    for owner in ("a", "a", "b"):
        assert documents.pages(pdf("one"), owner, 0, lambda: None)[0].text == "one"
    assert len(begun) == 2


@pytest.mark.parametrize("data", [b"%PDF-1.7", pdf("one")[:60], b"%PDF-" + bytes(1000)])
def test_a_broken_document_is_refused(data: bytes) -> None:
    with pytest.raises(PdfError, match="cannot be read"):
        pages(data)


def test_a_document_of_too_many_pages_is_refused() -> None:
    with pytest.raises(PdfError, match="1001 pages, and 1000 are the most"):
        pages(pdf(*["a"] * (MAX_PAGES + 1)))


def test_a_reader_that_crashes_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(PdfError, match="its reader failed"):
        pages(pdf("one"))


def test_reading_ends_when_it_is_given_up() -> None:
    class GivenUpError(Exception): ...

    def give_up() -> None:
        raise GivenUpError

    with pytest.raises(GivenUpError):
        Documents().pages(pdf("one"), "", 0, give_up)
