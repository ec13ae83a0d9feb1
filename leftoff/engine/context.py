"""One llama.cpp context: decodes batches and moves state bytes. Guards the calls that would abort the process.

It knows sequences only as numbers; what each holds, and what may be done with it, is up to `memory/`.
"""

import ctypes as C
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from leftoff.config import KV_TYPES, MAX_SEQUENCES, flash_problem, smallest_batch
from leftoff.engine.adapter_file import ControlVector, LoraFile
from leftoff.engine.adapters import ContextAdapters
from leftoff.engine.batch import BatchBuffers, BatchPart
from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library
from leftoff.engine.binding.spins import Spins
from leftoff.engine.errors import (
    BlobError,
    CancelledError,
    EngineError,
    InputError,
    NoRoomError,
    OutOfMemoryError,
    memory_shortage,
)
from leftoff.engine.memory.arena import Arena, Buffer, LateBuffer, Raw, in_small_pages
from leftoff.engine.memory.staging import staging_for
from leftoff.engine.model import Model
from leftoff.machine import default_threads
from leftoff.types import Embeddings, Logits

_NO_ROOM, _ABORTED = 1, 2
_SEQUENCE_FIELD = slice(4, 8)
_GO, _STOP = b"\x00", b"\x01"
_NO_MEMORY = "it has no memory, like diffusion models; leftoff runs models that generate text token by token"


@dataclass(frozen=True)
class ContextSettings:
    """Sizes of a context: KV cells, sequences, batches, threads."""

    num_cells: int = 8192
    num_sequences: int = 4
    batch_tokens: int = 2048
    micro_batch_tokens: int = 512
    threads: int = field(default_factory=default_threads)
    threads_batch: int = 0  # for prefill: as many as `threads`, if 0
    kv_type: str = "f16"
    values_type: str = ""  # of V: as `kv_type`, if empty
    flash_attention: str = "auto"
    grid: int | None = None  # with --deterministic: prompts are prefilled in chunks that end at multiples of it
    loras: tuple[LoraFile, ...] = ()  # that sets of adapters may name
    control: ControlVector | None = None  # acts on everything

    def __post_init__(self) -> None:
        if not 1 <= self.num_sequences <= MAX_SEQUENCES:
            raise InputError(f"{self.num_sequences} sequences: must be between 1 and {MAX_SEQUENCES}")
        for kv_type in (self.kv_type, self.v_type):
            if kv_type not in KV_TYPES:
                raise InputError(f"unknown KV type {kv_type!r}: must be one of {', '.join(KV_TYPES)}")
        if problem := flash_problem(self.flash_attention, self.v_type):
            raise InputError(problem)
        least = smallest_batch(self.num_sequences)
        for name, smallest in (
            ("num_cells", least),
            ("batch_tokens", least),
            ("micro_batch_tokens", 1),
            ("threads", 1),
        ):
            if not smallest <= getattr(self, name) < 1 << 31:
                raise InputError(f"{name} is {getattr(self, name)}: must be at least {smallest}")

    @property
    def v_type(self) -> str:
        return self.values_type or self.kv_type


