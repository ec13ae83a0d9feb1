"""A projector file (mmproj): says which tokens a picture becomes, and encodes its pixels as embeddings.

`layout` needs no pixels, only their number, and may be called from any thread. Pictures are encoded one at a time.
"""

import ctypes as C
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from leftoff.engine import gguf
from leftoff.engine.binding.library import Library
from leftoff.engine.context import ContextSettings, floats
from leftoff.engine.errors import EngineError, InputError, ModelError
from leftoff.engine.fingerprint import file_fingerprint
from leftoff.engine.model import Model, load_weights
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.vision.mtmd import IMAGE, MARKER, InputText, Mtmd, load_mtmd
from leftoff.types import Embeddings

Pixels = npt.NDArray[np.uint8]  # rows of RGB

WITHOUT_WEIGHTS = ModelSettings(gpu_layers=0, no_weights=True)
_ARCHITECTURE = "clip"  # of all projector files
_LAYOUTS = 256
_TILE = 64  # tokens
# Pictures of many shapes: one of them becomes as many tokens at once as any.
_TRIED_SIZES = ((64, 64), (4096, 4096), (8192, 1024), (1024, 8192), (640, 480), (1920, 1080), (1080, 1920))
_UNSUPPORTED = {"hunyuanvl": "its positions depend on the number of the picture in the prompt"}


@dataclass(frozen=True)
class ImageChunk:
    """Embeddings that follow each other: a whole picture, or a slice of it."""

    num_tokens: int
    num_positions: int
    is_causal: bool


Chunk = tuple[int, ...] | ImageChunk  # tokens of text, such as those that begin and end a picture, or an image


@dataclass(frozen=True)
class PictureLayout:
    """The chunks of a picture of one size, in order."""

    chunks: tuple[Chunk, ...]

    @cached_property
    def images(self) -> tuple[ImageChunk, ...]:
        return tuple(chunk for chunk in self.chunks if isinstance(chunk, ImageChunk))


