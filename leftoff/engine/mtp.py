"""The next-token (MTP) layer of a model, in a context of its own: it guesses tokens of a sequence before they come.

The layer reads a token together with the hidden state that the main context has computed for the token before it. So
its context follows every decode of the main one, and has KV cells of its own for the same sequences:

    main context    tokens                 [0 ····················· length)
    MTP context     cells, then pending        [first ····· held)[held ·· length)

Cells that it lacks, such as those of a prefix that was loaded from the cache, make its guesses worse, and nothing
wrong: the main context verifies every one. While its guesses are mostly wrong, it is spared the prompts.
"""

import ctypes as C
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library
from leftoff.engine.context import Context, create_context
from leftoff.engine.errors import ModelError
from leftoff.engine.needs import model_header
from leftoff.types import Tokens

Hidden = npt.NDArray[np.float32]  # a row for each token

logger = logging.getLogger(__name__)

# Architectures whose layer was tried. llama.cpp aborts the process, or ignores the layer, in some others.
ARCHITECTURES = ("qwen35", "qwen35moe", "qwen3next", "deepseek2")
_LAYER_END = ".nextn.eh_proj.weight"  # the tensor that every such layer has
_MAX_PENDING = 64  # tokens: more are decoded with the next batch
_FIRST_CHANCE, _WEIGHT, _LEAST_CHANCE = 0.7, 0.1, 0.2  # that the first token of a draft is right


def mtp_problem(library: Library, path: Path) -> str:
    """Why no drafts can be made with the MTP layer of a model file; empty if they can."""
    try:
        header = model_header(path)
    except ModelError as error:
        return str(error)
    num_layers = sum(tensor.name.endswith(_LAYER_END) for tensor in header.tensors)
    if num_layers == 0:
        return "there is no MTP layer in the model file"
    if num_layers > 1:
        return f"the model has {num_layers} MTP layers, and only one is supported"
    if header.architecture not in ARCHITECTURES:
        return f"the MTP layer of {header.architecture} was not tried yet, only that of {', '.join(ARCHITECTURES)}"
    missing = [name for name in abi.MTP_FUNCTIONS if not library.has(name)]
    if missing:
        return f"{library.path} (llama.cpp {library.build.version}) lacks {missing[0]}: take another build"
    return ""


@dataclass
class _Followed:
    """What is known of a sequence: its tokens from `held` on, and the hidden states before and after each of them."""

    held: int
    tokens: Tokens
    hidden: Hidden  # one row more than there are tokens

    @property
    def length(self) -> int:
        return self.held + int(self.tokens.size)

    def cut(self, length: int) -> None:
        self.tokens = self.tokens[: length - self.held]
        self.hidden = self.hidden[: length - self.held + 1]

    def append(self, tokens: Tokens, hidden: Hidden) -> None:
        self.tokens = np.concatenate([self.tokens, tokens])
        self.hidden = np.concatenate([self.hidden, hidden])

    def hold(self, length: int) -> None:
        """The cells up to there are computed."""
        self.tokens, self.hidden = self.tokens[length - self.held :], self.hidden[length - self.held :]
        self.held = length


