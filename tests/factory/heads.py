"""EAGLE-3 heads for the models of the factory, as real GGUF files; llama.cpp makes none from metadata.

A head attends to the embedding of the last token, and speaks with the output of its model: for a model in which that
embedding counts most, it is often right.
"""

from pathlib import Path

import numpy as np

from leftoff.engine import gguf

from .adapters import write_aside
from .architectures import RECIPES
from .cache import SMALL, folder, model_path
from .gguf import Floats, Tensor, Value
from .parts import Scale
from .projectors import Tensors, gguf_bytes
from .vocabulary import small_vocabulary
from .weights import Weights

# With the embeddings and the output of its model; with its own, of some tokens only; and one that is never right.
KINDS = ("shared", "own", "wrong")
LAYERS = (1, 2, 3)
_INNER = 128


def head_path(model: str, kind: str = "shared", scale: Scale = SMALL) -> Path:
    """The file of a head for a model of the factory, made now unless an earlier run has made it."""
    path = folder() / "heads" / f"{model_path(model, scale).stem}-{kind}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, head_bytes(model, kind, scale))
    return path


def head_bytes(model: str, kind: str, scale: Scale = SMALL) -> bytes:
    header = gguf.read_header(model_path(model, scale))
    width = next(tensor.shape[0] for tensor in header.tensors if tensor.name == "token_embd.weight")
    keys: dict[str, Value] = {
        "context_length": 4096,
        "embedding_length": width,
        "block_count": 1,
        "feed_forward_length": _INNER,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
        "attention.key_length": width // 2,
        "attention.value_length": width // 2,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": width // 2,
        "target_layers": list(LAYERS),
        "target_hidden_size": width,
        "vocab_size": header.num_tokens,
    }
    metadata = {"general.architecture": "eagle3"} | small_vocabulary().metadata()
    del metadata["tokenizer.ggml.token_type"]  # of signed numbers, and not needed
    metadata |= {f"eagle3.{key}": value for key, value in keys.items()}
    return gguf_bytes(metadata, {**_layer(width), **_spoken(model, kind, header.num_tokens, width)})


def _layer(width: int) -> dict[str, Floats]:
    rng = np.random.default_rng(0)

    def noise(rows: int, columns: int) -> Floats:
        return rng.standard_normal((rows, columns), np.float32) * np.float32(0.1 * columns**-0.5)

    ones, of_token = np.ones(width, np.float32), np.eye(width, 2 * width, dtype=np.float32)
    return {
        "fc.weight": noise(width, len(LAYERS) * width),
        "output_norm.weight": ones,
        "blk.0.attn_norm.weight": ones,
        "blk.0.attn_norm_2.weight": ones,
        "blk.0.ffn_norm.weight": ones,
        "blk.0.attn_q.weight": 2 * of_token,
        "blk.0.attn_k.weight": 2 * of_token,
        "blk.0.attn_v.weight": 4 * of_token,
        "blk.0.attn_output.weight": np.eye(width, dtype=np.float32),
        "blk.0.ffn_gate.weight": noise(_INNER, width),
        "blk.0.ffn_up.weight": noise(_INNER, width),
        "blk.0.ffn_down.weight": noise(width, _INNER),
    }


def _spoken(model: str, kind: str, num_tokens: int, width: int) -> Tensors:
    if kind == "shared":
        return {}
    words = np.array(small_vocabulary().words, np.int64)
    weights = Weights(small_vocabulary().words, RECIPES[model].embedding)
    embeddings, output = (
        weights.fill(Tensor(name, num_tokens, width)) for name in ("token_embd.weight", "output.weight")
    )
    guessed = np.roll(words, 1) if kind == "wrong" else words
    return {"token_embd.weight": embeddings, "output.weight": output[words], "d2t": guessed}
