"""From a conversation to a prompt, in one place: rules, then what does not fit, then the template."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from leftoff.chat.header_rules import Rules
from leftoff.chat.meter import TooManyTokensError, num_characters
from leftoff.chat.notes import Note
from leftoff.chat.overflow import ContextOverflowError, Cutter, Fitted, MakePrompt, check_fits
from leftoff.chat.prompts import PromptMaker, as_it_is
from leftoff.chat.remembered import RememberedReplies
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.chat.verbatim import OwnLetters
from leftoff.types import Prompt

Overflow = Literal["error", "cut"]
_ANY_WORDS = "Go on."
# Characters of a conversation, tools included. It may be longer than a prompt that fits: templates drop old reasoning,
# and rules and the window drop messages.
_ALWAYS_TAKEN = 4 << 20
_TIMES = 8  # what the context may hold
_TOO_LARGE = "so long a conversation is not even looked at; drop its oldest messages"


@dataclass(frozen=True)
class ChatPrompt:
    """What the model reads, and what was done to the conversation on the way."""

    prompt: Prompt
    notes: tuple[Note, ...] = ()
    conversation: bytes = b""  # by which a reply to it is remembered


class Chat:
    """One per server. Raises `TemplateError` and `ContextOverflowError`, both the client's to solve."""

    def __init__(
        self,
        prompts: PromptMaker,
        context_tokens: int,
        *,
        rules: Rules | None = None,
        overflow: Overflow = "error",
        remembered: RememberedReplies | None = None,
    ) -> None:
        self.prompts = prompts
        self._remembered = remembered
        self._context_tokens = context_tokens
        self._rules = rules or Rules()
        self._cutter = Cutter(context_tokens) if overflow == "cut" else None

    def prompt(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[ToolDict] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> ChatPrompt:
        """`namespace` is the tenant's, as for the cache: what is remembered for one is not used for another."""
        self._check_size((messages, tools))
        ruled = self._rules.apply(messages, namespace)
        own_letters = OwnLetters(self.prompts, ruled.messages, tools, namespace, self._remembered)

        def make(some: Sequence[MessageDict]) -> Prompt:
            return self.prompts.from_messages(
                own_letters.with_reasoning(some),
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                options=options,
                rewrite=own_letters.restore if own_letters.restores else as_it_is,
            )

        fitted = self._fit(ruled.messages, make, namespace)
        return ChatPrompt(
            fitted.prompt,
            (*self._tool_notes(tools), *ruled.notes, *fitted.notes, *own_letters.notes),
            own_letters.conversation,
        )

    def _fit(self, messages: Sequence[MessageDict], make: MakePrompt, namespace: str) -> Fitted:
        if self._cutter is not None:
            return self._cutter.fit(messages, make, namespace)
        with self._counted_roughly():
            return Fitted(check_fits(make(messages), self._context_tokens))

    @contextmanager
    def _counted_roughly(self) -> Iterator[None]:
        try:
            yield
        except TooManyTokensError as error:
            raise ContextOverflowError(error.num_tokens, self._context_tokens, is_exact=False) from error

    def _check_size(self, given: object) -> None:
        """Before any of it is rendered: what is dropped on the way to the prompt must be read as well."""
        meter = self.prompts.meter
        if meter is not None and (size := num_characters(given)) > max(_ALWAYS_TAKEN, _TIMES * meter.most_characters):
            raise ContextOverflowError(size // meter.longest_text, self._context_tokens, _TOO_LARGE, is_exact=False)

    def text(
        self,
        messages: Sequence[MessageDict],
        *,
        tools: Sequence[ToolDict] | None = None,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """What the template makes of a conversation, as it is. Nothing is tokenised: it need not fit."""
        self._check_size((messages, tools))
        return self.prompts.render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, options=options, must_fit=False
        ).text

    def ahead(
        self,
        messages: Sequence[MessageDict],
        reply: MessageDict,
        *,
        tools: Sequence[ToolDict] | None = None,
        options: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> Prompt:
        """What the next prompt of a conversation will begin with, after a reply: all but the words of who is next."""
        calls = reply.get("tool_calls")
        following = {"role": "user"} if not calls else {"role": "tool", "tool_call_id": calls[0].get("id")}
        whole = [*messages, reply, {**following, "content": _ANY_WORDS}]
        prompt = self.prompt(whole, tools=tools, options=options, namespace=namespace).prompt
        end = prompt.messages[-1].start
        return Prompt(prompt.tokens[:end], prompt.messages[:-1])

    def text_prompt(self, text: str) -> ChatPrompt:
        """A prompt without messages, for completions. Nothing is ever cut from it."""
        with self._counted_roughly():
            return ChatPrompt(check_fits(self.prompts.from_text(text), self._context_tokens))

    def _tool_notes(self, tools: Sequence[ToolDict] | None) -> tuple[Note, ...]:
        if not tools or self.prompts.shape.shows_tools:
            return ()
        return (Note("template", f"the model's template shows no tools: it was not told of {len(tools)}"),)
