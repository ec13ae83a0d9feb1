"""The model's tokenizer: text to tokens and back. Knows nothing of chats or templates."""

import ctypes as C
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from leftoff.engine.binding.library import Library
from leftoff.engine.errors import InputError
from leftoff.picture_tokens import is_text, shown_text, unmarked
from leftoff.types import Tokens

_NO_VOCABULARY = 0  # LLAMA_VOCAB_TYPE_NONE
_SPM, _BPE, _RWKV, _PLAMO2 = 1, 2, 5, 6  # LLAMA_VOCAB_TYPE_*; the others (WPM, UGM) drop or merge some of the text
_PIECE_BYTES = 64
_STRIPS = 1 << 7 | 1 << 8  # LLAMA_TOKEN_ATTR_LSTRIP, LLAMA_TOKEN_ATTR_RSTRIP


class ControlPart(NamedTuple):
    """A part of a text, with its token if it is the name of a control token."""

    text: str
    token: int | None


class Vocabulary:
    """The tokens of a loaded model. Not valid after the model was closed."""

    def __init__(self, library: Library, model: int) -> None:
        self._dll = library.dll
        self.handle: int = library.dll.llama_model_get_vocab(model)
        self.size: int = self._dll.llama_vocab_n_tokens(self.handle)
        self.bos: int | None = _id_or_none(self._dll.llama_vocab_bos(self.handle))
        self.eos: int | None = _id_or_none(self._dll.llama_vocab_eos(self.handle))
        self.adds_bos: bool = self._dll.llama_vocab_get_add_bos(self.handle)
        self.adds_eos: bool = self._dll.llama_vocab_get_add_eos(self.handle)
        self._pieces: dict[int, bytes] = {}
        # those that end a reply; read at load, since the first reply would wait for it
        self.end_tokens = frozenset(t for t in range(self.size) if self._dll.llama_vocab_is_eog(self.handle, t))

    @property
    def has_text(self) -> bool:
        """False for a model file without a tokenizer, which takes token ids only."""
        return self._type != _NO_VOCABULARY

    @property
    def separator(self) -> int | None:
        """What stands between two texts, if the model wants anything there."""
        dll = self._dll
        return _id_or_none(dll.llama_vocab_sep(self.handle)) if dll.llama_vocab_get_add_sep(self.handle) else None

    @property
    def _type(self) -> int:
        return int(self._dll.llama_vocab_type(self.handle))

    @cached_property
    def control_tokens(self) -> frozenset[int]:
        """Tokens such as `<|im_end|>`, which are no part of the text."""
        if not self.has_text:
            return frozenset()  # llama.cpp aborts when asked
        return frozenset(t for t in range(self.size) if self._dll.llama_vocab_is_control(self.handle, t))

    def control_parts(self, text: str) -> Iterator[ControlPart]:
        """The parts of a text in their order: the names of control tokens, and what stands between them."""
        ids = self._control_names
        names = "|".join(re.escape(name) for name in sorted(ids, key=len, reverse=True) if name in text)
        parts = re.split(f"({names})", text) if names else [text]
        return (ControlPart(part, ids.get(part)) for part in parts if part)

    @cached_property
    def _control_names(self) -> dict[str, int]:
        return {name: token for token in self.control_tokens if (name := self.token_text(token))}

    @cached_property
    def separators(self) -> frozenset[int]:
        """Control tokens that strip no white space beside them: the text on either side is tokenised independently."""
        return frozenset(t for t in self.control_tokens if not self._strips(t))

    @cached_property
    def strips(self) -> bool:
        """Whether any token strips the white space beside it, however long."""
        return self.has_text and any(self._strips(token) for token in range(self.size))

    @cached_property
    def longest_text(self) -> int | None:
        """Characters of the longest token, so that a text of n characters has at least n / longest_text tokens.

        Counted as the token is stored: one per byte, or "▁" for a space or "▁" itself. None if the tokenizer may drop
        text or strip it beside a token, since there is no lower bound then.
        """
        if not self._keeps_all_text or self.strips:
            return None
        text = self._dll.llama_vocab_get_text
        return max(len((text(self.handle, token) or b"").decode("utf-8", "replace")) for token in range(self.size))

    def tokenize(self, text: str | bytes, *, add_special: bool = False, parse_special: bool = True) -> Tokens:
        """The tokens of `text`. `add_special` adds BOS and EOS as the model wants them; `parse_special` reads
        `<|im_end|>` and the like as one token."""
        if not self.has_text:
            raise InputError("this model has no tokenizer: give token ids instead of text")
        data = text.encode() if isinstance(text, str) else text
        tokens = np.empty(len(data) // 2 + 16, np.int32)
        count = self._tokenize_into(tokens, data, add_special, parse_special)
        if count < 0:  # the buffer was too small: llama.cpp answers with what it needs
            tokens = np.empty(-count, np.int32)
            count = self._tokenize_into(tokens, data, add_special, parse_special)
        return tokens[:count].copy()

    def piece(self, token: int) -> bytes:
        """The bytes of one token, which may end inside a character; a special token's are its name."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def token_text(self, token: int | None) -> str:
        """The text of one token, with what is no UTF-8 by itself replaced; empty for None, and without a tokenizer."""
        return "" if token is None or not self.has_text else self.piece(token).decode("utf-8", "replace")

    def byte_ends(self, tokens: Sequence[int]) -> npt.NDArray[np.int32]:
        """For each token, the number of bytes up to its end."""
        sizes = np.fromiter(map(len, map(self.piece, tokens)), np.int32, len(tokens))
        return sizes.cumsum(dtype=np.int32)

    def detokenize(self, tokens: Tokens) -> bytes:
        ids = tokens.tolist()
        try:
            return b"".join(map(self._pieces.__getitem__, ids))  # a long prompt, mostly of tokens seen before
        except KeyError:
            ids = unmarked(tokens).tolist()
            return b"".join(self.piece(token) if is_text(token) else shown_text(token) for token in ids)

    def text(self, tokens: Tokens) -> str:
        """Detokenizes; a token may end inside a character, which is then replaced."""
        return self.detokenize(tokens).decode("utf-8", "replace")

    def check(self, tokens: Tokens) -> None:
        """Raises `InputError` for unknown ids: at some of them llama.cpp throws C++ exceptions."""
        if tokens.size == 1:
            inside = 0 <= int(tokens[0]) < self.size
        else:
            inside = tokens.size == 0 or (int(tokens.min()) >= 0 and int(tokens.max()) < self.size)
        if not inside:
            self.check_id(int(tokens[(tokens < 0) | (tokens >= self.size)][0]))

    def check_id(self, token: int) -> None:
        if not 0 <= token < self.size:
            raise InputError(f"token {token} is not in the vocabulary of {self.size} tokens")

    @property
    def _keeps_all_text(self) -> bool:
        """Whether the tokenizer drops no text. Byte-level BPE drops bytes that are not in the vocabulary."""
        if self._type == _BPE:
            bytes_of_text = {*range(0xC0), *range(0xC2, 0xF5)}  # UTF-8 has no others
            single = (self.piece(token) for token in range(self.size))
            return bytes_of_text <= {piece[0] for piece in single if len(piece) == 1}
        return self._type in (_SPM, _RWKV, _PLAMO2)

    def _strips(self, token: int) -> bool:
        return bool(self._dll.llama_vocab_get_attr(self.handle, token) & _STRIPS)

    def _tokenize_into(self, tokens: Tokens, data: bytes, add_special: bool, parse_special: bool) -> int:
        count: int = self._dll.llama_tokenize(
            self.handle, data, len(data), tokens.ctypes.data, tokens.size, add_special, parse_special
        )
        return count

    def _read_piece(self, token: int) -> bytes:
        self.check_id(token)
        if not self.has_text:
            raise InputError(f"this model has no tokenizer: token {token} stands for no text")  # llama.cpp would abort
        buffer = C.create_string_buffer(_PIECE_BYTES)
        length = self._dll.llama_token_to_piece(self.handle, token, buffer, _PIECE_BYTES, 0, True)
        if length < 0:
            buffer = C.create_string_buffer(-length)
            length = self._dll.llama_token_to_piece(self.handle, token, buffer, -length, 0, True)
        return buffer.raw[:length]


def _id_or_none(token: int) -> int | None:
    return token if token >= 0 else None
