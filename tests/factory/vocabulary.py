"""A small real tokenizer: byte-level BPE over a few sentences, with ChatML's special tokens.

Any text round-trips, because every byte is a token. It does not know the model that uses it.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from .gguf import Value

TEXT = """
the river runs down from the hill to the town and on to the sea
a small boat waits under the old bridge while rain falls on the water
every morning the baker opens her shop and the smell of bread fills the street
children walk to school along the wall and count the birds in the garden
when winter comes snow covers the roof of each house and the light grows thin
an old man keeps a lamp in his window so that ships can find their way at night
people say he once crossed the whole world with only a map a dog and a song
she asked him where the road would end but he did not know the answer
they planted seven trees beside the field and gave each tree a name
some stories are short some are long and the best one has no end
please read this letter again before you send it to my friend in the city
use the right tool then tell me what you found and how much time it took
"""

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
# Around pictures and slices of them, as the projectors of several models write them.
PICTURES = (
    *("<|vision_start|>", "<|vision_end|>", "<start_of_image>", "<end_of_image>"),
    *("<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", "<fake_token_around_image>", "<global-img>"),
    *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
    *(f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 10 // row + 1)),
)

# Token types of the GGUF format.
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4

Word = tuple[str, ...]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Vocabulary:
    """Token texts by id: the bytes, then the merges, then the special tokens.

    `words` are the ids of whole words with their leading space. However they are strung together, the text they make
    is tokenized back into the same ids; with pieces of words it would not be.
    """

    tokens: tuple[str, ...]
    merges: tuple[Pair, ...]
    words: tuple[int, ...]

    def metadata(self) -> dict[str, Value]:
        """The GGUF keys that describe the tokenizer."""
        special = [_CONTROL] * len(CONTROL) + [_USER_DEFINED] * len(MARKERS) + [_CONTROL] * len(PICTURES)
        types = [_NORMAL] * (len(self.tokens) - len(special)) + special
        return {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": list(self.tokens),
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": [f"{left} {right}" for left, right in self.merges],
            "tokenizer.ggml.bos_token_id": self.tokens.index("<|endoftext|>"),
            "tokenizer.ggml.eos_token_id": self.tokens.index("<|im_end|>"),
            "tokenizer.ggml.add_bos_token": False,
        }


@cache
def small_vocabulary() -> Vocabulary:
    """The one vocabulary that every model of the factory shares."""
    alphabet = _byte_letters()
    words = Counter(_spell(f" {word}", alphabet) for word in TEXT.split())
    merges = tuple(_learn_merges(words))
    blank_line = 2 * alphabet[ord("\n")]  # which a projector asks for; no merge makes it
    tokens = (*alphabet, *(left + right for left, right in merges), blank_line, *CONTROL, *MARKERS, *PICTURES)
    whole_words = {"".join(word) for word in words}
    spoken = tuple(index for index, token in enumerate(tokens) if token in whole_words)
    return Vocabulary(tokens, merges, spoken)


def _byte_letters() -> list[str]:
    """A printable letter for each byte, as GPT-2 assigns them: unprintable bytes move up beyond 255."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    moved = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]


def _spell(text: str, alphabet: list[str]) -> Word:
    return tuple(alphabet[byte] for byte in text.encode())


def _learn_merges(counts: Counter[Word]) -> list[Pair]:
    """Merge the most frequent pair, again and again, until every word is one token."""
    spellings = {word: word for word in counts}
    merges: list[Pair] = []
    while pairs := _count_pairs(spellings, counts):
        # The pair itself breaks ties, so that the same text always gives the same merges.
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        spellings = {word: _merge(spelling, best) for word, spelling in spellings.items()}
    return merges


def _count_pairs(spellings: dict[Word, Word], counts: Counter[Word]) -> Counter[Pair]:
    pairs: Counter[Pair] = Counter()
    for word, spelling in spellings.items():
        for pair in pairwise(spelling):
            pairs[pair] += counts[word]
    return pairs


def _merge(spelling: Word, pair: Pair) -> Word:
    merged: list[str] = []
    for letter in spelling:
        if merged and (merged[-1], letter) == pair:
            merged[-1] += letter
        else:
            merged.append(letter)
    return tuple(merged)
