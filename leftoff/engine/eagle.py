"""An EAGLE-3 head: a file of its own, with one layer that guesses tokens of a model from what its layers read.

It drafts as a next-token layer does (`head.py`), from other hidden states: the inputs of three layers of the model,
which an encoder of the head joins into one row for each token. They are joined when the head reads them, many at once.

llama.cpp aborts the process on a head that does not fit the model, so all of it is compared before it is loaded.
"""

import ctypes as C
import mmap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from leftoff.engine import gguf
from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library
from leftoff.engine.context import Context, ContextSettings, create_context, floats
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.gguf import Header, Tensor
from leftoff.engine.head import HeadContext, Hidden, HiddenBatch
from leftoff.engine.model import load_weights
from leftoff.engine.model_header import model_header
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.needs import HEAD_LAYERS
from leftoff.types import Tokens

ARCHITECTURE = "eagle3"
# Models whose layers' inputs were read. llama.cpp aborts the process in models that do not give them out.
TARGETS = ("llama", "qwen3", "qwen3moe", "qwen3next", "qwen35", "qwen35moe", "gpt-oss")
_INT64 = 27  # ggml's number of the type


@dataclass(frozen=True)
class HeadFile:
    """The file of a head, and the model that it was made for: its name, if the file tells it, and its sizes."""

    path: str
    architecture: str
    model_name: str
    model_width: int  # numbers of a hidden state
    model_tokens: int  # of the vocabulary
    layers: tuple[int, ...]  # of the model, whose inputs it reads
    file_bytes: int


def read_head(path: Path) -> HeadFile | None:
    """None if it is no head of this kind, or damaged: who loads it tells why."""
    with suppress(OSError, StopIteration, *gguf.DAMAGED):
        header = gguf.read_header(path)
        if header.architecture != ARCHITECTURE:
            return None
        read = next(tensor.shape[0] for tensor in header.tensors if tensor.name == "fc.weight")
        names = (gguf.read_text(path, name) for name in (b"general.base_model.0.name", b"general.name"))
        layers = gguf.read_numbers(path, b"eagle3.target_layers")
        return HeadFile(
            path=str(path),
            architecture=ARCHITECTURE,
            model_name=next(filter(None, names), ""),
            model_width=read // HEAD_LAYERS,
            model_tokens=header.num_tokens,
            layers=layers,
            file_bytes=path.stat().st_size,
        )
    return None


def eagle_problem(library: Library, model: Path, path: Path) -> str:
    """Why a head cannot draft for a model; empty if it can."""
    try:
        main, head = model_header(model), model_header(path)
        if main.architecture not in TARGETS:
            return f"a head for {main.architecture} was not tried yet, only for {', '.join(TARGETS)}"
        problem = library.problem_without([*abi.MTP_FUNCTIONS, *abi.EAGLE_FUNCTIONS])
        return problem or next(_differences(main, head, path), "")
    except (ModelError, KeyError, IndexError, OSError, ValueError) as error:
        return f"it cannot be examined ({error})"


def _differences(main: Header, head: Header, path: Path) -> Iterator[str]:
    tensors = {tensor.name: tensor for tensor in head.tensors}
    model_width = next(tensor.shape[0] for tensor in main.tensors if tensor.name == "token_embd.weight")
    read, width = tensors["fc.weight"].shape
    embeddings, output, chosen = (tensors.get(name) for name in ("token_embd.weight", "output.weight", "d2t"))
    if "blk.0.attn_q.weight" not in tensors or "blk.1.attn_q.weight" in tensors:
        yield "it has not one layer"
    if tensors["blk.0.attn_k.weight"].shape != tensors["blk.0.attn_v.weight"].shape:
        yield "its keys and values are of different sizes"
    if read != HEAD_LAYERS * model_width:
        yield f"it reads hidden states of {read // HEAD_LAYERS} numbers, and the model has {model_width}"
    if (embeddings is None or output is None) and width != model_width:
        yield f"it shares embeddings or output with a model of width {width}, and the model has {model_width}"
    if head.num_tokens != main.num_tokens or (embeddings is not None and embeddings.shape[1] < main.num_tokens):
        yield f"it has {head.num_tokens:,} tokens, and the model has {main.num_tokens:,}"
    if chosen is not None:
        num_guessed = output.shape[1] if output is not None else main.num_tokens
        if chosen.kind != _INT64 or chosen.shape != (num_guessed,) or not _are_tokens(chosen, path, main.num_tokens):
            yield "its list of the tokens that it guesses is damaged"


