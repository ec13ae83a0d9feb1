"""Makes prompts: from conversations by the model's template, or from plain text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from leftoff.chat.conversation import DEFERRED, Conversation
from leftoff.chat.formats.detect import find_format, shown_tokens
from leftoff.chat.header_rules import MOVED
from leftoff.chat.meter import TokenMeter
from leftoff.chat.template.quirks import find_quirks
from leftoff.chat.template.render import ChatTemplate, MessageDict
from leftoff.chat.template.spans import NO_MESSAGES, Rendered, RenderedMessages, TextSpan, num_equal, render_with_spans
from leftoff.chat.tokenizer import NOTHING, SegmentTokenizer, Tokenised
from leftoff.engine.model import Model
from leftoff.engine.vocabulary import Vocabulary
from leftoff.picture import MARKER, Picture
from leftoff.types import KnownTokens, MessageSpan, PictureSource, Prompt, Tokens

if TYPE_CHECKING:
    from leftoff.engine.vision.encoder import PictureEncoder

Rewrite = Callable[[Rendered, str], Rendered]

_LONG_MESSAGE = 2000  # characters
_MIN_PARAGRAPH = 200
_MAX_BREAKS = 2
_MIN_MARKER = 4
_OBJECT_BYTES = 100


@dataclass(frozen=True, eq=False)
class MadePrompt:
    """A prompt and the steps by which it was made, for the next turn of its conversation to go on from."""

    prompt: Prompt
    given: Sequence[MessageDict]
    forms: Sequence[MessageDict]  # of the given messages, for the template
    rendered: RenderedMessages
    tokenised: Tokenised

    def without_pictures(self) -> "MadePrompt":
        """The prompt without the files of its pictures, which are larger than all texts, for the next turn."""
        return replace(self, prompt=replace(self.prompt, sources={})) if self.prompt.sources else self

    @property
    def num_bytes(self) -> int:
        """About how many bytes are kept for the next turn: the text four times, and its tokens with their ends."""
        texts = 2 * len(self.rendered.result.text) + 2 * len(self.tokenised.text)
        num_objects = 16 * len(self.forms) + 4 * len(self.tokenised.segments)
        return 2 * texts + 3 * self.prompt.tokens.nbytes + _OBJECT_BYTES * num_objects


NOT_MADE = MadePrompt(Prompt(NOTHING.tokens), (), (), NO_MESSAGES, NOTHING)


@dataclass(frozen=True)
class _ShownPicture:
    """A picture at one place of a text."""

    known: KnownTokens
    sources: Sequence[PictureSource]


class PromptMaker:
    """Renders and tokenises for one model. Tokens of known text are cached: a turn costs only its new text.

    `options` are variables for the template, where a conversation does not set them. With `context_tokens`, a text that
    cannot fit raises `TooManyTokensError` before it is tokenised.
    """

    def __init__(
        self,
        model: Model,
        template: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        context_tokens: int | None = None,
    ) -> None:
        vocabulary = model.vocabulary
        self._vocabulary = vocabulary
        self._bos = vocabulary.token_text(vocabulary.bos)
        source = template or model.chat_template()
        eos = vocabulary.token_text(vocabulary.eos)
        self.template = ChatTemplate(source, bos=self._bos, eos=eos, options=options)
        self.quirks = find_quirks(self.template)
        self.format = find_format(self.template)
        self.call_token = _one_token(vocabulary, self.format.trigger)
        self.shown_tokens = shown_tokens(self.format, vocabulary)
        self.endings = frozenset(filter(None, map(vocabulary.token_text, vocabulary.end_tokens)))
        self.tokenizer = SegmentTokenizer(vocabulary, template=self.template.source)
        self.meter = TokenMeter(vocabulary, context_tokens) if context_tokens is not None else None
        self.encoder: PictureEncoder | None = None  # of pictures, where the model can see them

    @property
    def sees_pictures(self) -> bool:
        return self.encoder is not None

    def from_conversation(self, conversation: Conversation) -> Prompt:
        return self.make(conversation).prompt

    def make(
        self, conversation: Conversation, rewrite: Rewrite | None = None, last: MadePrompt = NOT_MADE
    ) -> MadePrompt:
        """Renders and tokenises. `rewrite` may change the rendered text before it becomes tokens, and appends to it the
        beginning of the reply that the client wrote.

        What the prompt has in common with the last turn's is not made again.
        """
        prefill = _prefill(conversation)
        asked = conversation.without_prefill() if prefill else conversation
        same = last.forms[: num_equal(asked.messages, last.given)]
        new = enumerate(asked.messages[len(same) :], len(same))
        forms = [*same, *(self.quirks.form(message, index) for index, message in new)]
        check = self._check if rewrite is None else None  # it may yet become shorter
        whole = self._render(asked, self.quirks.arranged(forms), check, last.rendered)
        rendered = whole.result
        if rewrite is not None:
            rendered = rewrite(rendered, prefill)
        elif prefill:
            rendered = replace(rendered, text=rendered.text + prefill)
        if prefill or rewrite is not None:
            self._check(rendered.text)
        shown = self._shown(rendered, conversation.pictures) if conversation.pictures else ()
        known = sorted([*rendered.known, *(place.known for place in shown)], key=attrgetter("start"))
        tokenised = self.tokenizer.tokenise(rendered.text, known, last.tokenised)
        return MadePrompt(self._prompt(rendered, tokenised, shown), asked.messages, forms, whole, tokenised)

    def from_text(self, text: str, pictures: Mapping[str, Picture] | None = None) -> Prompt:
        """A prompt of plain text, with the pictures whose markers stand in it."""
        self._check(text)
        rendered = Rendered(text, ())
        shown = self._shown(rendered, pictures) if pictures else ()
        return self._prompt(rendered, self.tokenizer.tokenise(text, [place.known for place in shown]), shown)

    def _shown(self, rendered: Rendered, pictures: Mapping[str, Picture]) -> Sequence["_ShownPicture"]:
        """The places in a text where pictures stand. A marker of none of them is text, and so is one in a reply."""
        assert self.encoder is not None, "pictures for a model that sees none"
        shown = []
        for match in MARKER.finditer(rendered.text):
            is_reply = any(part.start < match.end() and match.start() < part.end for part in rendered.known)
            picture = pictures.get(match.group()) if not is_reply else None
            if picture is not None:
                tokens = self.encoder.tokens(picture).tokens
                known = KnownTokens(match.start(), match.end(), tokens)
                shown.append(_ShownPicture(known, self.encoder.sources(picture)))
        return shown

    def render(self, conversation: Conversation) -> Rendered:
        """The text of the prompt; it need not fit."""
        prefill = _prefill(conversation)
        asked = conversation.without_prefill() if prefill else conversation
        rendered = self._render(asked, self.quirks.messages(asked.messages)).result
        return replace(rendered, text=rendered.text + prefill)

    def _render(
        self,
        asked: Conversation,
        whole: Sequence[MessageDict],
        check: Callable[[str], None] | None = None,
        last: RenderedMessages = NO_MESSAGES,
    ) -> RenderedMessages:
        """Renders the messages `whole`, which are those of the conversation as the template takes them."""
        shown = [tool for tool in asked.tools or () if not tool.get(DEFERRED)]
        tools = self.quirks.tools(shown or None)

        def render(messages: Sequence[MessageDict], generation_prompt: bool) -> str:
            return self.template.render(
                messages,
                tools=tools,
                add_generation_prompt=generation_prompt and asked.add_generation_prompt,
                options=asked.options,
            )

        return RenderedMessages(whole, render_with_spans(whole, render, check, last))

    def _check(self, text: str) -> None:
        if self.meter is not None:
            self.meter.check(text)

    def tokens(self, text: str) -> Tokens:
        """The tokens of a text inside a prompt: without BOS."""
        self._check(text)
        return self.tokenizer.tokenise(text).tokens

    def is_reply(self, tokens: Sequence[int], text: str) -> bool:
        """Whether tokens are those of a reply with this text: they say it, and no control token hides among them."""
        hidden = self._vocabulary.control_tokens - self.shown_tokens
        if not all(0 <= token < self._vocabulary.size and token not in hidden for token in tokens):
            return False
        return b"".join(map(self._vocabulary.piece, tokens)).decode("utf-8", "replace") == text

    def visible_piece(self, token: int) -> bytes:
        """The text of a token as it appears in a reply, where most control tokens are left out."""
        is_hidden = token in self._vocabulary.control_tokens and token not in self.shown_tokens
        return b"" if is_hidden else self._vocabulary.piece(token)

    def _prompt(self, rendered: Rendered, tokenised: Tokenised, shown: Sequence["_ShownPicture"] = ()) -> Prompt:
        text, spans = rendered.text, rendered.spans
        tokens, added = tokenised.tokens, 0
        if self._vocabulary.adds_bos and not text.startswith(self._bos):
            tokens, added = np.concatenate([[self._vocabulary.bos or 0], tokens]).astype(np.int32), 1
        borders = [span.start for span in spans] + ([spans[-1].end] if spans else [])
        positions = [position + added for position in tokenised.positions(borders)]
        messages = tuple(
            MessageSpan(span.role, start, end)
            for span, start, end in zip(spans, positions, positions[1:], strict=False)
        )
        breaks, moved = (
            [position + added for position in tokenised.positions(offsets)]
            for offsets in (_blank_lines(text, spans), _moved_texts(text, spans))
        )
        prompt = Prompt(tokens, messages, tuple(breaks), next(iter(moved), None))
        return _with_pictures(prompt, shown) if shown else prompt


def _with_pictures(prompt: Prompt, shown: Sequence[_ShownPicture]) -> Prompt:
    pictures, images = iter(prompt.pictures), []
    sources: dict[int, PictureSource] = {}
    for place in shown:
        runs = list(islice(pictures, len(place.sources)))
        sources |= {run.start: source for run, source in zip(runs, place.sources, strict=True)}
        images.append((runs[0].start, runs[-1].end))
    return replace(prompt, images=tuple(images), sources=sources)


def _moved_texts(text: str, spans: Sequence[TextSpan]) -> list[int]:
    """The offset of the moved texts in the first user message, behind what is the same in every conversation."""
    first = next((span for span in spans if span.role == "user"), None)
    found = text.find(MOVED, first.start, first.end) if first is not None else -1
    return [found] if first is not None and found >= first.start + _MIN_PARAGRAPH else []


def _blank_lines(text: str, spans: Sequence[TextSpan]) -> list[int]:
    """Offsets behind the last blank lines of a long last user message: a question may follow the text it is about."""
    last = next((span for span in reversed(spans) if span.role == "user"), None)
    found: list[int] = []
    if last is not None and last.end - last.start >= _LONG_MESSAGE:
        position = text.rfind("\n\n", last.start, last.end)
        while position >= 0 and len(found) < _MAX_BREAKS:
            found.append(position + 2)
            position = text.rfind("\n\n", last.start, position - _MIN_PARAGRAPH)
    return found[::-1]


def _prefill(conversation: Conversation) -> str:
    """The beginning of the reply, which the client wrote."""
    return conversation.prefill if conversation.add_generation_prompt else ""


def _one_token(vocabulary: Vocabulary, marker: str) -> int | None:
    """The single token that a marker consists of; None if it is several, or too short to be a marker."""
    if len(marker) < _MIN_MARKER or not vocabulary.has_text:
        return None
    tokens = vocabulary.tokenize(marker)
    return int(tokens[0]) if tokens.size == 1 else None
