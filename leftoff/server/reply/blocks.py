"""A reply as a sequence of blocks, for dialects whose streams open, extend and close one after the other.

A block is text, reasoning or one tool call. White space alone opens no text block: models write some around calls.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning, parse_arguments
from leftoff.server.reply.stream import End, Piece, ReplyStream

Kind = Literal["text", "reasoning", "call"]
_NOTHING = Content("")


@dataclass(eq=False)
class Block:
    """One block and its text so far; for a call, the text is its arguments. Only a call has a number and a name."""

    index: int
    kind: Kind
    call: int = -1
    name: str = ""
    text: str = ""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a call; empty if they are no complete JSON object."""
        return parse_arguments(self.text) or {}

    @property
    def is_whole_call(self) -> bool:
        return self.kind == "call" and parse_arguments(self.text) is not None


class Step(NamedTuple):
    """A block was opened, text was added to it, or it is complete."""

    change: Literal["opened", "grown", "closed"]
    block: Block
    text: str = ""  # that was added


@dataclass
class Blocks:
    """Turns the events of a reply into steps: which block is opened, extended or closed."""

    all: list[Block] = field(default_factory=list)
    num_reasoning_tokens: int = 0
    _is_open: bool = False
    _waiting: Content | Reasoning = _NOTHING  # white space that may yet become the beginning of a block

    @classmethod
    def of(cls, reply: ReplyStream) -> "Blocks":
        """The blocks of a reply that has ended."""
        blocks = cls()
        events: list[Piece | End] = [*reply.pieces, reply.end]
        for event in events:
            for _ in blocks.take(event):
                pass
        return blocks

    def text(self, kind: Kind) -> str:
        """The text of all blocks of a kind so far."""
        return "".join(block.text for block in self.all if block.kind == kind)

    def take(self, event: Piece | End) -> Iterator[Step]:
        for part in event.parts:
            yield from self._take(part)
        if isinstance(event, End):
            yield from self._close()
        elif self._is_open and self.all[-1].kind == "reasoning":
            self.num_reasoning_tokens += 1

    def _take(self, part: Part) -> Iterator[Step]:
        match part:
            case Content() | Reasoning():
                yield from self._words(part)
            case CallStart(index, name):
                yield from self._open(Block(len(self.all), "call", index, name))
            case CallArguments(_, text):
                yield from self._grow(text)

    def _words(self, part: Content | Reasoning) -> Iterator[Step]:
        kind: Kind = "text" if isinstance(part, Content) else "reasoning"
        text = part.text
        if not (self._is_open and self.all[-1].kind == kind):
            if type(self._waiting) is type(part):
                text = self._waiting.text + text
            if not text.strip():
                self._waiting = type(part)(text)
                return
            yield from self._open(Block(len(self.all), kind))
        yield from self._grow(text)

    def _open(self, block: Block) -> Iterator[Step]:
        yield from self._close()
        self.all.append(block)
        self._is_open = True
        yield Step("opened", block)

    def _grow(self, text: str) -> Iterator[Step]:
        if text:
            self.all[-1].text += text
            yield Step("grown", self.all[-1], text)

    def _close(self) -> Iterator[Step]:
        self._waiting = _NOTHING
        if self._is_open:
            self._is_open = False
            yield Step("closed", self.all[-1])
