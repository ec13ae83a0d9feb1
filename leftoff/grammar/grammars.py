"""The grammars of one model: compiled once each, kept while they are asked for, followed by any number of replies."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

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


class Grammars:
    """Made once per model, closed once. The tokenizer waits for the first constrained reply.

    Compiling has a thread of its own, so that a hostile schema makes nobody wait but those who have one too.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()
        self._compiling = ThreadPoolExecutor(1, thread_name_prefix="leftoff-grammars")
        self._ahead = Ahead(_MASK_THREADS, "leftoff-masks")

    def close(self) -> None:
        self._compiling.shutdown(wait=False, cancel_futures=True)
        self._ahead.close()

    def aside(self, function: Callable[[], Result]) -> Future[Result]:
        """Runs what compiles on the thread for it."""
        return self._compiling.submit(function)

    def compile(self, grammar: Grammar) -> Compiled:
        """Raises `GrammarError`. What is known already costs nothing."""
        return Compiled(self._compiled(grammar.lark))

    def follow(self, compiled: Compiled) -> Matcher:
        """From the grammar's beginning, for one reply."""
        return Matcher(compiled.start.deep_copy(), self._tokenizer.vocab_size, self._ahead)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        return make_tokenizer(self.vocabulary)

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
