"""How much memory a model and a context take on each device, found out before any of it is allocated.

llama.cpp can load a model without its weights (`no_alloc`) and make contexts of it without their KV cells. What they
would take is told only in its log: the device of each layer, and the sizes of buffers. The sizes of weights are in the
header of the model file. Chooses nothing: `fit.py` does.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from leftoff.config import MIB
from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library, load_library
from leftoff.engine.context import ContextSettings, context_params, create_context
from leftoff.engine.devices import available_ram, device_names
from leftoff.engine.errors import EngineError, ModelError, OutOfMemoryError
from leftoff.engine.gguf import Header, Tensor
from leftoff.engine.model_header import model_header
from leftoff.engine.model_settings import EXPERTS, ModelSettings

HOST = "RAM"
HEAD_LAYERS = 3  # of whose inputs an EAGLE-3 head reads

_ASSIGNED = re.compile(r"layer +(\d+) assigned to device ([^,\s]+)")
_OVERRIDDEN = re.compile(r"tensor (\S+) \(.*\) buffer type overridden to (\S+)")
_KV_LAYER = re.compile(r"llama_kv_cache: layer +\d+: dev = (\S+)")
_KV_SIZE = re.compile(r"llama_kv_cache: size = +([\d.]+) MiB")
_BUFFER = re.compile(r": +(\S+) +(\S.* )?buffer size = +([\d.]+) MiB")
_KV_BUFFER, _MODEL_BUFFER = "KV ", "model "
_LAYER = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(EXPERTS)
# Positions and sequences of a cell are allocated even for a trial, and its KV is more than eight times as large.
_CELL_BYTES, _KV_RATIO = 64, 8
_ROUNDING = MIB // 200  # sizes are told in hundredths of a MiB

_EMBEDDINGS, _OUTPUT, _OUTPUT_PREFIX = "token_embd.weight", "output.weight", "output"


@dataclass(frozen=True)
class Needs:
    """Bytes by device, RAM among them: of the weights, and of a context with its KV cells, states and buffers."""

    weights: Counter[str]
    context: Counter[str]

    def total(self, device: str) -> int:
        return self.weights[device] + self.context[device]

    def __add__(self, other: "Needs") -> "Needs":
        return Needs(self.weights + other.weights, self.context + other.context)


class Trial:
    """A model without its weights, on the devices where they would go. Raises `ModelError` if it cannot be loaded."""

    def __init__(self, path: Path, settings: ModelSettings, header: Header | None = None) -> None:
        header = header or model_header(path)
        self._library: Library = load_library()
        self._path = path
        self._devices = device_names(self._library, settings.used_devices(self._library))
        shapes = replace(settings, no_weights=True, no_texts=(header.architecture, header.num_tokens))
        params = shapes.params(self._library)
        with self._library.log.collected() as lines:
            self._handle: int | None = self._library.dll.llama_model_load_from_file(os.fsencode(path), params)
        if self._handle is None:
            raise ModelError(f"llama.cpp cannot examine {path}: {lines[-1] if lines else 'no reason given'}")
        if not _layer_devices(lines):
            self.close()
            raise ModelError(f"{self._library.path} does not log the devices of layers: {path} cannot be examined")
        self._has_mtp = settings.mtp
        num_layers = self._library.dll.llama_model_n_layer(self._handle)
        tensors = header.tensors if settings.mtp else _loaded(header.tensors, num_layers)
        self.weights = weight_needs(tensors, lines, self._devices)
        self.num_layers = len(_layer_devices(lines))  # as --gpu-layers counts: those of the model, and the output
        self.num_expert_layers = _num_expert_layers(tensors)

    def close(self) -> None:
        if self._handle is not None:
            self._library.dll.llama_model_free(self._handle)
            self._handle = None

    @property
    def trained_context(self) -> int:
        return int(self._library.dll.llama_model_n_ctx_train(self._handle))

    def needs(self, settings: ContextSettings, other: "Trial | None" = None) -> Needs | None:
        """None if llama.cpp cannot make such a context, not even without its cells, or does not log what it takes.

        With `other`, of a head: it reads hidden states of that model, and may share weights with it.
        """
        if settings.num_cells * _CELL_BYTES * _KV_RATIO > available_ram():
            raise OutOfMemoryError(f"RAM holds no context of {settings.num_cells:,} tokens: give a smaller --ctx")
        with other._opened(settings) if other is not None else nullcontext() as handle:
            context = self._context_needs(settings, other=handle)
        if not context:
            return None
        if other is not None:  # and the inputs of layers, of a batch
            width = self._library.dll.llama_model_n_embd_out(other._handle)
            context[HOST] += HEAD_LAYERS * 4 * settings.batch_tokens * width
        if self._has_mtp:  # and the hidden states of a batch, which the MTP layer reads
            context += self._context_needs(settings, abi.CONTEXT_MTP)
            context[HOST] += 4 * settings.batch_tokens * self._library.dll.llama_model_n_embd_out(self._handle)
        return Needs(self.weights, context)

    def _context_needs(self, settings: ContextSettings, kind: int = 0, other: int | None = None) -> Counter[str]:
        dll = self._library.dll
        for params in context_params(self._library, settings, kind, other=other):
            with self._library.log.collected() as lines:
                handle: int | None = dll.llama_init_from_model(self._handle, params)
                if handle is not None:
                    dll.llama_free(handle)
            if handle is not None:
                return context_needs(lines, self._devices)
        return Counter()

    @contextmanager
    def _opened(self, settings: ContextSettings) -> Iterator[int | None]:
        """A context, to be named as another's; None if there can be none."""
        handle: int | None = None
        with suppress(EngineError), self._library.log.collected():
            handle = create_context(self._library, self._handle, self._path, settings)
        try:
            yield handle
        finally:
            if handle is not None:
                self._library.dll.llama_free(handle)


