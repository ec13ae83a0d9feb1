"""Guesses from hidden states, by a next-token layer or a head: asked for, and played beside an engine without them."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from leftoff.engine.context import ContextSettings
from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.model_settings import ModelSettings
from leftoff.types import Logits, Tokens
from tests.engine.scenario import fork, read, save
from tests.factory import MTP, model_path, small_vocabulary
from tests.factory.heads import head_path

NUM_STEPS, MOST = 24, 3
MTP_SETTINGS = ContextSettings(num_cells=1024, num_sequences=3, threads=1)
EAGLE_SETTINGS = ContextSettings(num_cells=1024, num_sequences=3, threads=1, batch_tokens=128, micro_batch_tokens=32)
HEAD_DEVICES = ModelSettings(gpu_layers=0)


@contextmanager
def with_layer() -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(MTP), MTP_SETTINGS, model_settings=ModelSettings(mtp=True)) as engine:
        yield engine


@contextmanager
def with_head(architecture: str, kind: str = "shared") -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(architecture), EAGLE_SETTINGS) as engine:
        engine.head = EagleContext(engine.context, engine.memory.replaced, head_path(architecture, kind), HEAD_DEVICES)
        yield engine


def words(num_tokens: int, seed: int = 1) -> Tokens:
    return np.random.default_rng(seed).choice(small_vocabulary().words, num_tokens).astype(np.int32)


def guess(engine: LlamaEngine, token: int, seq: int = 0, most: int = MOST) -> list[int]:
    assert engine.head is not None
    return engine.head.draft(seq, np.array([token], np.int32), engine.memory.length(seq), most)


def play_beside(engine: LlamaEngine, plain: LlamaEngine, logits: Logits) -> int:
    """Decodes and verifies drafts of `engine` in both, from these logits on: their states have the same bytes.

    Returns how many guesses were right, of `MOST` in each of `NUM_STEPS`.
    """
    following, num_right = [int(logits.argmax())], 0
    for _ in range(NUM_STEPS):
        assert engine.head is not None
        sure = np.array(following, np.int32)
        drafted = engine.head.draft(0, sure, engine.memory.length(0), MOST)
        most = len(drafted)
        assert most == MOST
        work = Work(0, np.concatenate([sure, np.array(drafted, np.int32)]), num_drafted=most)
        (row,) = engine.decode([work])
        plain.decode([work])
        chosen = [int(engine.logits(row - most + index).argmax()) for index in range(most + 1)]
        right = next((index for index in range(most) if chosen[index] != drafted[index]), most)
        num_right += right
        num_held = engine.settle(work, sure.size + right)
        assert plain.settle(work, sure.size + right) == num_held
        following = [*work.tokens[num_held : sure.size + right].tolist(), chosen[right]]
    assert save(engine, 0).content == save(plain, 0).content
    plain.decode([Work(0, words(1))])
    assert save(engine, 0).content != save(plain, 0).content, "the control: one token more shows"
    return num_right


def restore_and_drop(engine: LlamaEngine, tokens: Tokens) -> None:
    """A sequence that is restored has no hidden states, until a token is decoded; one that is dropped has no more."""
    read(engine, 0, tokens)
    fork(engine.memory, 0, 1, tokens.size)
    assert guess(engine, int(tokens[0]), seq=1) == []
    assert guess(engine, int(tokens[0]), seq=0) != []
    fork(engine.memory, 0, 1, tokens.size)
    read(engine, 1, tokens[:1])
    assert guess(engine, int(tokens[1]), seq=1) != [], "it begins with the first token that is decoded"
    engine.memory.drop(0)
    assert guess(engine, int(tokens[0]), seq=0) == []
    engine.memory.drop(1)
