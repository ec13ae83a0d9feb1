"""Makes prompts: from messages by the model's template, or from plain text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leftoff.chat.boundaries import Rendered, TextSpan, render_with_spans
from leftoff.chat.segments import SegmentTokenizer
from leftoff.chat.template import ChatTemplate, MessageDict, TemplateError
from leftoff.core import Message, Prompt, Tokens
from leftoff.engine.model import Model

__all__ = ["MessageDict", "PromptMaker", "TemplateError"]


class PromptMaker:
    """One per model. Remembers the tokens of what it has seen, so that a turn costs only its new text."""

    def __init__(self, model: Model, template: str | None = None) -> None:
        vocabulary = model.vocabulary
        self._vocabulary = vocabulary
        self._bos = vocabulary.piece(vocabulary.bos).decode() if vocabulary.bos is not None else ""
        eos = vocabulary.piece(vocabulary.eos).decode() if vocabulary.eos is not None else ""
        self.template = ChatTemplate(template or model.chat_template(), bos=self._bos, eos=eos)
        self._tokenizer = SegmentTokenizer(vocabulary)

    def from_messages(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        rendered = self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options)
        return self._prompt(rendered.text, rendered.spans)

    def from_text(self, text: str) -> Prompt:
        return self._prompt(text, ())

    def render(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """The text of the prompt, as the model will read it."""
        plain = [self._plain(message) for message in messages]

        def render(some: Sequence[MessageDict], generation_prompt: bool) -> str:
            wanted = generation_prompt and add_generation_prompt
            return self.template.render(some, tools=tools, add_generation_prompt=wanted, options=options)

        return render_with_spans(plain, render)

    def tokens(self, text: str) -> Tokens:
        """Tokens of a text as part of a prompt, without what the model wants at its beginning."""
        return self._tokenizer.tokenise(text).tokens

    def _prompt(self, text: str, spans: Sequence[TextSpan]) -> Prompt:
        tokenised = self._tokenizer.tokenise(text)
        tokens, added = tokenised.tokens, 0
        if self._vocabulary.adds_bos and not text.startswith(self._bos):
            tokens, added = np.concatenate([[self._vocabulary.bos or 0], tokens]).astype(np.int32), 1
        borders = [span.start for span in spans] + ([spans[-1].end] if spans else [])
        positions = [position + added for position in tokenised.positions(borders)]
        messages = tuple(
            Message(span.role, start, end) for span, start, end in zip(spans, positions, positions[1:], strict=False)
        )
        return Prompt(tokens, messages)

    def _plain(self, message: MessageDict) -> MessageDict:
        """As templates expect messages: content as text, the arguments of calls as objects."""
        plain = {key: value for key, value in message.items() if value is not None}
        plain["content"] = _text(message.get("content"))
        if plain.get("role") == "developer" and not self.template.mentions("developer"):
            plain["role"] = "system"
        if calls := plain.get("tool_calls"):
            plain["tool_calls"] = [_with_object_arguments(call) for call in calls]
        return plain


def _text(content: Any) -> str:  # noqa: ANN401
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def _with_object_arguments(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = dict(call.get("function") or {})
    if isinstance(function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except ValueError:
            return call  # not JSON: the template prints it as it is
    return {**call, "function": function}
