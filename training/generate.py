"""The synthetic part of the training text: python -m training.generate [SEED [COUNT]] prints some of it."""

import sys
from collections.abc import Iterator

from training.content import training_content
from training.draw import Draw
from training.scenes import make_chat
from training.thinking import Document, finish


def documents(seed: int) -> Iterator[Document]:
    """Conversations without end; the same ones for the same seed."""
    draw = Draw(seed, training_content())
    while True:
        yield finish(draw, make_chat(draw))


def main() -> None:
    seed, count = (int(text) for text in (*sys.argv[1:], *("1", "5")[len(sys.argv) - 1 :])[:2])
    for _, document in zip(range(count), documents(seed), strict=False):
        print(document.text)


if __name__ == "__main__":
    main()
