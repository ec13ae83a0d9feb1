"""Blocks as the items of a response, and the events by which an item opens, grows and is done."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from leftoff.server.reply.blocks import Block, Closed, Grown, Opened, Step
from leftoff.server.responses.convert import wrapped
from leftoff.server.responses.events import (
    ArgumentsDelta,
    ArgumentsDone,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    ResponseEvent,
    TextDelta,
    TextDone,
)
from leftoff.server.responses.types import (
    CallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    Status,
)

_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}


@dataclass(frozen=True)
class ItemWriter:
    """`name` makes the ids of items unlike those of other responses; `call_id` is the reply's."""

    name: str
    call_id: Callable[[int], str]

    def item(self, block: Block, status: Status) -> OutputItem:
        item_id = self._id(block)
        match block.kind:
            case "text":
                return MessageItem(item_id, status, [OutputText(block.text)] if block.text else [])
            case "reasoning":
                content = [ReasoningText(block.text)] if block.text else []
                return ReasoningItem(item_id, status, content, wrapped(block.text))
            case "call":
                return CallItem(item_id, status, self.call_id(block.call), block.name, block.text)

    def events(self, step: Step, status: Status) -> Iterator[ResponseEvent]:
        """`status` is that of an item which is done."""
        match step:
            case Opened(block):
                yield ItemAdded(block.index, self.item(block, "in_progress"))
                if block.kind != "call":
                    yield PartAdded(block.index, self._id(block), part=_part(block))
            case Grown(block, text):
                yield self._delta(block, text)
            case Closed(block):
                yield self._done(block)
                if block.kind != "call":
                    yield PartDone(block.index, self._id(block), part=_part(block))
                yield ItemDone(block.index, self.item(block, status))

    def _delta(self, block: Block, text: str) -> ResponseEvent:
        match block.kind:
            case "text":
                return TextDelta(block.index, self._id(block), delta=text)
            case "reasoning":
                return ReasoningDelta(block.index, self._id(block), delta=text)
            case "call":
                return ArgumentsDelta(block.index, self._id(block), text)

    def _done(self, block: Block) -> ResponseEvent:
        match block.kind:
            case "text":
                return TextDone(block.index, self._id(block), text=block.text)
            case "reasoning":
                return ReasoningDone(block.index, self._id(block), text=block.text)
            case "call":
                return ArgumentsDone(block.index, self._id(block), block.name, block.text)

    def _id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self.name}_{block.index}"


def _part(block: Block) -> OutputText | ReasoningText:
    return OutputText(block.text) if block.kind == "text" else ReasoningText(block.text)
