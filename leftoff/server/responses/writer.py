"""Replies as OpenAI's responses: a list of items, whole or event by event."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.reply.blocks import Block, Blocks, Step
from leftoff.server.reply.response import NAMED_EVENTS, Json, Writer
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.request.fields import FunctionCall, Message, ToolCall
from leftoff.server.responses.convert import Function, wrapped

Status = Literal["in_progress", "completed", "incomplete", "failed"]

_ID_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}
_TEXT_EVENTS = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_text",
    "call": "response.function_call_arguments",
}

Keep = Callable[[Json, Message], None]


def _early_failure(error: Exception) -> Json:
    """An error of a stream whose response was not created yet."""
    known = as_api_error(error)
    code = known.code or known.kind
    return {"type": "error", "code": code, "message": known.message, "param": known.param, "sequence_number": 0}


_KEEP_ALIVE = {"type": "keepalive", "sequence_number": 0}  # before the response is created: Codex counts events
STREAM = replace(NAMED_EVENTS, failure=_early_failure, nothing=NAMED_EVENTS.frame(_KEEP_ALIVE))


@dataclass
class ResponseWriter(Writer):
    """`begun` is the response while it is empty. `keep` is called with the response at its end, and with the reply.

    `functions` are those in namespaces, by the names that the model knows them under.
    """

    begun: Json
    keep: Keep
    functions: Mapping[str, Function]
    framing = STREAM
    shows_progress = True
    _blocks: Blocks = field(default_factory=Blocks)
    _numbers: Iterator[int] = field(default_factory=count)
    _has_begun: bool = False

    def whole(self, replies: Sequence[ReplyStream]) -> Json:
        (reply,) = replies
        self._blocks = Blocks.of(reply)
        return self._ended(reply)

    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        return self._begin() if isinstance(event, Progress) else self._events(stream, event)

    def keep_alive(self, stream: ReplyStream) -> Iterator[Json]:  # noqa: ARG002
        """Codex counts events, not bytes."""
        if self._has_begun:
            yield self._event("response.in_progress", response=self.begun)
        else:
            yield from self._begin()

    def failure(self, error: Exception) -> Iterator[Json]:
        yield from self._begin()
        known = as_api_error(error)
        problem = {"code": known.code or known.kind, "message": known.message}
        yield self._event("response.failed", response=self.begun | {"status": "failed", "error": problem})

    def _event(self, kind: str, **fields: Any) -> Json:  # noqa: ANN401
        """Events are numbered in the order in which they are sent: each is made when it is its turn."""
        return {**fields, "type": kind, "sequence_number": next(self._numbers)}

    def _begin(self) -> Iterator[Json]:
        if not self._has_begun:
            self._has_begun = True
            yield self._event("response.created", response=self.begun)
            yield self._event("response.in_progress", response=self.begun)

    def _events(self, stream: ReplyStream, event: Piece | End) -> Iterator[Json]:
        status = _status_of(event) if isinstance(event, End) else "completed"
        for step in self._blocks.take(event):
            yield from self._step(stream, step, status)
        if isinstance(event, End):
            yield self._event(f"response.{status}", response=self._ended(stream))

    def _ended(self, reply: ReplyStream) -> Json:
        status, blocks = _status_of(reply.end), self._blocks.all
        response = self.begun | {
            "status": status,
            "incomplete_details": None if status == "completed" else {"reason": "max_output_tokens"},
            # all items but the last are complete
            "output": [self._item(reply, block, status if block is blocks[-1] else "completed") for block in blocks],
            "usage": self._usage(reply),
        }
        self.keep(response, self._message(reply))
        return response

    def _message(self, reply: ReplyStream) -> Message:
        calls = [
            ToolCall(FunctionCall(block.name, block.text), reply.call_id(block.call), "function")
            for block in self._blocks.all
            if block.kind == "call"
        ]
        text, reasoning = self._blocks.text("text"), self._blocks.text("reasoning")
        return Message("assistant", text, tool_calls=calls or None, reasoning_content=reasoning or None)

    def _usage(self, reply: ReplyStream) -> Json:
        report, generated = reply.report, reply.timings.num_generated
        return {
            "input_tokens": report.prompt_tokens,
            "input_tokens_details": {"cached_tokens": report.reused, "cache_write_tokens": report.computed},
            "output_tokens": generated,
            "output_tokens_details": {"reasoning_tokens": self._blocks.num_reasoning_tokens},
            "total_tokens": report.prompt_tokens + generated,
        }

    # --- blocks as items

    def _item(self, reply: ReplyStream, block: Block, status: Status) -> Json:
        head = {"id": self._id(block), "status": status}
        content = [_part(block)] if block.text else []
        match block.kind:
            case "text":
                return {"type": "message", **head, "content": content, "role": "assistant"}
            case "reasoning":  # the same text again, for clients that send nothing else back
                again = {"encrypted_content": wrapped(block.text), "summary": []}
                return {"type": "reasoning", **head, "content": content, **again}
            case "call":
                function = self.functions.get(block.name)
                call = {"call_id": reply.call_id(block.call), "name": self._name(block), "arguments": block.text}
                namespace = {"namespace": function.namespace} if function else {}
                return {"type": "function_call", **head, **call, **namespace}

    def _step(self, stream: ReplyStream, step: Step, status: Status) -> Iterator[Json]:
        """The events for a change of a block. `status` is for an item that is done."""
        change, block, text = step
        match change:
            case "opened":
                yield self._item_event("added", stream, block, "in_progress")
                if block.kind != "call":
                    yield self._part_event("added", block)
            case "grown":
                yield self._text_event("delta", block, delta=text)
            case "closed" if block.kind == "call":
                yield self._text_event("done", block, name=self._name(block), arguments=block.text)
                yield self._item_event("done", stream, block, status)
            case "closed":
                yield self._text_event("done", block, text=block.text)
                yield self._part_event("done", block)
                yield self._item_event("done", stream, block, status)

    def _item_event(self, change: str, stream: ReplyStream, block: Block, status: Status) -> Json:
        item = self._item(stream, block, status)
        return self._event(f"response.output_item.{change}", output_index=block.index, item=item)

    def _part_event(self, change: str, block: Block) -> Json:
        """The only part of an item was added, or is done. Calls have no parts."""
        place = {"output_index": block.index, "item_id": self._id(block)}
        return self._event(f"response.content_part.{change}", **place, part=_part(block), content_index=0)

    def _text_event(self, change: str, block: Block, **said: str) -> Json:
        """The event for more text of an item, or for all of it."""
        place = {"output_index": block.index, "item_id": self._id(block)}
        within = {} if block.kind == "call" else {"content_index": 0}
        logprobs: Json = {"logprobs": []} if block.kind == "text" else {}
        return self._event(f"{_TEXT_EVENTS[block.kind]}.{change}", **place, **within, **logprobs, **said)

    def _name(self, block: Block) -> str:
        function = self.functions.get(block.name)
        return function.name if function else block.name

    def _id(self, block: Block) -> str:
        return f"{_ID_PREFIXES[block.kind]}_{self.begun['id'].removeprefix('resp_')}_{block.index}"


def _status_of(end: End) -> Status:
    return "incomplete" if end.finish is Finish.LENGTH else "completed"


def _part(block: Block) -> Json:
    """The text of a message, or of reasoning."""
    if block.kind == "text":
        return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}
    return {"type": "reasoning_text", "text": block.text}
