"""From a conversation to a prompt: header rules, then what does not fit, then the template."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from leftoff.chat.conversation import Conversation, Note
from leftoff.chat.header_rules import Rules, with_moved
from leftoff.chat.last_turns import LastTurn, LastTurns
from leftoff.chat.learner import Learner
from leftoff.chat.meter import TYPICAL_CHARACTERS, TooManyTokensError, num_characters
from leftoff.chat.overflow import ContextOverflowError, Cutter, FittedPrompt, MakePrompt
from leftoff.chat.prompts import NOT_MADE, PromptMaker
from leftoff.chat.replies import RememberedReplies
from leftoff.chat.template.render import MessageDict
from leftoff.chat.verbatim import VerbatimReplies
from leftoff.types import Prompt, header_size

Overflow = Literal["error", "cut"]
_ANY_WORDS = "Go on."
# Characters of a conversation, tools included. It may be longer than a prompt that fits: templates drop old reasoning,
# and rules and the window drop messages.
_ALWAYS_TAKEN = 4 << 20
_TIMES = 8  # as many as the context may hold
_TOO_LARGE = "so long a conversation is not even looked at; drop its oldest messages"


@dataclass(frozen=True)
class ChatPrompt:
    """The prompt of a conversation, and what was done to the conversation on the way."""

    conversation: Conversation  # as the client sent it
    prompt: Prompt
    key: bytes  # under which a reply to it is remembered
    moved: tuple[str, ...]  # the texts that stand before its first user message: those that it began with
    notes: tuple[Note, ...]
    shown: Sequence[MessageDict]  # its messages after the rules

    @property
    def header(self) -> Sequence[MessageDict]:
        """Its system messages after the rules: the same in all conversations of a client."""
        return self.shown[: header_size(self.shown)]


class Chat:
    """One per server. Raises `TemplateError` and `ContextOverflowError`, both the client's to solve."""

    def __init__(
        self,
        prompts: PromptMaker,
        context_tokens: int,
        *,
        rules: Rules | None = None,
        learner: Learner | None = None,
        overflow: Overflow = "error",
        remembered: RememberedReplies | None = None,
    ) -> None:
        self.prompts = prompts
        self._remembered = remembered
        self._last_turns = LastTurns()
        self._context_tokens = context_tokens
        self._rules = rules or Rules()
        self.learner = learner
        self._cutter = Cutter(context_tokens) if overflow == "cut" else None

    def prompt(self, conversation: Conversation) -> ChatPrompt:
        """Applies the rules, puts replies back as the model wrote them, renders, tokenises, and cuts what must go."""
        self._check_size(conversation)
        last = self._last_turns.find(conversation)
        if last is not None:
            conversation = last.as_before(conversation)
        ruled = self._rules.apply(conversation.messages, conversation.namespace)
        if self.learner is not None:
            ruled = self.learner.apply(ruled, conversation)
        shown = replace(conversation, messages=ruled.messages)
        replies = VerbatimReplies(self.prompts, shown, self._remembered, last.transcript if last is not None else None)
        moved = replies.moved or ruled.moved
        rewrite = replies.restore if replies.are_known else None

        made = last.made if last is not None else NOT_MADE

        def make(messages: Sequence[MessageDict]) -> Prompt:
            nonlocal made
            whole = replace(shown, messages=with_moved(replies.with_reasoning(messages), moved, ruled.followed))
            made = self.prompts.make(whole, rewrite, made)
            return made.prompt

        fitted = self._fit(shown, make)
        kept = replace(conversation, pictures={})  # the next turn brings them again
        self._last_turns.put(LastTurn(kept, replies.transcript, made.without_pictures()))
        notes = (*self._tool_notes(conversation), *ruled.notes, *fitted.notes, *replies.notes)
        return ChatPrompt(conversation, fitted.prompt, replies.key, moved, notes, ruled.messages)

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the last turns, the pinned and the learned texts of the namespaces that are meant, and all tokens."""
        self.prompts.tokenizer.forget()
        self._last_turns.remove(is_meant)
        self._rules.forget(is_meant)
        if self.learner is not None:
            self.learner.forget(is_meant)

    def text(self, conversation: Conversation) -> str:
        """The text that the template renders from a conversation as it is. Nothing is tokenised: it need not fit."""
        self._check_size(conversation)
        return self.prompts.render(conversation).text

    def ahead(self, conversation: Conversation, reply: MessageDict) -> Prompt:
        """The beginning of the conversation's next prompt, after a reply: all but the next message's text."""
        calls = reply.get("tool_calls")
        following = {"role": "user"} if not calls else {"role": "tool", "tool_call_id": calls[0].get("id")}
        whole = [*conversation.messages, reply, {**following, "content": _ANY_WORDS}]
        prompt = self.prompt(replace(conversation, messages=whole)).prompt
        end = prompt.messages[-1].start
        return replace(prompt, tokens=prompt.tokens[:end], messages=prompt.messages[:-1], breaks=())

    def _fit(self, conversation: Conversation, make: MakePrompt) -> FittedPrompt:
        if self._cutter is not None:
            return self._cutter.fit(conversation.messages, make, conversation.namespace)
        try:
            return FittedPrompt(check_fits(make(conversation.messages), self._context_tokens))
        except TooManyTokensError as error:
            raise ContextOverflowError(error.num_tokens, self._context_tokens, is_exact=False) from error

    def _check_size(self, conversation: Conversation) -> None:
        """Raises for far too long a conversation, before it is rendered: what will be dropped must be read as well."""
        meter = self.prompts.meter
        if meter is None:
            return
        size = num_characters((conversation.messages, conversation.tools))
        if size > max(_ALWAYS_TAKEN, _TIMES * meter.most_characters):
            raise ContextOverflowError(size // TYPICAL_CHARACTERS, self._context_tokens, _TOO_LARGE, is_exact=False)

    def _tool_notes(self, conversation: Conversation) -> tuple[Note, ...]:
        if not conversation.tools or self.prompts.quirks.shows_tools:
            return ()
        num_tools = len(conversation.tools)
        return (Note("template", f"the model's template shows no tools: it was not told of {num_tools}"),)


def check_fits(prompt: Prompt, context_tokens: int) -> Prompt:
    """Raises unless the prompt leaves at least one token for the reply."""
    if prompt.length >= context_tokens:
        raise ContextOverflowError(prompt.length, context_tokens)
    return prompt
