"""The tokenizer: byte-level BPE with 8,192 tokens and Qwen3.5's way of splitting text.

A word splits the same way with and without a space before it: `ĠE|ston|ian`, `E|ston|ian`. So a word that is read in
a sentence and said in quotation marks, as in a tool call, is copied piece by piece. Pieces of words are learned without
spaces, and the space joins the first piece last.

python -m training.tokens trains it anew from the training text. The file in `tokenizer/` is what the shipped model
was trained with: its token ids are part of the model.
"""

import json
import re
from collections import Counter
from functools import cache
from itertools import islice, pairwise
from typing import Any

from training.content import HERE

PATH = HERE / "tokenizer" / "tokenizer.json"
VOCABULARY = 8192
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
END_OF_TEXT, TURN_START, TURN_END, THINK = range(VOCABULARY - len(SPECIAL) - len(MARKS), VOCABULARY - len(MARKS) + 1)

_LETTERS = r"[\p{L}\p{M}]+"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"  # what Qwen leaves with a word: a space, mostly
_BEFORE_BUT_SPACE = r"[^ \r\n\p{L}\p{N}]?"
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _BEFORE + _LETTERS + r"|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_SPACE = "Ġ"
_NUM_PIECES = 5100  # without a space; the rest of the vocabulary are pieces with one
_NUM_DOCUMENTS = 40_000
_COUNTED_EVERY = 4


@cache
def tokenizer() -> Any:  # noqa: ANN401
    from tokenizers import Tokenizer  # noqa: PLC0415

    return Tokenizer.from_file(str(PATH))


@cache
def beginnings() -> tuple[str, ...]:
    """The pieces that words begin with, as far as they are letters, of the tokenizer that is there."""
    vocabulary = json.loads(PATH.read_text())["model"]["vocab"] if PATH.exists() else ()
    pieces = (token[1:] for token in vocabulary if token.startswith(_SPACE))
    return tuple(piece for piece in pieces if piece.isascii() and piece.isalpha())


def train() -> None:
    from tokenizers import AddedToken, Tokenizer  # noqa: PLC0415

    texts = _texts()
    pieces = _train_pieces(texts)
    file = json.loads(pieces.to_str())
    file["pre_tokenizer"] = json.loads(_bpe(_SPLIT).to_str())["pre_tokenizer"]
    _join_spaces(file["model"], _first_pieces(pieces, texts[::_COUNTED_EVERY]))
    bpe = Tokenizer.from_str(json.dumps(file))
    bpe.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, normalized=False) for token in MARKS])
    bpe.save(str(PATH))


def _texts() -> list[str]:
    """What the model reads, without the tokens that are no text."""
    from training.corpus import real_documents  # noqa: PLC0415
    from training.generate import documents  # noqa: PLC0415

    marks = re.compile("|".join(map(re.escape, SPECIAL + MARKS)))
    made_up = (document.text for document in islice(documents(seed=0), _NUM_DOCUMENTS))
    return [part for text in (*real_documents(), *made_up) for part in marks.split(text) if part.strip()]


def _bpe(split: str) -> Any:  # noqa: ANN401
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415

    bpe = Tokenizer(models.BPE())
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), bytes_only])
    bpe.decoder = decoders.ByteLevel()
    return bpe


def _train_pieces(texts: list[str]) -> Any:  # noqa: ANN401
    """Of words cut off from the space before them."""
    from tokenizers import pre_tokenizers, trainers  # noqa: PLC0415

    bpe = _bpe(_SPLIT.replace(_BEFORE, _BEFORE_BUT_SPACE))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=_NUM_PIECES, initial_alphabet=alphabet, show_progress=False)
    )
    return bpe


def _first_pieces(pieces: Any, texts: list[str]) -> list[str]:  # noqa: ANN401
    """The pieces that words begin with after a space, the most frequent first."""
    counts: Counter[str] = Counter()
    for start in range(0, len(texts), 1000):
        for encoded in pieces.encode_batch(texts[start : start + 1000], add_special_tokens=False):
            counts.update(after for before, after in pairwise(encoded.tokens) if before == _SPACE)
    return [piece for piece, _ in counts.most_common() if piece[0].isalpha()]


def _join_spaces(model: dict[str, Any], firsts: list[str]) -> None:
    """Adds the merges of a space and a piece, after all others, until the vocabulary is full."""
    vocabulary: dict[str, int] = model["vocab"]
    for piece in firsts[: END_OF_TEXT - len(vocabulary)]:
        vocabulary[_SPACE + piece] = len(vocabulary)
        model["merges"].append([_SPACE, piece])
    if len(vocabulary) != END_OF_TEXT:
        raise ValueError(f"{len(vocabulary)} tokens: {END_OF_TEXT} are wanted")


if __name__ == "__main__":
    train()
