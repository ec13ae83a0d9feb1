"""Tells a conversation that comes back in the letters in which the model wrote it.

Clients send a reply back without its reasoning, and templates write calls of tools in their own way: `{"a":1}` for
`{"a": 1}`. Each of these changes the text from there on, and all that follows would have to be read again. A reply
that is known, message for message, is told to the template whole, and where the template then says the same in other
letters, the model's own letters take their place.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from leftoff.chat.formats.output import Output
from leftoff.chat.formats.parts import Said, join
from leftoff.chat.notes import Note
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.remembered import RememberedReplies, Written, conversation_keys, says_the_same
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.chat.template.spans import Rendered, TextSpan

_DROPPED = Note("reasoning dropped", "reasoning dropped: that of an earlier reply is not told again")
_RERENDERED = Note("re-rendered", "re-rendered: an earlier reply came back in other letters than the model's")


class _Place(NamedTuple):
    start: int
    end: int


class OwnLetters:
    """For one request: first the messages, then the text that the template made of them."""

    def __init__(
        self,
        prompts: PromptMaker,
        messages: Sequence[MessageDict],
        tools: Sequence[ToolDict] | None,
        namespace: str,
        remembered: RememberedReplies | None,
    ) -> None:
        keys = conversation_keys(messages, namespace)
        self.conversation = keys[-1] if keys else b""  # by which a reply to it is remembered
        self.notes: tuple[Note, ...] = ()
        self._prompts = prompts
        self._output = Output(prompts.format, tools or ())
        self._known: dict[int, Written] = {}  # by the message's identity: the oldest may be cut
        if remembered is not None:
            found = ((message, remembered.find(key)) for message, key in zip(messages, keys, strict=True))
            self._known = {id(message): written for message, written in found if written is not None}
        self._told: list[Written | None] = []

    @property
    def restores(self) -> bool:
        """Whether there is a reply that the model's own letters may take the place of."""
        return bool(self._known)

    def with_reasoning(self, messages: Sequence[MessageDict]) -> list[MessageDict]:
        """Replies get back the reasoning that led to them, for the templates that keep it."""
        self._told = [self._known.get(id(message)) for message in messages if _is_reply_with_words(message)]
        return [_with_reasoning(message, self._known.get(id(message))) for message in messages]

    def restore(self, rendered: Rendered) -> Rendered:
        opening = rendered.text[rendered.spans[-1].end :] if rendered.spans else ""
        if not opening or not any(self._told):
            return rendered
        notes: list[Note] = []
        spans = [span for span in rendered.spans if span.role == "assistant"]
        for span, written in list(zip(spans, self._told, strict=False))[::-1]:  # what stands before is not moved
            if written is None:
                continue
            place = self._place(rendered, span, opening)
            told = rendered.text[place.start : place.end] if place else ""
            if place and told != written.text and says_the_same(self._said(told, opening), written.said):
                rendered = _replaced(rendered, place, written.text)
            elif told != written.text:
                notes.append(_DROPPED if written.said.reasoning else _RERENDERED)
        self.notes = tuple(dict.fromkeys(notes))
        return rendered

    def _place(self, rendered: Rendered, span: TextSpan, opening: str) -> _Place | None:
        """Where the reply stands: after what invites a reply, up to what ends one."""
        before = max((other.start for other in rendered.spans if other.start < span.start), default=0)
        found = rendered.text.rfind(opening, before, span.start)
        if found < 0:
            return None
        start = found + len(opening)
        endings = (rendered.text.find(ending, start, span.end) for ending in self._prompts.endings)
        end = min((end for end in endings if end >= 0), default=-1)
        return _Place(start, end) if end >= 0 else None

    def _said(self, text: str, opening: str) -> Said:
        parser = self._output.parser(opening)
        return join((*parser.push(text), *parser.close()))


def _is_reply_with_words(message: MessageDict) -> bool:
    return message.get("role") == "assistant" and bool(message.get("content") or message.get("tool_calls"))


def _with_reasoning(message: MessageDict, written: Written | None) -> MessageDict:
    if written is None or not written.said.reasoning or message.get("reasoning_content"):
        return message
    return {**message, "reasoning_content": written.said.reasoning}


def _replaced(rendered: Rendered, place: _Place, text: str) -> Rendered:
    moved = len(text) - (place.end - place.start)

    def at(position: int) -> int:
        if position <= place.start:
            return position
        return position + moved if position >= place.end else place.start

    spans = tuple(replace(span, start=at(span.start), end=at(span.end)) for span in rendered.spans)
    return Rendered(rendered.text[: place.start] + text + rendered.text[place.end :], spans)
