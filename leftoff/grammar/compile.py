"""The grammars of one model: compiled once each, kept while they are asked for, followed by any number of replies."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.ahead import Ahead
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import Grammar
from leftoff.grammar.matcher import Matcher, is_stopped
from leftoff.grammar.tokenizer import make_tokenizer

Result = TypeVar("Result")

_MAX_CHARACTERS = 2 << 20  # of a grammar put together, such as from the schemas of many tools
_MAX_KEPT = 64
_MAX_KEPT_CHARACTERS = 8 << 20
_MASK_THREADS = min(4, os.cpu_count() or 1)
_STACK_BYTES = 16 << 20
_LIMITS = LLParserLimits(
    max_lexer_states=50_000,  # of one or two kilobytes each
    initial_lexer_fuel=1_000_000,  # some 20 ms of work
    step_lexer_fuel=200_000,  # some 15 ms
    step_max_items=50_000,  # some 3 ms
    max_grammar_size=200_000,
    verbose_errors=False,
)


@dataclass(frozen=True)
class Compiled:
    """A grammar that can be followed. Stays so while it is held, whatever is kept."""

    start: LLMatcher


@dataclass(frozen=True)
class Making(Generic[Result]):
    """Work on its way. It has begun when those before it are done, and the tokenizer is there."""

    begun: Future[None]
    result: Future[Result]


class Grammars:
    """Made once per model, closed once. The tokenizer waits for the first constrained reply.

    Compiling has two threads of its own, for short requests and for long ones: those who have no schema wait for
    neither, and those who have a short one not for the long ones.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()
        self._short = _one_thread("leftoff-grammars")
        self._long = _one_thread("leftoff-long-grammars")
        self._making_tokenizer = threading.Lock()
        self._made_tokenizer: LLTokenizer | None = None
        self._ahead = Ahead(_MASK_THREADS, "leftoff-masks")

    def close(self) -> None:
        for lane in (self._short, self._long):
            lane.shutdown(wait=False, cancel_futures=True)
        self._ahead.close()

    def aside(self, function: Callable[[], Result], *, is_long: bool = False) -> Making[Result]:
        """Runs what compiles on the thread for it."""
        begun: Future[None] = Future()

        def run() -> Result:
            try:
                self._tokenizer.vocab_size  # noqa: B018  # made here if this is the first, before the time counts
            finally:
                begun.set_result(None)
            return function()

        return Making(begun, (self._long if is_long else self._short).submit(run))

    def compile(self, grammar: Grammar) -> Compiled:
        """Raises `GrammarError`. What is known already costs nothing."""
        return Compiled(self._compiled(grammar.lark))

    def follow(self, compiled: Compiled) -> Matcher:
        """From the grammar's beginning, for one reply."""
        return Matcher(compiled.start.deep_copy(), self._tokenizer.vocab_size, self._ahead)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    @property
    def _tokenizer(self) -> LLTokenizer:
        with self._making_tokenizer:
            if self._made_tokenizer is None:
                self._made_tokenizer = make_tokenizer(self.vocabulary)
            return self._made_tokenizer

    def _compiled(self, lark: str) -> LLMatcher:
        with self._lock:
            matcher = self._kept.get(lark)
            if matcher is not None:
                self._kept.move_to_end(lark)
                return matcher
        if len(lark) > _MAX_CHARACTERS:
            raise GrammarError(f"it has {len(lark)} characters: must be at most {_MAX_CHARACTERS}")
        matcher = LLMatcher(self._tokenizer, lark, log_level=0, limits=_LIMITS)
        matcher.compute_bitmask()  # what leads nowhere shows here, and what is found now serves every reply
        is_stopped(matcher)
        with self._lock:
            self._keep(lark, matcher)
        return matcher

    def _keep(self, lark: str, matcher: LLMatcher) -> None:
        self._kept[lark] = matcher
        while len(self._kept) > 1 and (len(self._kept) > _MAX_KEPT or sum(map(len, self._kept)) > _MAX_KEPT_CHARACTERS):
            self._kept.popitem(last=False)


def _one_thread(name: str) -> ThreadPoolExecutor:
    """With room for a deep grammar: the compiler follows references by recursion, and some systems give little."""
    usual = threading.stack_size(_STACK_BYTES)
    try:
        lane = ThreadPoolExecutor(1, thread_name_prefix=name)
        lane.submit(lambda: None)  # its thread is there from now on
    finally:
        threading.stack_size(usual)
    return lane
