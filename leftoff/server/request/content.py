"""The content of a message on the wire, in all dialects: texts, pictures, documents, and what cannot be read."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct

from leftoff.chat.conversation import Note
from leftoff.chat.template.render import MessageDict
from leftoff.pdf import PDF_WAY_OUT, can_read_pdfs
from leftoff.picture import Picture
from leftoff.server.http.errors import bad_field

TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
# Parts of messages that a model of text cannot read, in all dialects, and what the note in their place calls them.
_LEFT_OUT = {
    **dict.fromkeys(("image", "image_url", "input_image", "image_file"), "image"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
    **dict.fromkeys(("video", "video_url", "input_video"), "video"),
    **dict.fromkeys(("document", "file", "input_file"), "file"),
}

_NOTE = "[{} left out: this model reads text only]"


class Part(Struct, omit_defaults=True):
    """A part of a message's content: text, a picture or document, or something that a note in the prompt stands for."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None  # a URL, or as `url` of an object
    file: Any = None  # an object with `file_data`
    file_data: str | None = None
    file_url: str | None = None

    @property
    def url(self) -> str | None:
        """Where the picture or document is: a data URL, its bytes in base64, or an address in the web."""
        image = self.image_url.get("url") if isinstance(self.image_url, dict) else self.image_url
        file = self.file.get("file_data") if isinstance(self.file, dict) else None
        found = image or file or self.file_data or self.file_url
        return found if isinstance(found, str) else None


class ForeignPart(Part, kw_only=True):
    """A part of another dialect's message that is no text; errors name it by `place`, its path there."""

    place: str

    def __post_init__(self) -> None:
        left_out(self.type, self.place)  # raises for an unknown type


@dataclass
class Attached:
    """The pictures and documents of a request. `texts` has what stands for each in its message, by the part's id."""

    texts: dict[int, str] = field(default_factory=dict)
    pictures: dict[str, Picture] = field(default_factory=dict)  # by their markers

    def text(self, parts: Sequence[Part], place: str) -> str:
        """The text of a content list; of parts that are neither text nor attached, there are notes."""
        return "".join(
            (part.text or part.refusal or "")
            if part.type in TEXT_PARTS
            else self.texts.get(id(part)) or left_out(part.type, place_of(part, f"{place}[{index}]"))
            for index, part in enumerate(parts)
        )


def picture_texts(content: object) -> Iterator[str | None]:
    """Where the pictures of a message's content are: a list of parts, or of what will become parts."""
    for each in content if isinstance(content, list) else ():
        part = each if isinstance(each, Part) else _part(each)
        if part is not None and kind_of(part) == "image":
            yield part.url


def _part(value: object) -> Part | None:
    try:
        return msgspec.convert(value, Part)
    except msgspec.ValidationError:  # refused by its place later
        return None


def kind_of(part: Part) -> str | None:
    """What a note calls it: an image, audio, a video or a file. None for text, and for what is unknown."""
    return _LEFT_OUT.get(part.type)


def place_of(part: Part, place: str) -> str:
    """The path of a part in the request of its client; `place` is that of the common one."""
    return part.place if isinstance(part, ForeignPart) else place


def joined(parts: Iterable[str | ForeignPart], separator: str = "") -> str | list[Part]:
    """The content of a message in another dialect: a text, if all of its parts are."""
    pieces = [*parts]
    if all(isinstance(piece, str) for piece in pieces):
        return separator.join(map(str, pieces))
    separated = [each for piece in pieces for each in (separator, piece)][1:]
    return [Part("text", piece) if isinstance(piece, str) else piece for piece in separated]


def left_out(kind: str, place: str) -> str:
    """The note in a prompt that stands for an image or another part that is no text.

    To refuse it would end an agent's session: it sends the part again with every request. Unknown types are refused.
    """
    if kind not in _LEFT_OUT:
        raise bad_field(place, f"a part of type {kind!r} cannot be read here: send text, images or documents")
    return _NOTE.format(_LEFT_OUT[kind])


def notes_on_left_out(messages: Sequence[MessageDict]) -> tuple[Note, ...]:
    """Notes for the log: how many images and other parts of a chat are only notes in the prompt, and why."""
    texts = [text for message in messages if isinstance(text := message.get("content"), str)]
    counts = {kind: sum(text.count(_NOTE.format(kind)) for text in texts) for kind in dict.fromkeys(_LEFT_OUT.values())}
    num_files = counts.pop("file")
    told = [f"{num} of type {kind}" for kind, num in counts.items() if num]
    notes = [f"parts left out, since this model reads text only: {', '.join(told)}"] if told else []
    if num_files:
        reason = "PDFs are the only files that are read" if can_read_pdfs() else f"PDFs are read with {PDF_WAY_OUT}"
        notes.append(f"files left out: {num_files}; {reason}")
    return tuple(Note("dropped", note) for note in notes)
