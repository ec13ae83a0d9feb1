"""The text of what the disk cache holds: its tokens, decoded with the vocabulary of the model file they came from."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

from leftoff.blobs.path_hash import as_tokens
from leftoff.cache.tree import common_prefix
from leftoff.disk.folder import noted_model
from leftoff.disk.rebuild import Branch
from leftoff.disk.tools.models import ModelUsage
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.vocabulary import Vocabulary
from leftoff.errors import LeftoffError
from leftoff.types import Tokens
from leftoff.units import one_line

_MARK = re.compile(r"<\|[^|>]{0,40}\|>")  # of templates
_LEAD_TOKENS = 16
_EXCERPT_TOKENS = 48
_EXCERPT_CHARACTERS = 100


@contextmanager
def vocabulary_of(path: Path) -> Iterator[Vocabulary]:
    """The vocabulary of a model file, whose weights are not loaded."""
    model = Model(path, ModelSettings(gpu_layers=0, vocab_only=True))
    try:
        yield model.vocabulary
    finally:
        model.close()


def text_of(usage: ModelUsage, tokens: Tokens, given: Path | None) -> str:
    """The text of a path, by a model file that was given or the one it came from; empty if that is gone."""
    path = given or noted_model(usage.path)
    try:
        with vocabulary_of(path) if path else nullcontext() as vocabulary:
            return vocabulary.text(tokens) if vocabulary else ""
    except LeftoffError:
        if given:
            raise
        return ""


def excerpts(usage: ModelUsage, branches: Sequence[Branch]) -> Mapping[str, str]:
    """For each branch, by the name of its tip, the words in which it differs from others; none without the model."""
    path = noted_model(usage.path)
    if path is None or not branches:
        return {}
    content = {branch.tip.name: branch.tokens for branch in branches}
    try:
        with vocabulary_of(path) as vocabulary:
            return {
                name: _excerpt(vocabulary, as_tokens(content[name]), fork) for name, fork in _forks(content).items()
            }
    except LeftoffError:  # the file is no longer what it was
        return {}


def _forks(content: Mapping[str, bytes]) -> dict[str, int]:
    """For each path, the position where it leaves the one that it shares most with: sorted, that is a neighbour."""
    forks = dict.fromkeys(content, 0)
    for one, other in pairwise(sorted(content, key=content.__getitem__)):
        shared = common_prefix(as_tokens(content[one]), as_tokens(content[other]))
        forks |= {one: max(forks[one], shared), other: max(forks[other], shared)}
    return forks


def _excerpt(vocabulary: Vocabulary, tokens: Tokens, fork: int) -> str:
    start = min(fork, max(0, tokens.size - _LEAD_TOKENS))  # one may be the beginning of another
    lead = vocabulary.text(tokens[max(0, start - _LEAD_TOKENS) : start]).rpartition("\n")[2]
    words = vocabulary.text(tokens[start : start + _EXCERPT_TOKENS])
    return one_line(_MARK.sub(" ", lead + words))[:_EXCERPT_CHARACTERS]
