"""Writes replies that clients send back into the prompt with the tokens that the model wrote.

Clients send a reply back without its reasoning, templates write tool calls in their own way (`{"a":1}` for `{"a": 1}`),
and a model may spell a text in other tokens than the tokenizer does. Each of these changes the tokens from there on, so
that all after it would have to be read again. So a remembered reply gets its reasoning back before the template sees
it, and where the rendered text then says the same, the model's own tokens take its place. Of a reply that comes back
shortened or changed, the tokens before the change do.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from leftoff.chat.conversation import Conversation, Note
from leftoff.chat.formats.parser import Output
from leftoff.chat.formats.parts import ParsedReply, join_parts
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.replies import RememberedReplies, Transcript, Written, said_of, says_the_same
from leftoff.chat.template.render import MessageDict
from leftoff.chat.template.spans import Rendered, TextSpan
from leftoff.types import KnownTokens, common_length

_DROPPED = Note("reasoning dropped", "reasoning dropped: that of an earlier reply is not told again")
_RERENDERED = Note("re-rendered", "re-rendered: an earlier reply came back in other letters than the model's")


@dataclass(frozen=True)
class _Known:
    """A message that is a remembered reply, or begins like one."""

    written: Written
    is_whole: bool


@dataclass(frozen=True)
class _Edit:
    """The characters [start, end) of the rendered text become `text`, which the model wrote as `tokens`."""

    start: int
    end: int
    text: str
    tokens: tuple[int, ...]


class VerbatimReplies:
    """The remembered replies of one conversation: first its messages are completed, then the text rendered from them.

    `key` is the one under which a reply to the conversation is remembered. `moved` are the texts that rules moved out
    of the header when the conversation began, as far as that is remembered.
    """

    def __init__(
        self,
        prompts: PromptMaker,
        conversation: Conversation,
        remembered: RememberedReplies | None,
        last: Transcript | None,
    ) -> None:
        """`last` is the transcript of an earlier turn, if there was one."""
        self.transcript = Transcript.of(conversation.messages, conversation.namespace, last)
        self.key = self.transcript.keys[-1]
        self.notes: tuple[Note, ...] = ()
        self._prompts = prompts
        self._output = Output(prompts.format, conversation.tools or ())
        self._known: dict[int, _Known] = {}  # by the message's identity: the oldest may be cut
        self._begun: _Known | None = None  # the reply that the client has the model go on with
        if remembered is not None:
            said, keys = self.transcript.said, self.transcript.keys
            asked = zip(conversation.messages, said, keys, strict=False)
            replies = [each for each in asked if each[0].get("role") == "assistant"]
            # the conversation's own key too: those that `add` keeps beside a new reply are loaded here
            found = remembered.find([*(key for _, _, key in replies), self.key], conversation.namespace)
            for (message, now, _), candidates in zip(replies, found, strict=False):
                if candidates:
                    self._known[id(message)] = _closest(candidates, now)
        self.moved = next((known.written.moved for known in self._known.values()), ())
        if conversation.prefill:  # it has no reasoning: with that it would be a whole reply
            self._begun = self._known.pop(id(conversation.messages[-1]), None)
        self._told: list[_Known | None] = []

    @property
    def are_known(self) -> bool:
        """Whether any reply of the conversation is remembered, so that `restore` may change the text."""
        return bool(self._known) or self._begun is not None

    def with_reasoning(self, messages: Sequence[MessageDict]) -> list[MessageDict]:
        """Puts the reasoning back into remembered replies, for the templates that show it."""
        self._told = [self._known.get(id(message)) for message in messages if _is_reply_with_words(message)]
        return [_with_reasoning(message, self._known.get(id(message))) for message in messages]

    def restore(self, rendered: Rendered, prefill: str) -> Rendered:
        """Replaces replies by the model's own text and tokens, as far as they say the same.

        The text of the reply that was begun, if there is one, follows.
        """
        restored = self._restore(rendered)
        start, known = len(restored.text), restored.known
        if self._begun is not None:
            edit = self._common_beginning(start, prefill, self._begun.written)
            known += (KnownTokens(start, start + len(edit.text), edit.tokens),) if edit is not None else ()
        return Rendered(restored.text + prefill, restored.spans, known)

    def _restore(self, rendered: Rendered) -> Rendered:
        opening = rendered.text[rendered.spans[-1].end :] if rendered.spans else ""
        if not opening or not any(self._told):
            return rendered
        notes: list[Note] = []
        edits: list[_Edit] = []
        starts = [0, *(span.start for span in rendered.spans)]
        spans = [pair for pair in zip(rendered.spans, starts, strict=False) if pair[0].role == "assistant"]
        for (span, before), known in zip(spans, self._told, strict=False):
            if known is None:
                continue
            edit = self._edit(rendered, span, before, opening, known)
            if edit is not None:
                edits.append(edit)
            if known.is_whole and (edit is None or edit.text != known.written.text):
                notes.append(_DROPPED if known.written.said.reasoning else _RERENDERED)
        self.notes = tuple(dict.fromkeys(notes))
        return _edited(rendered, edits)

    def _edit(self, rendered: Rendered, span: TextSpan, before: int, opening: str, known: _Known) -> _Edit | None:
        """The edit that puts the model's own tokens into the place of a reply; None if nothing of it is the model's.

        The reply lies between the generation prompt and an end token. `before` is where the message before it begins.
        """
        start = rendered.text.rfind(opening, before, span.start) + len(opening)
        endings = (rendered.text.find(ending, start, span.end) for ending in self._prompts.endings)
        end = min((end for end in endings if end >= 0), default=-1)
        if start < len(opening) or end < 0:
            return None
        told, written = rendered.text[start:end], known.written
        if known.is_whole and (told == written.text or says_the_same(self._said(told, opening), written.said)):
            return _Edit(start, end, written.text, written.tokens)
        return self._common_beginning(start, told, written)

    def _common_beginning(self, start: int, told: str, written: Written) -> _Edit | None:
        """The tokens with which both begin. Where the texts part, one less: its text may join what follows."""
        pieces = [self._prompts.visible_piece(token) for token in written.tokens]
        now = told.encode()
        common = common_length(now, b"".join(pieces))
        ends = [0, *accumulate(map(len, pieces))]
        size = bisect_right(ends, common) - 1
        size -= ends[size] < len(now)
        while size > 0 and not _is_character_start(now, ends[size]):
            size -= 1
        if size <= 0:
            return None
        text = now[: ends[size]].decode()
        return _Edit(start, start + len(text), text, written.tokens[:size])

    def _said(self, text: str, opening: str) -> ParsedReply:
        parser = self._output.parser(opening)
        return join_parts((*parser.push(text), *parser.close()))


def written_tokens(prompts: PromptMaker, tokens: Sequence[int], text: str) -> tuple[int, ...]:
    """The tokens of a text that ends at a stop string, perhaps inside of the token that completed it."""
    data = text.encode()
    ends = [0, *accumulate(len(prompts.visible_piece(token)) for token in tokens)]
    size = bisect_right(ends, len(data)) - 1
    while not _is_character_start(data, ends[size]):
        size -= 1
    return (*tokens[:size], *prompts.tokens(data[ends[size] :].decode("utf-8", "replace")).tolist())


def _closest(candidates: Sequence[Written], said: ParsedReply) -> _Known:
    """The candidate that says the same as `said`, or else the one that begins alike for longest."""
    same = next((written for written in candidates if written.shown == said), None)
    if same is not None:
        return _Known(same, is_whole=True)
    alike = max(candidates, key=lambda written: common_length(written.shown.content, said.content))
    return _Known(alike, is_whole=False)


def _is_reply_with_words(message: MessageDict) -> bool:
    return message.get("role") == "assistant" and bool(message.get("content") or message.get("tool_calls"))


def _with_reasoning(message: MessageDict, known: _Known | None) -> MessageDict:
    if known is None or not known.written.said.reasoning or message.get("reasoning_content"):
        return message
    if not (known.is_whole or known.written.said.content.startswith(said_of(message).content)):
        return message  # somebody wrote another reply in its place
    return {**message, "reasoning_content": known.written.said.reasoning}


def _is_character_start(data: bytes, offset: int) -> bool:
    return offset == len(data) or data[offset] & 0xC0 != 0x80


def _edited(rendered: Rendered, edits: Sequence[_Edit]) -> Rendered:
    """The text with all edits, in rising order, and the spans of its messages."""
    pieces: list[str] = []
    known: list[KnownTokens] = []
    length = end = 0
    for edit in edits:
        pieces += [rendered.text[end : edit.start], edit.text]
        start = length + edit.start - end
        length, end = start + len(edit.text), edit.end
        known.append(KnownTokens(start, length, edit.tokens))
    text = "".join([*pieces, rendered.text[end:]])
    starts = [edit.start for edit in edits]

    def moved(position: int) -> int:
        index = bisect_right(starts, position) - 1
        if index < 0:
            return position
        edit, now = edits[index], known[index]
        return now.start if edit.start <= position < edit.end else now.end + position - edit.end

    spans = tuple(TextSpan(span.role, moved(span.start), moved(span.end), span.index) for span in rendered.spans)
    return Rendered(text, spans, tuple(known))
