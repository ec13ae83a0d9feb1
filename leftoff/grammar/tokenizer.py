"""A model's vocabulary as llguidance wants it: the bytes of every token, and how text is cut into them."""

from functools import lru_cache

from llguidance import LLTokenizer

from leftoff.engine.vocabulary import Vocabulary
from leftoff.grammar.errors import GrammarError

_MAX_REMEMBERED = 4096
_SENTINEL = "\n"  # some tokenizers put a space before a text, but none before a line break


class _Wrapper:
    """The attributes that llguidance reads. Control tokens are no text: only a grammar that names them allows them."""

    is_tokenizer_wrapper = True

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.tokens = [vocabulary.piece(token) for token in range(vocabulary.size)]
        self.special_token_ids = sorted(vocabulary.control_tokens | vocabulary.end_tokens)
        self.bos_token_id = vocabulary.bos
        self.eos_token_id = min(vocabulary.end_tokens, default=None)
        self._tokenize = lru_cache(_MAX_REMEMBERED)(self._tokens)

    def __call__(self, text: str) -> list[int]:
        """Text that a grammar leaves no choice about, such as the name of a property, again and again."""
        return self._tokenize(text)

    def _tokens(self, text: str) -> list[int]:
        """As the model would have cut it."""
        tokens = self._vocabulary.tokenize(text, parse_special=False)
        if self._vocabulary.detokenize(tokens) == text.encode():
            return list(map(int, tokens))
        head = self._vocabulary.tokenize(_SENTINEL, parse_special=False)
        tokens = self._vocabulary.tokenize(_SENTINEL + text, parse_special=False)[head.size :]
        return list(map(int, tokens)) if self._vocabulary.detokenize(tokens) == text.encode() else self._longest(text)

    def _longest(self, text: str) -> list[int]:
        data, at = text.encode(), 0
        tokens: list[int] = []
        by_bytes = {piece: token for token, piece in enumerate(self.tokens) if piece}
        while at < len(data):
            end = next((end for end in range(min(len(data), at + 32), at, -1) if data[at:end] in by_bytes), None)
            if end is None:
                return tokens
            tokens.append(by_bytes[data[at:end]])
            at = end
        return tokens


def make_tokenizer(vocabulary: Vocabulary) -> LLTokenizer:
    """Takes a second for a large vocabulary: to be made once, and not where somebody waits for a token."""
    if not vocabulary.has_text:
        raise GrammarError("this model has no tokenizer: its replies cannot be constrained")
    ends = sorted(vocabulary.end_tokens) or None
    return LLTokenizer(_Wrapper(vocabulary), eos_token=ends)  # type: ignore[arg-type]  # it reads attributes