def weight_needs(tensors: Sequence[Tensor], lines: Sequence[str], devices: Mapping[str, str]) -> Counter[str]:
    """Bytes of the weights by device, from what llama.cpp logged when it loaded the model."""
    weights: Counter[str] = Counter()
    layers, overridden = _layer_devices(lines), {match[1]: match[2] for match in _found(_OVERRIDDEN, lines)}
    output = _device(layers[-1] if layers else HOST, devices)
    for tensor in tensors:
        layer = _LAYER.match(tensor.name)
        if tensor.name in overridden:
            device = _device(overridden[tensor.name], devices)
        elif layer:
            device = _device(layers[int(layer[1])], devices) if int(layer[1]) < len(layers) else HOST
        else:
            device = output if tensor.name.startswith(_OUTPUT_PREFIX) else HOST
        weights[device] += tensor.num_bytes
    if output != HOST and all(tensor.name != _OUTPUT for tensor in tensors):
        # the embeddings serve as output too, and are copied to its device
        weights[output] += sum(tensor.num_bytes for tensor in tensors if tensor.name == _EMBEDDINGS)
    return weights


def context_needs(lines: Iterable[str], devices: Mapping[str, str]) -> Counter[str]:
    """Bytes of a context by device, from what llama.cpp logged when it made one."""
    context: Counter[str] = Counter()
    kv_devices: list[str] = []
    for line in lines:
        if match := _KV_LAYER.search(line):
            kv_devices.append(_device(match[1], devices))
        elif match := _KV_SIZE.search(line):
            for device in kv_devices:
                context[device] += -(-_bytes(match[1]) // len(kv_devices))
            kv_devices = []
        elif (match := _BUFFER.search(line)) and match[2] not in (_KV_BUFFER, _MODEL_BUFFER):
            context[_device(match[1], devices)] += _bytes(match[3])
    return context


def _layer_devices(lines: Iterable[str]) -> list[str]:
    """The device of each layer; the last is that of the output."""
    layers = {int(match[1]): match[2] for match in _found(_ASSIGNED, lines)}
    return [layers[layer] for layer in sorted(layers)]


def _device(name: str, devices: Mapping[str, str]) -> str:
    """The device of a buffer: `CUDA0` holds `CUDA0` and `CUDA0_Split`; `CPU_REPACK` and `CUDA_Host` are in RAM."""
    return next((device for known, device in devices.items() if name == known or name.startswith(f"{known}_")), HOST)


def _found(pattern: re.Pattern[str], lines: Iterable[str]) -> Iterator[re.Match[str]]:
    return filter(None, map(pattern.search, lines))


def _bytes(mebibytes: str) -> int:
    return int(float(mebibytes) * MIB) + _ROUNDING


def _loaded(tensors: Iterable[Tensor], num_layers: int) -> list[Tensor]:
    """The tensors that are loaded: layers behind the last are for speculation (MTP)."""
    layers = ((tensor, _LAYER.match(tensor.name)) for tensor in tensors)
    return [tensor for tensor, layer in layers if layer is None or int(layer[1]) < num_layers]


def _num_expert_layers(tensors: Sequence[Tensor]) -> int:
    """Layers up to the last one with experts: `--n-cpu-moe` counts from the first layer."""
    layers = (_LAYER.match(tensor.name) for tensor in tensors if _EXPERTS.search(tensor.name))
    return max((int(layer[1]) + 1 for layer in layers if layer), default=0)
