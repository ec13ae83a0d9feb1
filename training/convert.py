"""Turns trained parameters into a GGUF file.

python -m training.convert CHECKPOINT.npz MODEL.gguf needs numpy alone. Parameters bear the names of their tensors
already; some numbers are stored in another form.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from training import gguf
from training.content import HERE
from training.gguf import Floats, Value
from training.shape import EPSILON, ROPE_BASE, VOCABULARY, Shape
from training.tokens import END_OF_TEXT, PATH, SPECIAL, TURN_END

NAME = "leftoff-tiny"
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4  # llama.cpp's types of tokens
_MOSTLY_Q8_0, _ALL_F32 = 7, 0
_NOT_WEIGHTS = {"ssm_a": "", "ssm_dt": ".bias"}


def convert(parameters: Mapping[str, Floats], shape: Shape, path: Path, *, quantise: bool = True) -> None:
    tensors = dict(_tensor(name, values) for name, values in parameters.items())
    kind = _MOSTLY_Q8_0 if quantise else _ALL_F32
    gguf.write(path, _metadata(shape) | _vocabulary() | {"general.file_type": kind}, tensors, quantise=quantise)


def _tensor(name: str, values: Floats) -> tuple[str, Floats]:
    part = name.rpartition(".")[2]
    if part.endswith("_norm") and part != "ssm_norm":
        values = values + 1  # trained around zero
    elif part == "ssm_a":
        values = -np.exp(values)
    return name + _NOT_WEIGHTS.get(part, ".weight"), np.asarray(values, np.float32)


def _metadata(shape: Shape) -> dict[str, Value]:
    half = shape.rotated // 2
    sections = [-(-half // 3), -(-half // 3), half - 2 * -(-half // 3), 0]
    sizes: dict[str, Value] = {
        "block_count": shape.num_layers,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.num_heads,
        "attention.head_count_kv": shape.num_kv_heads,
        "attention.key_length": shape.head_size,
        "attention.value_length": shape.head_size,
        "attention.layer_norm_rms_epsilon": EPSILON,
        "attention.recurrent_layers": [not shape.has_attention(layer) for layer in range(shape.num_layers)],
        "full_attention_interval": shape.attention_interval,
        "rope.dimension_count": shape.rotated,
        "rope.dimension_sections": sections,
        "rope.freq_base": ROPE_BASE,
        "ssm.conv_kernel": 4,
        "ssm.state_size": shape.delta_size,
        "ssm.group_count": shape.num_delta_heads,
        "ssm.time_step_rank": shape.num_delta_heads,
        "ssm.inner_size": shape.delta_width,
    }
    general: dict[str, Value] = {
        "general.architecture": "qwen35",
        "general.type": "model",
        "general.name": NAME,
        "general.license": "cc-by-sa-4.0",
        "general.sampling.temp": 0.3,  # at the usual 0.8, words that it rarely met turn into others
        "general.sampling.min_p": 0.1,
        "general.quantization_version": 2,
    }
    return general | {f"qwen35.{key}": value for key, value in sizes.items()}


def _vocabulary() -> dict[str, Value]:
    """The tokenizer's file, in GGUF's terms."""
    file = json.loads(PATH.read_text())
    ids: dict[str, int] = file["model"]["vocab"] | {token["content"]: token["id"] for token in file["added_tokens"]}
    added = {token["content"] for token in file["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    if len(tokens) != VOCABULARY:
        raise ValueError(f"{PATH} has {len(tokens)} tokens: the model has {VOCABULARY}")
    kinds = [_CONTROL if token in SPECIAL else _USER_DEFINED if token in added else _NORMAL for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in file["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": END_OF_TEXT,
        "tokenizer.ggml.eos_token_id": TURN_END,
        "tokenizer.ggml.padding_token_id": END_OF_TEXT,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": (HERE / "chat_template.jinja").read_text(),
    }


def main() -> None:
    checkpoint, path = map(Path, sys.argv[1:])
    with np.load(checkpoint) as parameters:
        convert({name: parameters[name].astype(np.float32) for name in parameters.files}, Shape(), path)


if __name__ == "__main__":
    main()
