"""A head: a layer that guesses the next tokens of a sequence from hidden states of the model, in a context of its own.

It is the model's next-token layer (`mtp.py`) or comes from a file (`eagle.py`). It reads a token together with what the
main context has computed for the token before it. So its context follows every decode of the main one, and has KV cells
of its own for the same sequences:

    main context    tokens                 [0 ····················· length)
    head            cells, then pending        [first ····· held)[held ·· length)

Cells that it lacks, such as those of a prefix that was loaded from the cache, make its guesses worse, and nothing
wrong: the main context verifies every one. While its guesses do not pay it is paused: it follows nothing then, and the
main context computes as if there were no head.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leftoff.engine.binding import abi
from leftoff.engine.context import Context, floats
from leftoff.types import Tokens

Hidden = npt.NDArray[np.float32]  # a row for each token

logger = logging.getLogger(__name__)

_MAX_PENDING = 64  # tokens: more are decoded with the next batch


@dataclass
class _Followed:
    """A sequence that is read along: its tokens from `held` on, and the hidden states before and after each of them."""

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


class HeadContext(ABC):
    """Belongs to the thread of the main context."""

    def __init__(self, main: Context, replaced: set[int]) -> None:
        """`replaced` are the sequences of the main context that no longer hold what was decoded into them."""
        self._main = main
        self._replaced = replaced
        self._dll = dll = main.model.library.dll
        self._width: int = dll.llama_model_n_embd_out(main.model.handle)
        self._followed: dict[int, _Followed] = {}
        self._has_cells: set[int] = set()  # sequences: of others none need be removed, which passes over all cells
        self.is_paused = False
        self.handle: int | None = None
        self.open()

    def open(self) -> None:
        """Makes the native context, if there is none."""
        if self.handle is None:
            self.handle = self._create()
            self._memory = self._dll.llama_get_memory(self.handle)
            self._dll.llama_set_embeddings_nextn(self.handle, True, True)  # of tokens with logits
            self._ask(is_wanted=not self.is_paused)

    def close(self) -> None:
        """Frees the context. The main one then computes no more hidden states than it needs itself."""
        if self.handle is not None:
            self._ask(is_wanted=False)
            self._forget_all()
            self._dll.llama_free(self.handle)
            self.handle = None

    def attend(self, *, is_worth_it: bool) -> None:
        """Follows what is decoded from now on, or is paused: to follow takes a little time at every token."""
        if self.is_paused is is_worth_it and self.handle is not None:
            self.is_paused = not is_worth_it
            self._ask(is_wanted=is_worth_it)
            for seq in [*self._followed, *self._has_cells]:
                self._forget(seq)

    @abstractmethod
    def _create(self) -> int:
        """The native context."""

    @abstractmethod
    def _ask(self, *, is_wanted: bool) -> None:
        """Tells the main context whether to give out the hidden states that `follow` reads."""

    @abstractmethod
    def prepare(self, num_works: int) -> None:
        """Is called before a decode of the main context, with the number of its sequences."""

    @abstractmethod
    def _hidden(self, num_tokens: int, last_row: int, num_logits: int) -> Hidden:
        """The hidden states of the last tokens of a sequence in the batch, of as many as are known."""

    def _joined(self, hidden: Hidden) -> Hidden | None:
        """The input of the layer for these hidden states: they themselves. None if it could not be computed."""
        return hidden

    def follow(self, seq: int, tokens: Tokens, start: int, last_row: int, num_logits: int) -> None:
        """Takes over the hidden states of a sequence's tokens in that decode. They begin at `start`."""
        self._forget_replaced()
        hidden = self._hidden(tokens.size, last_row, num_logits)
        followed = self._followed.get(seq)
        is_next = followed is not None and followed.held <= start <= followed.length
        if followed is None or not is_next or hidden.shape[0] < tokens.size or not self._catch_up(seq, followed, start):
            self._begin(seq, tokens, start, hidden)
        else:
            followed.append(tokens, hidden)

    def cut(self, seq: int, length: int) -> None:
        """A draft was verified: its tokens from `length` on were wrong."""
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
        self._forget_all()

    def _forget_all(self) -> None:
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
