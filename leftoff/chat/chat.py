"""From a conversation to a prompt, in one place: rules, then what does not fit, then the template."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leftoff.chat.notes import Note
from leftoff.chat.overflow import Cutter, Fitted, check_fits
from leftoff.chat.own_letters import OwnLetters
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.remembered import RememberedReplies
from leftoff.chat.template import MessageDict, ToolDict
from leftoff.chat.volatile import Rules
from leftoff.core import Prompt

Overflow = Literal["error", "cut"]
_ANY_WORDS = "Go on."


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
        ruled = self._rules.apply(messages, namespace)
        own_letters = OwnLetters(self.prompts, ruled.messages, tools, namespace, self._remembered)

        def make(some: Sequence[MessageDict]) -> Prompt:
            return self.prompts.from_messages(
                own_letters.with_reasoning(some),
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                options=options,
                rewrite=own_letters.restore,
            )

        if self._cutter is None:
            fitted = Fitted(check_fits(make(ruled.messages), self._context_tokens))
        else:
            fitted = self._cutter.fit(ruled.messages, make, namespace)
        return ChatPrompt(
            fitted.prompt,
            (*self._tool_notes(tools), *ruled.notes, *fitted.notes, *own_letters.notes),
            own_letters.conversation,
        )

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
        return ChatPrompt(check_fits(self.prompts.from_text(text), self._context_tokens))

    def _tool_notes(self, tools: Sequence[ToolDict] | None) -> tuple[Note, ...]:
        if not tools or self.prompts.shape.shows_tools:
            return ()
        return (Note("template", f"the model's template shows no tools: it was not told of {len(tools)}"),)
