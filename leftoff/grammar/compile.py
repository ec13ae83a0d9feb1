"""Compiles grammars for one model with llguidance, and caches the compiled ones."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.errors import GrammarError
from leftoff.grammar.grammar import Grammar, check_characters
from leftoff.grammar.matcher import Matcher, is_stopped
from leftoff.lru import LruCache

Result = TypeVar("Result")

_MAX_CHARACTERS = 2 << 20  # of a whole grammar, which may hold the schemas of many tools
_MAX_KEPT = 64
_MAX_KEPT_CHARACTERS = 8 << 20
_MAX_KEPT_TEXTS = 4096
_NUM_MASK_THREADS = min(4, os.cpu_count() or 1)
_STACK_BYTES = 16 << 20
_LIMITS = LLParserLimits(
    max_lexer_states=50_000,  # of one or two kilobytes each
    initial_lexer_fuel=1_000_000,  # some 20 ms of work
    step_lexer_fuel=200_000,  # some 15 ms
    step_max_items=50_000,  # some 3 ms
    max_grammar_size=200_000,
    verbose_errors=False,
)
_LINE_BREAK = "\n"  # some tokenizers put a space before a text, but none before a line break


@dataclass(frozen=True)
class Submitted(Generic[Result]):
    """A task on a compiler thread. `started` is set when it leaves the queue and the tokenizer is ready."""

    started: Future[None]
    result: Future[Result]


class Grammars:
    """The compiler of one model; one per server. Any thread may call it.

    Compiling has a thread for short requests and one for long ones: requests without a grammar wait for neither, and
    short requests do not wait for long ones. The tokenizer is made for the first constrained request.
    """

    def __init__(
        self, vocabulary: Vocabulary, *, max_kept: int = _MAX_KEPT, max_characters: int = _MAX_KEPT_CHARACTERS
    ) -> None:
        self.vocabulary = vocabulary
        self._kept: LruCache[str, LLMatcher] = LruCache(
            max_entries=max_kept, max_bytes=max_characters, size_of=lambda lark, _: len(lark)
        )
        self._short = _one_thread("leftoff-grammars")
        self._long = _one_thread("leftoff-long-grammars")
        self._making_tokenizer = threading.Lock()
        self._made_tokenizer: LLTokenizer | None = None
        self._masks = ThreadPoolExecutor(_NUM_MASK_THREADS, thread_name_prefix="leftoff-masks")

    def close(self) -> None:
        for executor in (self._short, self._long, self._masks):
            executor.shutdown(wait=False, cancel_futures=True)

    def submit(self, function: Callable[[], Result], *, is_long: bool = False) -> Submitted[Result]:
        """Runs `function`, which calls `compile`, on a compiler thread."""
        started: Future[None] = Future()

        def run() -> Result:
            try:
                self._tokenizer.vocab_size  # noqa: B018  # makes it, before the caller's time limit begins
            finally:
                started.set_result(None)
            return function()

        return Submitted(started, (self._long if is_long else self._short).submit(run))

    def compile(self, grammar: Grammar) -> LLMatcher:
        """Returns the start state of a grammar, from the cache if it was compiled before. Raises `GrammarError`."""
        lark = grammar.lark
        state = self._kept.get(lark)
        if state is not None:
            return state
        check_characters(len(lark), _MAX_CHARACTERS)
        state = LLMatcher(self._tokenizer, lark, log_level=0, limits=_LIMITS)
        state.compute_bitmask()  # a grammar that no text follows fails here; and copies share the lexer states it found
        is_stopped(state)
        self._kept.put(lark, state)
        return state

    def match(self, start: LLMatcher, **options: float) -> Matcher:
        """A matcher for one reply, from the grammar's start state."""
        return Matcher(start.deep_copy(), self._tokenizer.vocab_size, self._masks, **options)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    @property
    def _tokenizer(self) -> LLTokenizer:
        with self._making_tokenizer:
            if self._made_tokenizer is None:
                self._made_tokenizer = _make_tokenizer(self.vocabulary)
            return self._made_tokenizer


def _one_thread(name: str) -> ThreadPoolExecutor:
    """An executor whose stack is deep enough for llguidance, which follows references by recursion."""
    default = threading.stack_size(_STACK_BYTES)
    try:
        executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        executor.submit(lambda: None)  # starts the thread while the stack size is set
    finally:
        threading.stack_size(default)
    return executor


def _make_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """Takes a second for a large vocabulary."""
    if not vocabulary.has_text:
        raise GrammarError("this model has no tokenizer: its replies cannot be constrained")
    ends = sorted(vocabulary.end_tokens) or None
    return LLTokenizer(_TokenizerWrapper(vocabulary), eos_token=ends)  # type: ignore[arg-type]  # it reads attributes


class _TokenizerWrapper:
    """The vocabulary with the attributes that llguidance reads.

    Control tokens are special tokens: no text matches them, only a grammar that names their ids.
    """

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.tokens = [vocabulary.piece(token) for token in range(vocabulary.size)]
        self.special_token_ids = sorted(vocabulary.control_tokens | vocabulary.end_tokens)
        self.bos_token_id = vocabulary.bos
        self.eos_token_id = min(vocabulary.end_tokens, default=None)
        self._kept_tokens = lru_cache(_MAX_KEPT_TEXTS)(self._tokens)

    def __call__(self, text: str) -> list[int]:
        """Tokenises fixed text of a grammar, such as the name of a property: the same again and again."""
        return self._kept_tokens(text)

    def _tokens(self, text: str) -> list[int]:
        """The tokens that the model's tokenizer makes, without a space that it may add in front."""
        tokens = self._vocabulary.tokenize(text, parse_special=False)
        if self._vocabulary.detokenize(tokens) == text.encode():
            return list(map(int, tokens))
        before = self._vocabulary.tokenize(_LINE_BREAK, parse_special=False)
        tokens = self._vocabulary.tokenize(_LINE_BREAK + text, parse_special=False)[before.size :]
        if self._vocabulary.detokenize(tokens) == text.encode():
            return list(map(int, tokens))
        return self._longest_tokens(text.encode())

    def _longest_tokens(self, data: bytes) -> list[int]:
        """Takes the longest token again and again, up to the first byte that no token begins with."""
        by_bytes = {piece: token for token, piece in enumerate(self.tokens) if piece}
        tokens: list[int] = []
        start = 0
        while start < len(data):
            ends = range(min(len(data), start + 32), start, -1)
            end = next((end for end in ends if data[start:end] in by_bytes), None)
            if end is None:
                break
            tokens.append(by_bytes[data[start:end]])
            start = end
        return tokens