class Projector:
    """Loaded beside a model. `close` it before the model's library goes."""

    def __init__(
        self,
        path: Path,
        model: Model,
        *,
        threads: int = 1,
        use_gpu: bool = False,
        min_tokens: int = 0,
        max_tokens: int = 0,
    ) -> None:
        """`min_tokens` and `max_tokens` of a picture are its own choice if 0."""
        self.path = path
        self._mtmd: Mtmd = load_mtmd(model.library)
        self._model = model
        self._threads = threads
        self._limits = (min_tokens or -1, max_tokens or -1)
        self._use_gpu = use_gpu and self._mtmd.library is model.library
        self._lock = threading.Lock()  # held while the context is opened, closed, or asked for a layout
        self._encoding = threading.Lock()  # taken before the other one
        self._words: int | None = None
        self._handle: int | None = None
        self.layout = lru_cache(_LAYOUTS)(self._layout)
        self.num_encoded = 0
        self.width = int(model.library.dll.llama_model_n_embd_inp(model.handle))  # numbers for one token
        _check_file(path)
        self._content = file_fingerprint(path)
        with self._opened() as handle:
            self.uses_mrope = bool(self._dll.mtmd_decode_use_mrope(handle))
        if self.uses_mrope and model.window:
            self.close()
            raise ModelError(f"{path} is not supported with {model.path}: M-RoPE positions beside a sliding window")

    @property
    def library(self) -> Library:
        """The library that encodes, which need not be the model's."""
        return self._mtmd.library

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that embeddings depend on besides the pixels."""
        parts = [self._content, self.library.fingerprint, self._limits, self._threads, self._use_gpu]
        return blake3("|".join(map(str, parts)).encode()).hexdigest()

    @cached_property
    def largest(self) -> ImageChunk:
        """The longest image chunk of all sizes tried."""
        images = (image for size in _TRIED_SIZES for image in self.layout(*size).images)
        return max(images, key=lambda image: image.num_tokens)

    @property
    def is_causal(self) -> bool:
        """Whether tokens of a picture see only those before them, as text does."""
        return self.largest.is_causal

    def context_for(self, settings: ContextSettings) -> ContextSettings:
        """The settings of a context that can read its pictures: those that are not causal must fit a micro-batch.

        Where there are sliding windows, the cells of a whole picture are laid at once.
        """
        if self.is_causal and not self._model.window:
            return settings
        least = -(-self.largest.num_tokens // _TILE) * _TILE
        micro_batch = min(max(settings.micro_batch_tokens, least), settings.num_cells)
        return replace(settings, micro_batch_tokens=micro_batch, batch_tokens=max(settings.batch_tokens, micro_batch))

    def sleep(self) -> None:
        """Frees the memory of the weights until the next picture."""
        with self._encoding, self._lock:
            self._free()

    close = sleep

    def encode(self, pixels: Pixels) -> tuple[Embeddings, ...]:
        """The embeddings of each image chunk. Takes long, and releases the GIL."""
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
            raise InputError(f"pixels must be rows of RGB bytes, not {pixels.dtype} of shape {pixels.shape}")
        with self._encoding:  # one picture at a time: mtmd keeps what it has encoded last in its context
            with self._opened() as handle:
                pass
            with self._chunks(handle, pixels.shape[1], pixels.shape[0], pixels) as chunks:
                encoded = tuple(self._encode(handle, chunk) for chunk in chunks if self._is_image(chunk))
            self.num_encoded += 1
        return encoded

    def _encode(self, handle: int, chunk: int) -> Embeddings:
        dll, num_tokens = self._dll, int(self._dll.mtmd_input_chunk_get_n_tokens(chunk))
        if dll.mtmd_encode_chunk(handle, chunk) != 0:
            raise EngineError(f"{self.path} could not encode a picture: {self.library.log.take_errors()}")
        numbers = floats(dll.mtmd_get_output_embd(handle), num_tokens * self.width).copy()
        rows = numbers.reshape(num_tokens, self.width)
        return Embeddings(rows, self._positions(chunk, num_tokens), self._is_causal(handle, chunk))

    def _positions(self, chunk: int, num_tokens: int) -> npt.NDArray[np.int32] | None:
        """Time, row and column of each token, and 0, from the first position of the picture on. None without M-RoPE."""
        if not self.uses_mrope:
            return None
        image, get = self._dll.mtmd_input_chunk_get_tokens_image(chunk), self._dll.mtmd_image_tokens_get_decoder_pos
        found = [get(image, 0, index) for index in range(num_tokens)]
        return np.array([[place.t, place.y, place.x, place.z] for place in found], np.int32).T.copy()

    def _layout(self, width: int, height: int) -> PictureLayout:
        """The chunks of a picture of this size."""
        with self._opened() as handle, self._chunks(handle, width, height) as chunks:
            layout = PictureLayout(tuple(self._described(handle, chunk) for chunk in chunks))
        if not layout.images:
            raise EngineError(f"{self.path} makes no image of {width} x {height} pixels")
        return layout

    def _described(self, handle: int, chunk: int) -> Chunk:
        dll = self._dll
        if self._is_image(chunk):
            num_tokens = int(dll.mtmd_input_chunk_get_n_tokens(chunk))
            return ImageChunk(num_tokens, dll.mtmd_input_chunk_get_n_pos(chunk), self._is_causal(handle, chunk))
        size = C.c_size_t()
        address = dll.mtmd_input_chunk_get_tokens_text(chunk, C.byref(size))
        tokens = tuple((C.c_int32 * size.value).from_address(address)) if size.value else ()
        if any(not 0 <= token < self._model.vocabulary.size for token in tokens):
            raise ModelError(f"{self.path} does not fit {self._model.path}, which lacks its tokens around pictures")
        return tokens

    def _is_image(self, chunk: int) -> bool:
        return bool(self._dll.mtmd_input_chunk_get_type(chunk) == IMAGE)

    def _is_causal(self, handle: int, chunk: int) -> bool:
        return not self._dll.mtmd_decode_use_non_causal(handle, chunk)

    @contextmanager
    def _chunks(self, handle: int, width: int, height: int, pixels: Pixels | None = None) -> Iterator[list[int]]:
        """The chunks that a text of one picture becomes; without pixels they can only be counted."""
        dll = self._dll
        rows = np.ascontiguousarray(pixels) if pixels is not None else None
        bitmap = dll.mtmd_bitmap_init(width, height, rows.ctypes.data if rows is not None else None)
        chunks = dll.mtmd_input_chunks_init()
        try:
            text = InputText(MARKER, len(MARKER), False, True)
            code = dll.mtmd_tokenize(handle, chunks, C.byref(text), (C.c_void_p * 1)(bitmap), 1)
            if code != 0:
                errors = self.library.log.take_errors()
                raise EngineError(f"{self.path} takes no picture of {width} x {height} pixels (code {code}): {errors}")
            yield [dll.mtmd_input_chunks_get(chunks, index) for index in range(dll.mtmd_input_chunks_size(chunks))]
        finally:
            dll.mtmd_bitmap_free(bitmap)
            dll.mtmd_input_chunks_free(chunks)

    # --- the native context

    @property
    def _dll(self) -> C.CDLL:
        return self._mtmd.dll

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with self._lock:
            if self._handle is None:
                self._handle = self._open()
            yield self._handle

    def _open(self) -> int:
        """The text model is there for its vocabulary and its width: the weights may sleep, or be another library's."""
        log = self.library.log
        self._require_same()
        self._words = load_weights(self.library, self._model.path, WITHOUT_WEIGHTS)
        params = self._dll.mtmd_context_params_default()
        params.use_gpu, params.n_threads = self._use_gpu, self._threads
        params.image_min_tokens, params.image_max_tokens = self._limits
        params.print_timings = params.warmup = False
        log.take_errors()
        handle: int | None = self._dll.mtmd_init_from_file(os.fsencode(self.path), self._words, params)
        if handle is not None and self._dll.mtmd_support_vision(handle):
            self._handle = handle
            self._require_same()  # it is read, not mapped: nothing that happens to the file later matters
            return handle
        reason = log.take_errors() or "it has no encoder for pictures"
        if handle is not None:
            self._dll.mtmd_free(handle)
        self._free()
        raise ModelError(f"llama.cpp cannot use the projector {self.path} with {self._model.path}: {reason}")

    def _require_same(self) -> None:
        """Raises if another projector lies there now: embeddings are kept under the name of the first."""
        _check_file(self.path)
        if file_fingerprint(self.path) != self._content:
            self._free()
            raise ModelError(f"{self.path} is not the projector any more that was loaded: start the server again")

    def _free(self) -> None:
        if self._handle is not None:
            self._dll.mtmd_free(self._handle)
            self._handle = None
        if self._words is not None:
            self.library.dll.llama_model_free(self._words)
            self._words = None


def _check_file(path: Path) -> None:
    """Raises `ModelError` for what llama.cpp would not explain."""
    if not path.is_file():
        raise ModelError(f"there is no projector at {path}: give a GGUF file to --mmproj")
    try:
        architecture, kind = gguf.read_header(path).architecture, gguf.read_text(path, b"clip.projector_type")
    except gguf.DAMAGED as error:
        raise ModelError(f"{path} is no projector: it is not a GGUF file, or damaged ({error})") from error
    if architecture != _ARCHITECTURE:
        raise ModelError(f"{path} is no projector: it holds a model of the architecture {architecture!r}")
    if kind in _UNSUPPORTED:
        raise ModelError(f"{path}: pictures of {kind} are not supported: {_UNSUPPORTED[kind]}")
