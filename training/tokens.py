"""The tokenizer: byte-level BPE with 8,192 tokens and Qwen3.5's way of splitting text.

python -m training.tokens trains it anew from the training text. The file in `tokenizer/` is what the shipped model
was trained with: its token ids are part of the model.
"""

from functools import cache
from itertools import islice
from typing import Any

from training.content import HERE

PATH = HERE / "tokenizer" / "tokenizer.json"
VOCABULARY = 8192
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
END_OF_TEXT, TURN_START, TURN_END, THINK = range(VOCABULARY - len(SPECIAL) - len(MARKS), VOCABULARY - len(MARKS) + 1)

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_NUM_DOCUMENTS = 40_000


@cache
def tokenizer() -> Any:  # noqa: ANN401
    from tokenizers import Tokenizer  # noqa: PLC0415

    return Tokenizer.from_file(str(PATH))


def train() -> None:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415

    from training.corpus import real_documents  # noqa: PLC0415
    from training.generate import documents  # noqa: PLC0415

    bpe = Tokenizer(models.BPE())
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(_SPLIT), "isolated"), bytes_only])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=END_OF_TEXT, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made_up = (document.text for document in islice(documents(seed=0), _NUM_DOCUMENTS))
    bpe.train_from_iterator((*real_documents(), *made_up), trainer)
    bpe.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, normalized=False) for token in MARKS])
    bpe.save(str(PATH))


if __name__ == "__main__":
    train()
