"""Pairs of a model and a projector, pictures to look at, and prompts of text and pictures for an engine."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.vision.projector import ImageChunk, Pixels, Projector
from leftoff.picture_tokens import picture_tokens
from leftoff.types import Embeddings, Logits, Tokens
from tests.factory import model_path
from tests.factory.projectors import projector_path

# With M-RoPE, without causality and with a window, with a state, with slices, with state and window, attention alone.
PAIRS = (
    ("qwen35", "qwen3vl_merger"),
    ("gemma3", "gemma3"),
    ("lfm2", "lfm2"),
    ("nemotron_h", "idefics3"),
    ("lfm2-window", "lfm2"),
    ("llama", "idefics3"),
)
WIDTH = 64  # of the models
# On a grid, so that cells are laid anew where a picture ends: then pieces of any size are added up in the same order.
SETTINGS = ContextSettings(num_cells=2048, num_sequences=3, threads=1, grid=64)

Piece = tuple[Tokens, Embeddings | None]
Opened = tuple[LlamaEngine, Projector]


@contextmanager
def opened(architecture: str, kind: str, settings: ContextSettings = SETTINGS) -> Iterator[Opened]:
    with LlamaEngine.open(model_path(architecture), settings) as engine:
        projector = Projector(projector_path(kind, WIDTH), engine.model)
        try:
            yield engine, projector
        finally:
            projector.close()


def pixels(seed: int, width: int = 130, height: int = 100) -> Pixels:
    return np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)


def picture(projector: Projector, seed: int, width: int = 130, height: int = 100) -> list[Piece]:
    """The tokens of a picture, in pieces that are decoded one by one."""
    encoded = iter(projector.encode(pixels(seed, width, height)))
    pieces: list[Piece] = []
    for number, chunk in enumerate(projector.layout(width, height).chunks):
        if isinstance(chunk, ImageChunk):
            key = f"{seed} {width} {height} {number}".encode()
            pieces.append((picture_tokens(key, chunk.num_tokens, chunk.num_positions), next(encoded)))
        else:
            pieces.append((np.array(chunk, np.int32), None))
    return pieces


def read_pieces(engine: LlamaEngine, seq: int, pieces: Sequence[Piece]) -> Logits:
    for tokens, embeddings in pieces:
        (row,) = engine.decode([Work(seq, tokens, picture=embeddings)])
    return engine.logits(row).copy()


def tokens_of(pieces: Sequence[Piece]) -> Tokens:
    return np.concatenate([tokens for tokens, _ in pieces])
