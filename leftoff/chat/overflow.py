"""Refuses or cuts conversations that do not fit into the context.

A client that drops its oldest message on every turn changes the prefix of every prompt. A cut made here drops many
messages at once:

    [ header )[ ··· dropped ··· )[ kept: at most half the context ······ )

It is remembered, so that the following turns have the same prefix until they outgrow the context again.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leftoff.chat.conversation import Note
from leftoff.chat.meter import TooManyTokensError
from leftoff.chat.template.render import MessageDict
from leftoff.chat.work import checkpoint
from leftoff.lru import LruCache
from leftoff.types import Prompt, header_size

_REMEMBERED_CUTS = 4096

MakePrompt = Callable[[Sequence[MessageDict]], Prompt]

_ADVICE = "shorten it, or start the server with a larger --ctx or with --overflow cut"


class ContextOverflowError(Exception):
    """The prompt does not fit. Unless `is_exact`, `prompt_tokens` is an estimate."""

    def __init__(
        self, prompt_tokens: int, context_tokens: int, advice: str = _ADVICE, *, is_exact: bool = True
    ) -> None:
        count = _count(prompt_tokens, is_exact)
        super().__init__(f"the prompt has {count} tokens and the context holds {context_tokens:,}: {advice}")
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens
        self.is_exact = is_exact


@dataclass(frozen=True)
class FittedPrompt:
    """A prompt that fits, and notes on the messages dropped for it."""

    prompt: Prompt
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Cut:
    """Drops the first `size` messages after the header, except for the question that is still being answered."""

    size: int
    question: int | None = None

    @property
    def num_dropped(self) -> int:
        return self.size - (self.question is not None)

    def apply(self, messages: Sequence[MessageDict]) -> list[MessageDict]:
        start = header_size(messages)
        question = [messages[start + self.question]] if self.question is not None else []
        return [*messages[:start], *question, *messages[start + self.size :]]


@dataclass(frozen=True)
class _Attempt:
    """A prompt, or an estimate of its tokens where it was too long to be tokenised."""

    num_tokens: int
    prompt: Prompt | None = None

    @classmethod
    def at(cls, make: MakePrompt, messages: Sequence[MessageDict]) -> "_Attempt":
        checkpoint()
        try:
            prompt = make(messages)
        except TooManyTokensError as error:
            return cls(error.num_tokens)
        return cls(prompt.length, prompt)

    @property
    def count(self) -> str:
        return _count(self.num_tokens, is_exact=self.prompt is not None)


class Cutter:
    """Cuts conversations, and remembers the most recent cuts. Thread-safe."""

    def __init__(self, context_tokens: int, *, remembered: int = _REMEMBERED_CUTS) -> None:
        self._context_tokens = context_tokens
        self._cuts: LruCache[str, Cut] = LruCache(max_entries=remembered)

    def fit(self, messages: Sequence[MessageDict], make: MakePrompt, memory_key: str) -> FittedPrompt:
        """The whole prompt if it fits, else a remembered or a new cut of it. `make` may raise `TooManyTokensError`."""
        whole = _Attempt.at(make, messages)
        if prompt := self._fitting(whole):
            return FittedPrompt(prompt)
        digests = _digests(messages, memory_key)
        known = self._recall(digests)
        if known is not None and (prompt := self._fitting(_Attempt.at(make, known.apply(messages)))):
            return FittedPrompt(prompt, (self._note(known, whole, prompt, "still left out"),))
        cut, prompt = self._new_cut(messages, make, whole)
        self._cuts.put(digests[cut.size], cut)
        return FittedPrompt(prompt, (self._note(cut, whole, prompt, "left out from now on"),))

    def _fitting(self, attempt: _Attempt) -> Prompt | None:
        return attempt.prompt if attempt.num_tokens < self._context_tokens else None

    def _new_cut(self, messages: Sequence[MessageDict], make: MakePrompt, whole: _Attempt) -> tuple[Cut, Prompt]:
        """The smallest cut that leaves at most half the context, or else the largest if that fits."""
        cuts = possible_cuts(messages)
        low, high = 0, len(cuts) - 1
        while low < high:
            middle = (low + high) // 2
            is_enough = _Attempt.at(make, cuts[middle].apply(messages)).num_tokens <= self._context_tokens // 2
            low, high = (low, middle) if is_enough else (middle + 1, high)
        shortest = _Attempt.at(make, cuts[high].apply(messages)) if cuts else whole
        prompt = self._fitting(shortest)
        if prompt is None:
            advice = f"even its header and last messages have {shortest.count}; shorten them or raise --ctx"
            is_exact = whole.prompt is not None
            raise ContextOverflowError(whole.num_tokens, self._context_tokens, advice, is_exact=is_exact)
        return cuts[high], prompt

    def _recall(self, digests: Sequence[str]) -> Cut | None:
        """The latest cut of this conversation: the one that drops most."""
        return next(filter(None, map(self._cuts.get, reversed(digests[1:-1]))), None)

    def _note(self, cut: Cut, whole: _Attempt, prompt: Prompt, what: str) -> Note:
        return Note(
            "cut",
            f"the {cut.num_dropped} oldest messages are {what}: {whole.count} tokens do not fit in "
            f"{self._context_tokens:,}, {prompt.length:,} do",
        )


def _count(num_tokens: int, is_exact: bool) -> str:
    return f"{num_tokens:,}" if is_exact else f"about {num_tokens:,}"


def possible_cuts(messages: Sequence[MessageDict]) -> list[Cut]:
    """All cuts, from the smallest to the largest: before each later question, then inside the last turn.

    Inside a turn a cut is placed before a message of the assistant, so that a call is never separated from its
    results. The turn's question is kept, since everything after it is the answer.
    """
    roles = [message.get("role") for message in messages[header_size(messages) :]]
    questions = [i for i, role in enumerate(roles) if role == "user"]
    if not questions:
        return []
    last = questions[-1]
    answers = [i for i in range(last + 2, len(roles)) if roles[i] == "assistant"]
    return [Cut(i) for i in questions if i > 0] + [Cut(i, last) for i in answers]


def _digests(messages: Sequence[MessageDict], memory_key: str) -> list[str]:
    """A hash of the first n messages after the header, for each n. The header may change between turns."""
    running = hashlib.sha256(memory_key.encode())
    names = [running.hexdigest()]
    for message in messages[header_size(messages) :]:
        running.update(json.dumps(message, sort_keys=True, default=str).encode() + b"\0")
        names.append(running.hexdigest())
    return names
