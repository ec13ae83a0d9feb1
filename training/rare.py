"""Collects rare words from the real text.

python -m training.rare writes them to `data/rare_words.txt`. The words of the held-out set are left out, so that the
evaluation asks for words the generator never uses.
"""

import re
from collections import Counter

from training.coined import RARE_WORDS, is_wanted
from training.content import heldout_content, training_content
from training.corpus import real_documents

_WORD = re.compile(r"(?<![A-Za-z'_/@.-])[A-Z]?[a-z]{2,12}(?![A-Za-z'_/@-])")
_SYSTEM = re.compile(r"<\|im_start\|>system.*?<\|im_end\|>", re.DOTALL)
_MAX_COMMON = 600


def heldout_words() -> set[str]:
    """The single words of every list that the held-out set replaces, in lower case."""
    own, trained = heldout_content(rephrased=False).words, training_content().words
    changed = [value for kind, values in own.items() if values != trained.get(kind) for value in values]
    return {word.lower() for value in changed for word in re.findall(r"[A-Za-z]+", value)}


def collect() -> list[str]:
    counts: Counter[str] = Counter()
    for document in real_documents():
        counts.update(_WORD.findall(_SYSTEM.sub("", document)))
    too_common = {word.lower() for word, _ in counts.most_common(_MAX_COMMON)}
    banned = too_common | heldout_words()
    common = [w for w, n in counts.items() if w.islower() and n >= 4 and counts[w.capitalize()] < n and len(w) > 3]
    proper = [w for w, n in counts.items() if not w.islower() and n >= 3 and counts[w.lower()] < n / 3]
    return sorted(word for word in common + proper if word.lower() not in banned and is_wanted(word))


if __name__ == "__main__":
    RARE_WORDS.write_text("\n".join(collect()) + "\n")
