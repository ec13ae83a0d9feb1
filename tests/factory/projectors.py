"""Tiny random projectors for pictures, as real GGUF files: the least that llama.cpp accepts of some kinds.

Of random weights, embeddings are noise that depends on every pixel: a picture in the wrong place shows.
"""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .cache import folder
from .gguf import Floats, Value

KINDS = ("qwen3vl_merger", "gemma3", "lfm2", "idefics3")

_WIDTH, _HEADS, _LAYERS, _INNER, _PATCH, _SIZE = 64, 2, 2, 128, 16, 128
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_ALIGNMENT = 32
_KINDS = {np.dtype(np.float32): 0, np.dtype(np.int64): 27}  # ggml's numbers of types

Tensors = Mapping[str, Floats | npt.NDArray[np.int64]]


def projector_path(kind: str, width: int, seed: int = 0) -> Path:
    """The file of a projector for a model of this width, made now unless an earlier run has made it.

    In a folder of its own: beside the models, it would be found and used by all of them.
    """
    path = folder() / "projectors" / f"mmproj-{kind}-{width}-{seed}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_projector(path, kind, width, seed)
    return path


def write_projector(path: Path, kind: str, width: int, seed: int = 0) -> None:
    size = 2 * _SIZE if kind == "gemma3" else _SIZE
    metadata: dict[str, Value] = {
        "general.architecture": "clip",
        "clip.has_vision_encoder": True,
        "clip.projector_type": kind,
        "clip.use_gelu": True,
        "clip.vision.embedding_length": _WIDTH,
        "clip.vision.attention.head_count": _HEADS,
        "clip.vision.feed_forward_length": _INNER,
        "clip.vision.block_count": _LAYERS,
        "clip.vision.projection_dim": width,
        "clip.vision.attention.layer_norm_epsilon": 1e-6,
        "clip.vision.image_size": size,
        "clip.vision.patch_size": _PATCH,
        "clip.vision.image_mean": [0.5, 0.5, 0.5],
        "clip.vision.image_std": [0.5, 0.5, 0.5],
    }
    rng = np.random.default_rng(seed)
    tensors = _encoder(rng, kind, size)
    metadata |= _add_head(rng, kind, width, tensors)
    # written aside and renamed: another process sees the whole file or none
    unfinished = path.with_suffix(f".{seed}.part")
    unfinished.write_bytes(gguf_bytes(metadata, tensors))
    unfinished.replace(path)


def _encoder(rng: np.random.Generator, kind: str, size: int) -> dict[str, Floats]:
    tensors: dict[str, Floats] = {
        "v.patch_embd.weight": _weights(rng, _WIDTH, 3, _PATCH, _PATCH) / np.float32(4),
        "v.patch_embd.bias": _bias(rng, _WIDTH),
        "v.position_embd.weight": _weights(rng, (size // _PATCH) ** 2, _WIDTH),
        "v.post_ln.weight": np.ones(_WIDTH, np.float32),
        "v.post_ln.bias": _bias(rng, _WIDTH),
    }
    for layer in range(_LAYERS):
        shapes = {"attn_out": (_WIDTH, _WIDTH), "ffn_up": (_INNER, _WIDTH), "ffn_down": (_WIDTH, _INNER)}
        if kind == "qwen3vl_merger":
            shapes["attn_qkv"] = (3 * _WIDTH, _WIDTH)
        else:
            shapes |= {f"attn_{name}": (_WIDTH, _WIDTH) for name in "qkv"}
        for name, shape in shapes.items():
            tensors[f"v.blk.{layer}.{name}.weight"] = _weights(rng, *shape)
            tensors[f"v.blk.{layer}.{name}.bias"] = _bias(rng, shape[0])
        for name in ("ln1", "ln2"):
            tensors[f"v.blk.{layer}.{name}.weight"] = np.ones(_WIDTH, np.float32)
            tensors[f"v.blk.{layer}.{name}.bias"] = _bias(rng, _WIDTH)
    return tensors


def _add_head(rng: np.random.Generator, kind: str, width: int, tensors: dict[str, Floats]) -> Mapping[str, Value]:
    """The layers between the encoder and the model, and the metadata that goes with them."""
    match kind:
        case "qwen3vl_merger":  # 2 x 2 patches become one token; M-RoPE
            tensors["v.patch_embd.weight.1"] = _weights(rng, _WIDTH, 3, _PATCH, _PATCH) / np.float32(4)
            _add_layers(rng, tensors, {"mm.0": (4 * _WIDTH, 4 * _WIDTH), "mm.2": (width, 4 * _WIDTH)})
            return {"clip.vision.spatial_merge_size": 2}
        case "gemma3":  # pictures of one size, not causal
            tensors["mm.input_projection.weight"] = _weights(rng, _WIDTH, width)
            tensors["mm.soft_emb_norm.weight"] = np.ones(_WIDTH, np.float32)
            return {}
        case "lfm2":  # pictures of any size
            _add_layers(rng, tensors, {"mm.1": (2 * _WIDTH, 4 * _WIDTH), "mm.2": (width, 2 * _WIDTH)})
            return {"clip.vision.projector.scale_factor": 2}
        case "idefics3":  # tiles
            tensors["mm.model.fc.weight"] = _weights(rng, width, 4 * _WIDTH)
            return {"clip.vision.projector.scale_factor": 2, "clip.vision.preproc_image_size": 2 * _SIZE}
    raise ValueError(kind)


def _add_layers(rng: np.random.Generator, tensors: dict[str, Floats], shapes: Mapping[str, tuple[int, int]]) -> None:
    for name, shape in shapes.items():
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = _weights(rng, *shape), _bias(rng, shape[0])


def _weights(rng: np.random.Generator, *shape: int) -> Floats:
    return rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)


def _bias(rng: np.random.Generator, size: int) -> Floats:
    return rng.standard_normal(size, np.float32) * np.float32(0.1)


def gguf_bytes(metadata: Mapping[str, Value], tensors: Tensors) -> bytes:
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_text(name) + _value(value) for name, value in metadata.items()]
    offset = 0
    for name, tensor in tensors.items():
        shape = struct.pack(f"<I{tensor.ndim}Q", tensor.ndim, *reversed(tensor.shape))
        head.append(_text(name) + shape + struct.pack("<IQ", _KINDS[tensor.dtype], offset))
        offset += len(_padded(tensor.tobytes()))
    return _padded(b"".join(head)) + b"".join(_padded(tensor.tobytes()) for tensor in tensors.values())


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case int():
            return struct.pack("<II", _UINT32, value)
        case float():
            return struct.pack("<If", _FLOAT32, value)
        case str():
            return struct.pack("<I", _STRING) + _text(value)
    if all(isinstance(each, str) for each in value):
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(_text(str(each)) for each in value)
    if all(type(each) is int for each in value):
        return struct.pack(f"<IIQ{len(value)}I", _ARRAY, _UINT32, len(value), *value)
    return struct.pack(f"<IIQ{len(value)}f", _ARRAY, _FLOAT32, len(value), *map(float, value))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)
