"""Tiny models whose vocabulary differs from the factory's: SentencePiece, and one that does not fall apart."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.factory import Scale, small_vocabulary
from tests.factory.gguf import Value, write_model
from tests.factory.parts import attention, body
from tests.factory.vocabulary import TEXT

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 1, 2, 3, 4, 6


def write_vocabulary(path: Path, tokenizer: Mapping[str, Value]) -> Path:
    """A model of one layer, for its tokenizer alone."""
    shape = {f"llama.{key}": value for key, value in (body(Scale(), layers=1) | attention(Scale())).items()}
    metadata: dict[str, Value] = {"general.architecture": "llama", **tokenizer, **shape}
    write_model(path, metadata, lambda tensor: np.zeros((tensor.rows, tensor.columns), np.float32))
    return path


def sentencepiece(path: Path) -> Path:
    """Spaces are letters, one is put before every text, and a prompt begins with a token of its own."""
    letters = sorted({*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ?!.,\n"})
    words = sorted({f"▁{word[:size]}" for word in TEXT.split() for size in range(1, len(word) + 1)}, key=len)
    tokens = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [_UNKNOWN, *[_CONTROL] * 4, *[_BYTE] * 256]
    merged = ["▁", *letters, *words]
    return write_vocabulary(
        path,
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens + merged,
            "tokenizer.ggml.scores": [0.0] * len(tokens) + [-float(index) for index in range(len(merged))],
            "tokenizer.ggml.token_type": types + [_NORMAL] * len(merged),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.ggml.add_space_prefix": True,
        },
    )


def inseparable(path: Path) -> Path:
    """Has a token that spans two control tokens, so that text cannot be taken apart at them."""
    metadata = small_vocabulary().metadata()
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    longer: dict[str, Value] = {
        "tokenizer.ggml.tokens": [*small_vocabulary().tokens, "<|im_end|><|im_end|>"],
        "tokenizer.ggml.token_type": [*map(int, types), _USER_DEFINED],
    }
    return write_vocabulary(path, metadata | longer)


def no_vocabulary(path: Path) -> Path:
    """Has token ids and no text for them, as llama.cpp converts a model that came without its tokenizer."""
    size = len(small_vocabulary().tokens)
    return write_vocabulary(path, {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": size})
