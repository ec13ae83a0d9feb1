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
    return write_vocabulary(path, _with_more("<|im_end|><|im_end|>"))


def with_long_token(path: Path, num_spaces: int = 500) -> Path:
    """One token of hundreds of spaces, as models of program text have, makes the longest token say little."""
    return write_vocabulary(path, _with_more(" " * num_spaces))


def _with_more(*tokens: str) -> dict[str, Value]:
    metadata = small_vocabulary().metadata()
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    return metadata | {
        "tokenizer.ggml.tokens": [*small_vocabulary().tokens, *tokens],
        "tokenizer.ggml.token_type": [*map(int, types), *[_USER_DEFINED] * len(tokens)],
    }


def stripping(path: Path) -> Path:
    """Its control tokens swallow the white space after them: llama.cpp knows these models by their name."""
    return write_vocabulary(path, {"general.name": "phi-3", **_with_more("<s>", "</s>", "<unk>")})


def forgetful(path: Path) -> Path:
    """Lacks a byte: the letters that need it come to nothing."""
    metadata = small_vocabulary().metadata()
    lost = _spelled("é"[0].encode()[-1:])
    tokens = [token if token != lost else "lost" for token in small_vocabulary().tokens]
    return write_vocabulary(path, metadata | {"tokenizer.ggml.tokens": tokens})


def _spelled(data: bytes) -> str:
    return "".join(small_vocabulary().tokens[byte] for byte in data)


def no_vocabulary(path: Path) -> Path:
    """Has token ids and no text for them, as llama.cpp converts a model that came without its tokenizer."""
    size = len(small_vocabulary().tokens)
    return write_vocabulary(path, {"tokenizer.ggml.model": "no_vocab", "llama.vocab_size": size})