def _are_tokens(chosen: Tensor, path: Path, num_tokens: int) -> bool:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = chosen.start + 8 * chosen.shape[0]
        tokens = np.frombuffer(data[chosen.start : end], np.int64)
    return bool(tokens.size and tokens.min() >= 0 and tokens.max() < num_tokens)


def head_context(settings: ContextSettings) -> ContextSettings:
    """The settings of a head beside those of a model: not every head has sizes that quantized cells can have."""
    return replace(settings, kv_type="f16", values_type="", grid=None)


class EagleContext(HeadContext):
    """Owns the weights of the head and its context, which is of as many cells and sequences as the main one.

    A token is read at its own position, not at the one before as in training: attention sees only distances.
    """

    def __init__(self, main: Context, replaced: set[int], path: Path, where: ModelSettings) -> None:
        self._path, self._where = path, where
        self._weights: int | None = None
        super().__init__(main, replaced)

    def close(self) -> None:
        """Frees context and weights."""
        if self.handle is not None:
            super().close()
            self._free_weights()

    def prepare(self, num_works: int) -> None:
        """The inputs of layers are given out of all tokens, in the order of the batch."""

    def _ask(self, *, is_wanted: bool) -> None:
        for layer in self._layers:
            self._dll.llama_set_embeddings_layer_inp(self._main.handle, layer, is_wanted)

    def _hidden(self, num_tokens: int, last_row: int, _: int) -> Hidden:
        first, dll, main = last_row + 1 - num_tokens, self._dll, self._main
        size = (last_row + 1) * self._width
        layers = (floats(dll.llama_get_embeddings_layer_inp(main.handle, layer), size) for layer in self._layers)
        return np.concatenate([rows.reshape(-1, self._width)[first:] for rows in layers], axis=1)

    def _joined(self, hidden: Hidden) -> Hidden | None:
        most, parts = self._main.micro_batch_tokens, []  # an encoder takes no more at once
        empty = self._main.settings.num_sequences  # a sequence without cells, where any position is right
        for first in range(0, len(hidden), most):
            batch = HiddenBatch(empty, 0, None, hidden[first : first + most], has_logits=True)
            code = self._dll.llama_encode(self.handle, batch.struct)
            if code != 0:
                self._empty(code)
                return None
            size = len(hidden[first : first + most]) * self._own_width
            parts.append(floats(self._dll.llama_get_embeddings_nextn(self.handle), size).copy())
        return np.concatenate(parts).reshape(-1, self._own_width)

    def _decode(self, seq: int, start: int, tokens: Tokens, hidden: Hidden, *, has_logits: bool = False) -> bool:
        """The last token has a batch of its own: of several, llama.cpp gives out the logits of the first."""
        before = tokens.size - 1 if has_logits else tokens.size
        if not super()._decode(seq, start, tokens[:before], hidden[:before]):
            return False
        return super()._decode(seq, start + before, tokens[before:], hidden[before:], has_logits=True)

    def _create(self) -> int:
        library, main = self._main.model.library, self._main
        if problem := eagle_problem(library, main.model.path, self._path):  # the file may have changed in a sleep
            raise ModelError(f"{self._path}: {problem}")
        self._weights = load_weights(library, self._path, self._where)
        try:
            self._layers = self._read_layers()
            self._own_width: int = self._dll.llama_model_n_embd_out(self._weights)
            # the other one is also for embeddings and output, if the head has none
            return create_context(library, self._weights, self._path, head_context(main.settings), other=main.handle)
        except EngineError:
            self._free_weights()
            raise

    def _read_layers(self) -> list[int]:
        dll, num_layers = self._dll, self._dll.llama_model_n_layer(self._main.model.handle)
        number = dll.llama_model_target_layer_ids_n(self._weights)
        layers = list((C.c_int32 * number).from_address(dll.llama_model_target_layer_ids(self._weights)))
        if number != HEAD_LAYERS or not all(0 <= layer < num_layers for layer in layers):
            raise ModelError(f"{self._path}: it reads the inputs of the layers {layers}, of {num_layers}")
        return layers

    def _free_weights(self) -> None:
        self._dll.llama_model_free(self._weights)
        self._weights = None