class Context:
    """Owns the native context, which may be closed and opened again: then all sequences are empty.

    Belongs to one thread; only `cancel` may be called from another.
    """

    def __init__(self, model: Model, settings: ContextSettings) -> None:
        self.model = model
        self.settings = settings
        self._dll = model.library.dll
        self._may_compute_late = self._dll.ggml_backend_dev_count() > 1  # a CPU has computed all when it returns
        self.arena = Arena(in_small_pages if self._may_compute_late else None)  # beside a GPU, threads fill it
        self._brief = model.library.brief
        self._cancelled = C.create_string_buffer(16)
        self.handle: int | None = None
        self.open()
        self.num_cells: int = self._dll.llama_n_ctx(self.handle)
        self.batch_tokens: int = self._dll.llama_n_batch(self.handle)
        self.micro_batch_tokens: int = min(settings.micro_batch_tokens, self.batch_tokens)
        self._scratch = settings.num_sequences  # one sequence more than callers see
        self._batch = BatchBuffers(self.batch_tokens)

    def open(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Makes the native context, if there is none, and loads the weights for it, if they are gone."""
        if self.handle is not None:
            return
        is_woken = self.model.wake(is_wanted)
        try:
            self.handle = create_context(self.model.library, self.model.handle, self.model.path, self.settings)
            self.adapters = ContextAdapters(self.model, self.handle, self.settings.loras, self.settings.control)
        except EngineError:
            if self.handle is not None:
                self._dll.llama_free(self.handle)
                self.handle = None
            if is_woken:
                self.model.sleep()
            raise
        self.staging = staging_for(self.model.library, self.arena)
        self._memory: int | None = self._dll.llama_get_memory(self.handle)
        self._ids = [*range(self.settings.num_sequences + 1)]  # by which llama.cpp knows each sequence
        self._is_held = False
        self._logits: dict[int, Logits] = {}  # by address
        self._spins = Spins(self._dll)
        self._watch_for_cancel()

    def free(self) -> None:
        """Frees the native context: threads may still copy what was saved, until `close`."""
        if self.handle is not None:
            self._dll.llama_free(self.handle)
            self.adapters.close()
            self.handle = self._memory = None
            self._spins.close()

    def close(self) -> None:
        self.free()
        self.staging.close()

    # --- decoding

    def fill_batch(self, *parts: BatchPart) -> list[int]:
        """Makes the batch to decode next. Returns, for each part, the row of its last token."""
        self._batch.clear()
        return [self._batch.add(part, self._ids[part.seq]) for part in parts]

    def fill_picture(self, part: Embeddings, start: int, seq: int, *, has_logits: bool) -> int:
        """Makes the batch a picture, or a part of one, from position `start` on. Returns the row of its last token."""
        self._batch.clear()
        return self._batch.set_picture(part, start, self._ids[seq], has_logits=has_logits)

    def decode_picture(self, *, is_causal: bool) -> None:
        """Decodes that batch; unless it `is_causal`, all of its tokens see each other."""
        if is_causal:
            self.decode()
            return
        self._dll.llama_set_causal_attn(self.handle, False)
        try:
            self.decode()
        finally:
            self._dll.llama_set_causal_attn(self.handle, True)

    def decode(self) -> None:
        """Decodes the batch. The GIL is released meanwhile. A GPU may go on computing: `wait` for it."""
        self._spins.look()
        code = self._dll.llama_decode(self.handle, self._batch.struct())
        if code == 0:
            self._batch.has_logits = True
            return
        if code == _NO_ROOM:
            raise NoRoomError(f"no room for {self._batch.num_tokens} more tokens in {self.num_cells} cells")
        if code == _ABORTED:
            self._cancelled[0] = _GO
            raise CancelledError("the decode was cancelled")
        raise EngineError(f"llama.cpp could not decode (code {code}): {self.model.library.log.take_errors()}")

    def wait(self) -> None:
        """Waits until all batches are computed. Getting logits or state does so, too."""
        if self._may_compute_late:
            self._dll.llama_synchronize(self.handle)

    def cancel(self) -> None:
        """Aborts the running decode, or the next one, within milliseconds. Safe from any thread."""
        self._cancelled[0] = _STOP

    def forget_cancel(self) -> None:
        self._cancelled[0] = _GO

    def logits(self, row: int) -> Logits:
        """The logits of one row of the last batch, in llama.cpp's own memory: valid until the next decode."""
        self._batch.check_row(row)
        address = self._brief.llama_get_logits_ith(self.handle, row)
        logits = self._logits.get(address)  # the same addresses at every step of a reply
        if logits is None:
            if len(self._logits) >= self.batch_tokens:
                self._logits.clear()
            logits = self._logits[address] = floats(address, self.model.vocabulary.size)
        return logits

    def sample(self, chain: int, row: int) -> int:
        self._batch.check_row(row)
        token: int = self._dll.llama_sampler_sample(chain, self.handle, row)
        return token

    # --- memory

    @property
    def keeps_order(self) -> bool:
        """Whether the cells of a sequence must lie in the order of its positions, for the sake of the last bits.

        On a GPU idle sequences beside a request change those anyway, unless prompts are read on a grid.
        """
        return self.settings.grid is not None or not self.staging.is_locked

    def state_bytes(self, seq: int, flags: int = 0) -> int:
        return int(self._dll.llama_state_seq_get_size_ext(self.handle, self._ids[seq], flags))

    def get_state(self, seq: int, flags: int = 0) -> Buffer | LateBuffer:
        """The state of a sequence, in memory that may be kept."""
        state = self.stage_state(seq, flags)
        return self.staging.keep(state, state.nbytes)

    def stage_state(self, seq: int, flags: int = 0, nbytes: int | None = None) -> Buffer:
        """The state of a sequence, in memory for transfers: to be let go soon.

        With `nbytes` llama.cpp is not asked for the size, for which it passes over all cells.
        """
        is_known = nbytes is not None
        nbytes = self.state_bytes(seq, flags) if nbytes is None else nbytes
        buffer = self.staging.take(nbytes)
        written = self._dll.llama_state_seq_get_data_ext(self.handle, buffer.address, nbytes, self._ids[seq], flags)
        if written != nbytes and is_known:  # such as that of an empty sequence
            return self.stage_state(seq, flags)
        if written != nbytes:
            raise EngineError(f"llama.cpp wrote {written} of {nbytes} bytes of state: {self._why()}")
        buffer.view[_SEQUENCE_FIELD] = 0  # llama.cpp does not read it back, and equal states should be equal bytes
        return buffer

    def stage_beginning(self, seq: int, nbytes: int) -> Buffer:
        """The first bytes of the state of a sequence: where the buffer ends, llama.cpp stops with an error."""
        buffer = self.staging.take(nbytes)
        with self.model.library.log.collected():
            self._dll.llama_state_seq_get_data_ext(self.handle, buffer.address, nbytes, self._ids[seq], 0)
        buffer.view[_SEQUENCE_FIELD] = 0
        return buffer

    def load_state(self, seq: int, state: Raw, flags: int = 0) -> None:
        """`set_state` from ordinary memory, by way of memory that the device reads faster."""
        if not self.staging.is_locked:
            self.set_state(seq, state, flags)
            return
        staged = self.staging.take(state.nbytes)
        self.staging.copy(staged.view, state)
        self.set_state(seq, staged.view, flags)

    def set_state(self, seq: int, state: Raw, flags: int = 0) -> None:
        address, nbytes = state.ctypes.data, state.nbytes
        read = self._dll.llama_state_seq_set_data_ext(self.handle, address, nbytes, self._ids[seq], flags)
        if read != state.nbytes:
            raise BlobError(f"llama.cpp took {read} of {state.nbytes} bytes of state: {self._why()}")

    def remove(self, seq: int, start: int = -1, end: int = -1) -> bool:
        return bool(self._dll.llama_memory_seq_rm(self._memory, self._ids[seq], start, end))

    @contextmanager
    def scratch(self) -> Iterator[int]:
        """An empty sequence that callers do not see, emptied again afterwards."""
        if self._is_held:
            raise InputError("the scratch sequence holds a state: settle the draft first")
        try:
            yield self._scratch
        finally:
            self.remove(self._scratch)

    def hold_rest(self, seq: int, length: int) -> None:
        """Keeps a recurrent state of `length` tokens in the scratch sequence: llama.cpp copies it as `seq` decodes."""
        self.copy(seq, self._scratch, length, length)
        self._is_held = True

    def return_rest(self, seq: int, length: int) -> None:
        """Gives the state that is held back to a sequence without one."""
        self.copy(self._scratch, seq, length, length)

    def release_rest(self) -> None:
        if self._is_held:
            self._is_held = False
            self.remove(self._scratch)

    def copy(self, source: int, target: int, start: int = -1, end: int = -1) -> None:
        self._dll.llama_memory_seq_cp(self._memory, self._ids[source], self._ids[target], start, end)

    def line_up(self, seqs: Sequence[int]) -> None:
        """Gives sequences ids that follow each other, in this order. For recurrent memory, where that copies no byte.

        llama.cpp computes sequences of such a model together only if their ids do: others take a pass each.
        """
        first = self._ids[seqs[0]]
        if first + len(seqs) > self._scratch:
            first = 0
        for number, seq in enumerate(seqs, first):
            if self._ids[seq] != number:
                self._swap_ids(seq, self._ids.index(number))

    def _swap_ids(self, one: int, other: int) -> None:
        with self.scratch() as scratch:
            for source, target in ((one, scratch), (other, one), (scratch, other)):
                self.copy(source, target)
                self.remove(source)
        self._ids[one], self._ids[other] = self._ids[other], self._ids[one]

    def first_position(self, seq: int) -> int:
        return int(self._dll.llama_memory_seq_pos_min(self._memory, self._ids[seq]))

    def clear(self, *, data: bool = True) -> None:
        """Empties all sequences; without `data` the bytes stay in free cells."""
        self._dll.llama_memory_clear(self._memory, data)

    def _why(self) -> str:
        return self.model.library.log.take_errors() or "no reason given"

    def _watch_for_cancel(self) -> None:
        # llama.cpp calls the abort callback at every node of the graph, from its own threads. A Python callback would
        # take the GIL each time, so the callback is C's strlen, on a buffer that is empty until `cancel`.
        strlen = C.cast(C.CDLL(None).strlen, C.c_void_p)
        self._dll.llama_set_abort_callback(self.handle, strlen, C.addressof(self._cancelled))


def floats(address: int, size: int) -> npt.NDArray[np.float32]:
    """Numbers in llama.cpp's own memory, valid until its next decode."""
    return np.frombuffer(memoryview((C.c_float * size).from_address(address)), np.float32)


def context_params(
    library: Library, settings: ContextSettings, kind: int = 0, *, pooling: int | None = None, other: int | None = None
) -> Iterator[Any]:
    """The structs to try in turn: by default, models that do not support flash attention run without.

    With it V is stored in rows: pages can be joined. `kind` is `abi.CONTEXT_MTP` for a next-token layer, `pooling` is
    of vectors, and `other` is the context whose hidden states are read.
    """
    params = library.dll.llama_context_default_params()
    params.ctx_type = kind
    params.ctx_other = other
    params.n_ctx = settings.num_cells
    params.n_batch = settings.batch_tokens
    params.n_ubatch = min(settings.micro_batch_tokens, settings.batch_tokens)
    params.n_seq_max = settings.num_sequences + 1
    params.n_threads = settings.threads
    params.n_threads_batch = settings.threads_batch or settings.threads
    params.type_k, params.type_v = KV_TYPES[settings.kv_type], KV_TYPES[settings.v_type]
    params.kv_unified = True
    params.swa_full = False
    if pooling is not None:
        params.embeddings, params.pooling_type = True, pooling
    for flash_attention in {
        "on": (abi.FLASH_ATTENTION_ON,),
        "off": (abi.FLASH_ATTENTION_OFF,),
        "auto": (abi.FLASH_ATTENTION_ON, abi.FLASH_ATTENTION_AUTO),
    }[settings.flash_attention]:
        params.flash_attn_type = flash_attention
        yield params


def create_context(
    library: Library,
    weights: int | None,
    path: Path,
    settings: ContextSettings,
    kind: int = 0,
    *,
    pooling: int | None = None,
    other: int | None = None,
) -> int:
    """A native context of weights that were loaded from `path`, see `context_params`.

    Encoders, which have vectors only, have no memory.
    """
    dll, log = library.dll, library.log
    wanted = f"a context of {settings.num_cells:,} tokens and {settings.num_sequences} sequences for {path}"
    log.take_errors()
    reason = ""
    for params in context_params(library, settings, kind, pooling=pooling, other=other):
        handle: int | None = dll.llama_init_from_model(weights, params)
        if handle is not None and (pooling is not None or dll.llama_get_memory(handle)):
            return handle
        if handle is not None:
            dll.llama_free(handle)
        reason = log.take_errors() or _NO_MEMORY
        if shortage := memory_shortage(reason):
            raise OutOfMemoryError(f"no memory for {wanted}: {shortage}")
    raise EngineError(f"llama.cpp made no {wanted.removeprefix('a ')}: {reason}")