class MtpContext:
    """Belongs to the thread of the main context."""

    def __init__(self, main: Context, replaced: set[int]) -> None:
        """`replaced` are the sequences of the main context that no longer hold what was decoded into them."""
        self._main = main
        self._replaced = replaced
        self._dll = dll = main.model.library.dll
        self._width: int = dll.llama_model_n_embd_out(main.model.handle)
        self._followed: dict[int, _Followed] = {}
        self._guessed: dict[int, int] = {}  # the position of the first token of the last draft, by sequence
        self._chance = _FIRST_CHANCE
        self._has_cells: set[int] = set()  # sequences: of others none need be removed, which passes over all cells
        self.handle: int | None = None
        self.open()

    def open(self) -> None:
        """Makes the native context, if there is none."""
        if self.handle is not None:
            return
        self._is_alone: bool | None = None
        self.handle = create_context(self._main.model, self._main.settings, abi.CONTEXT_MTP)
        self._memory = self._dll.llama_get_memory(self.handle)
        self._dll.llama_set_embeddings_nextn(self.handle, True, True)  # of tokens with logits

    def close(self) -> None:
        """Frees the context. The main one then computes no more hidden states than it needs itself."""
        if self.handle is not None:
            self._dll.llama_set_embeddings_nextn(self._main.handle, False, False)
            self._free()

    def _free(self) -> None:
        self._dll.llama_free(self.handle)
        self.handle = None
        self._followed.clear()
        self._has_cells.clear()

    def prepare(self, num_works: int) -> None:
        """Before a decode of the main context: asks for the hidden states that `follow` reads.

        For a sequence alone they are those of all its tokens. Of several sequences llama.cpp mixes the rows of tokens
        without logits, so that only the others can be told apart.
        """
        is_alone = num_works == 1
        if self._is_alone is not is_alone:
            self._is_alone = is_alone
            self._dll.llama_set_embeddings_nextn(self._main.handle, True, not is_alone)

    def follow(self, seq: int, tokens: Tokens, start: int, last_row: int, num_logits: int) -> None:
        """After that decode, for each sequence: takes over the hidden states of its tokens, which begin at `start`."""
        self._forget_replaced()
        if self._chance < _LEAST_CHANCE:  # it guesses from the last one alone, to see now and then if that pays by now
            self._begin(seq, tokens, start, self._hidden(max(1, num_logits), last_row, num_logits))
            return
        hidden = self._hidden(tokens.size, last_row, num_logits)
        followed = self._followed.get(seq)
        is_next = followed is not None and followed.held <= start <= followed.length
        if followed is None or not is_next or hidden.shape[0] < tokens.size or not self._catch_up(seq, followed, start):
            self._begin(seq, tokens, start, hidden)
        else:
            followed.append(tokens, hidden)

    def _hidden(self, num_tokens: int, last_row: int, num_logits: int) -> Hidden:
        """Of the last tokens of a sequence in the batch, of as many as are known."""
        if self._is_alone:
            rows = floats(self._dll.llama_get_embeddings_nextn(self._main.handle), (last_row + 1) * self._width)
            return rows.reshape(-1, self._width)[-num_tokens:]
        known = range(last_row + 1 - min(num_tokens, num_logits), last_row + 1)
        addresses = (self._dll.llama_get_embeddings_nextn_ith(self._main.handle, row) for row in known)
        hidden = np.array([floats(address, self._width) for address in addresses], np.float32)
        return hidden.reshape(-1, self._width)

    def _joined(self, hidden: Hidden) -> Hidden | None:
        """The input of the layer for these hidden states: they themselves. None if it could not be computed."""
        return hidden

    def cut(self, seq: int, length: int) -> None:
        """A draft was verified: its tokens from `length` on were wrong."""
        if (first := self._guessed.pop(seq, None)) is not None:
            self._chance += _WEIGHT * ((length > first) - self._chance)
        followed = self._followed.get(seq)
        if followed is not None:
            followed.cut(length)

    def draft(self, seq: int, tokens: Tokens, start: int, most: int) -> list[int]:
        """Up to `most` tokens that may come after `tokens`, which the main context decodes next, at `start`.

        Empty if the hidden state of the token before them is not known.
        """
        self._forget_replaced()
        followed = self._followed.get(seq)
        if followed is None or followed.held > start or followed.length != start + tokens.size - 1:
            return []
        first, hidden = followed.held, self._joined(followed.hidden[: start + tokens.size - followed.held])
        following = np.concatenate([followed.tokens[: start - first], tokens])
        drafted: list[int] = []
        while hidden is not None and self._decode(seq, first, following, hidden, has_logits=True):
            first += following.size
            logits = floats(self._dll.llama_get_logits_ith(self.handle, -1), self._main.model.vocabulary.size)
            following = np.array([logits.argmax()], np.int32)
            drafted.append(int(following[0]))
            if len(drafted) == most:
                self._dll.llama_memory_seq_rm(self._memory, seq, start, -1)
                followed.hold(start)
                self._guessed[seq] = start + tokens.size
                return drafted
            hidden = floats(self._dll.llama_get_embeddings_nextn_ith(self.handle, -1), hidden.shape[1]).reshape(1, -1)
        return []

    def _catch_up(self, seq: int, followed: _Followed, length: int) -> bool:
        """Forgets what comes after `length`, and computes what is pending, if it is much. False if all was lost."""
        followed.cut(length)
        if followed.tokens.size > _MAX_PENDING:
            hidden = self._joined(followed.hidden)
            if hidden is None or not self._decode(seq, followed.held, followed.tokens, hidden):
                return False
            followed.hold(length)
        return True

    def _begin(self, seq: int, tokens: Tokens, start: int, hidden: Hidden) -> None:
        """Follows a sequence from the first token on whose hidden state is known."""
        self._forget(seq)
        if hidden.shape[0]:
            held = start + int(tokens.size) - hidden.shape[0] + 1
            self._followed[seq] = _Followed(held, tokens[held - start :].copy(), hidden.copy())

    def _forget_replaced(self) -> None:
        while self._replaced:
            self._forget(self._replaced.pop())

    def _forget(self, seq: int) -> None:
        self._followed.pop(seq, None)
        if seq in self._has_cells:
            self._has_cells.remove(seq)
            self._dll.llama_memory_seq_rm(self._memory, seq, -1, -1)

    def _decode(self, seq: int, start: int, tokens: Tokens, hidden: Hidden, *, has_logits: bool = False) -> bool:
        """Computes the cells of tokens, each with the hidden state before it. False if there was no room."""
        most = self._main.batch_tokens
        self._has_cells.add(seq)
        for first in range(0, tokens.size, most):
            part = slice(first, min(first + most, tokens.size))
            batch = HiddenBatch(seq, start + first, tokens[part], hidden[part], has_logits=has_logits)
            code = self._dll.llama_decode(self.handle, batch.struct)
            if code != 0:
                self._empty(code)
                return False
        return True

    def _empty(self, code: int) -> None:
        """Sequences that share cells in the main context have their own here: all begin anew."""
        logger.warning("the context of guesses is emptied: llama.cpp could not compute in it (code %d)", code)
        self._dll.llama_memory_clear(self._memory, False)
        self._followed.clear()
        self._has_cells.clear()


class HiddenBatch:
    """A llama_batch of one sequence, with a token and a hidden state at each position; logits only of the last.

    For an encoder there are no tokens, and something comes out for every position.
    """

    def __init__(self, seq: int, start: int, tokens: Tokens | None, hidden: Hidden, *, has_logits: bool) -> None:
        num_tokens = len(hidden)
        seqs, logits = np.full(1, seq, np.int32), np.zeros(num_tokens, np.int8)
        logits[-1 if tokens is not None else 0 :] = has_logits
        self._arrays: Sequence[npt.NDArray[np.generic] | None] = (
            None if tokens is None else np.ascontiguousarray(tokens, np.int32),
            np.ascontiguousarray(hidden, np.float32),
            np.arange(start, start + num_tokens, dtype=np.int32),
            np.ones(num_tokens, np.int32),
            np.full(num_tokens, seqs.ctypes.data, np.uint64),
            logits,
        )
        self._seqs = seqs
        self.struct = abi.Batch(num_tokens, *(None if array is None else array.ctypes.data for array in self._arrays))


def floats(address: int, size: int) -> Hidden:
    """Memory of llama.cpp, valid until its next decode."""
    return np.frombuffer(memoryview((C.c_float * size).from_address(address)), np.float32)
