"""Where the weights of a model go and how they are read: llama.cpp's `llama_model_params`, checked and filled."""

import ctypes as C
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library
from leftoff.engine.devices import Device, all_devices, buffer_types, default_gpus
from leftoff.engine.errors import InputError

NO_DEVICE = "none"

# The weights of a layer's experts, by the names that llama.cpp gives them.
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_CPU = "CPU"


@dataclass(frozen=True)
class ModelSettings:
    """Placement of the weights on devices. The defaults put everything on GPUs, if there are any."""

    gpu_layers: int = -1  # all, if negative
    devices: tuple[str, ...] = ()  # all GPUs, if empty; none, if it is "none"
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    n_cpu_moe: int = 0
    cpu_moe: bool = False
    override_tensor: tuple[str, ...] = ()
    mmap: bool = True
    mlock: bool = False
    vocab_only: bool = field(default=False, repr=False)  # no weights: for the text of tokens
    no_weights: bool = field(default=False, repr=False)  # their shapes alone, beside the vocabulary
    no_texts: tuple[str, int] | None = field(default=None, repr=False)  # of an architecture with so many tokens
    mtp: bool = field(default=False, repr=False)  # with the next-token (MTP) layer; no state depends on it

    def used_devices(self, library: Library) -> tuple[Device, ...]:
        """The GPUs that layers may go to. Raises `InputError` if the settings do not fit the GPUs there are."""
        gpus = self._named_devices(all_devices(library)) if self.devices else default_gpus(library)
        return self.devices_among(gpus)

    def devices_among(self, gpus: Sequence[Device]) -> tuple[Device, ...]:
        """The used ones of these GPUs. Raises `InputError` if --tensor-split or --main-gpu do not fit their number."""
        names = ", ".join(device.name for device in gpus) or "none"
        if len(self.tensor_split) > len(gpus):
            shares = ",".join(f"{share:g}" for share in self.tensor_split)
            raise InputError(
                f"--tensor-split {shares}: {len(self.tensor_split)} shares for {len(gpus)} GPUs ({names}): "
                "give at most one for each"
            )
        if gpus and self.main_gpu >= len(gpus):
            raise InputError(f"--main-gpu {self.main_gpu}: there are {len(gpus)} GPUs ({names}), counted from 0")
        return (gpus[self.main_gpu],) if gpus and self.split_mode == "none" else tuple(gpus)

    def params(self, library: Library) -> abi.ModelParams:
        """The struct for llama.cpp. It holds what it points at, so it must live until the model is loaded."""
        params: abi.ModelParams = library.dll.llama_model_default_params()
        self.used_devices(library)
        params.n_gpu_layers = self.gpu_layers
        params.split_mode = abi.SPLIT_MODES[self.split_mode]
        params.main_gpu = self.main_gpu
        params.load_mtp = self.mtp
        params.vocab_only = self.vocab_only
        if self.no_weights:
            params.no_alloc, params.load_mode = True, abi.LOAD_READ
        elif not self.mmap:
            params.load_mode = abi.LOAD_READ_LOCKED if self.mlock else abi.LOAD_READ
        elif self.mlock:
            params.load_mode = abi.LOAD_MAPPED_LOCKED
        params.kept = []
        if self.devices:
            handles = [device.handle for device in self._named_devices(all_devices(library))]
            params.devices = _kept(params, (C.c_void_p * (len(handles) + 1))(*handles, None))
        if self.tensor_split:
            params.tensor_split = _kept(params, (C.c_float * library.dll.llama_max_devices())(*self.tensor_split))
        if self.no_texts is not None:
            params.kv_overrides = _kept(params, _without_texts(*self.no_texts))
        overrides = self._overrides(buffer_types(library))
        if overrides:
            params.tensor_buft_overrides = _kept(params, (abi.TensorOverride * (len(overrides) + 1))(*overrides))
        return params

    def _named_devices(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        if self.devices == (NO_DEVICE,):
            return ()
        gpus = {device.name: device for device in devices if device.kind != abi.DEVICE_CPU}
        unknown = [name for name in self.devices if name not in gpus]
        if unknown:
            there_are = f"there is {', '.join(gpus)}" if gpus else "this library has no device besides the CPU"
            raise InputError(f"--device {unknown[0]}: {there_are}; none means the CPU alone")
        return tuple(gpus[name] for name in self.devices)

    def _overrides(self, types: dict[str, int]) -> list[abi.TensorOverride]:
        """The buffer types of tensors by name. llama.cpp takes the first that matches."""
        overrides = []
        for override in self.override_tensor:
            pattern, _, name = override.partition("=")
            if name not in types:
                raise InputError(f"--override-tensor {override}: no buffer type {name}; there is {', '.join(types)}")
            overrides.append((pattern, name))
        if self.cpu_moe:
            overrides.append((EXPERTS, _CPU))
        if self.n_cpu_moe:
            overrides.append((rf"blk\.({'|'.join(map(str, range(self.n_cpu_moe)))}){EXPERTS}", _CPU))
        return [abi.TensorOverride(pattern.encode(), types[name]) for pattern, name in overrides]


def _without_texts(architecture: str, num_tokens: int) -> "C.Array[abi.KeyOverride]":
    """Keeps the number of tokens, but not their texts: they take a fifth of the time to load a model."""
    overrides = (abi.KeyOverride * 3)()
    overrides[0].kind, overrides[0].key, overrides[0].value.text = abi.OVERRIDE_TEXT, b"tokenizer.ggml.model", b"none"
    overrides[1].kind, overrides[1].value.number = abi.OVERRIDE_NUMBER, num_tokens
    overrides[1].key = f"{architecture}.vocab_size".encode()
    return overrides


def _kept(params: abi.ModelParams, array: C.Array[Any]) -> int:
    params.kept.append(array)
    return C.addressof(array)
