"""Mutated pictures and documents: each is decoded, or refused by its name, and nothing is left of it.

python -m tests.behaviour.mutated_pictures 5000
"""

import argparse
import base64
import io
import random
import sys
import warnings
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from leftoff.picture import PictureError, Pictures
from tests.behaviour.bodies import picture_routes
from tests.behaviour.mutations import Mutated, mutated
from tests.pdfs import pdf

_SIDE = 40


@cache
def files() -> tuple[bytes, ...]:
    """Pictures of all kinds that are taken, and documents."""
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [noise, noise.transpose(Image.Transpose.ROTATE_90)]
    several = {"save_all": True, "append_images": frames[1:]}
    kinds: list[tuple[str, str, Any]] = [
        *(("PNG", mode, {}) for mode in ("RGB", "RGBA", "P", "L", "LA", "1", "I;16")),
        *(("JPEG", mode, {}) for mode in ("RGB", "L", "CMYK")),
        *(("JPEG", "RGB", more) for more in ({"progressive": True}, {"exif": exif.tobytes()}, {"dpi": (1, 9)})),
        *(("GIF", "P", {}), ("GIF", "P", several), ("PNG", "RGB", several), ("WEBP", "RGB", several)),
        *(("WEBP", "RGBA", {"lossless": True}), ("WEBP", "RGB", {"quality": 40}), ("BMP", "RGB", {}), ("BMP", "P", {})),
    ]
    return (*(_saved(noise, *kind) for kind in kinds), pdf("one"), pdf("two", "three"))


def _saved(image: Image.Image, kind: str, mode: str, options: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    image.convert("L" if mode == "I;16" else mode).convert(mode).save(file, kind, **options)
    return file.getvalue()


def mutated_file(seed: int, number: int) -> bytes:
    """File `number` of a seed."""
    rng = random.Random(f"file {seed}/{number}")
    data = bytearray(rng.choice(files()))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 8))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 16, 200))
        match rng.randrange(8):
            case 0:
                del data[at:]
            case 1:
                del data[at : at + size]
            case 2:
                data[at : at + size] = rng.randbytes(size)
            case 3:
                data[at:at] = data[at : at + size] * rng.choice((1, 3, 100))
            case 4:
                data[at : at + size] = rng.choice((b"\x00", b"\xff", b"\x7f")) * size
            case 5:  # the header, where sizes and kinds are
                at = rng.randrange(min(len(data), 64) + 1)
                data[at : at + 1] = rng.randbytes(1)
            case 6:
                data[at:] = rng.choice(files())[at:]
            case 7:
                at = rng.randrange(min(len(data), 64) + 1)
                large = rng.choice((2**31 - 1, 2**32 - 1, 0, 65_535, 100_000)).to_bytes(4, "big")
                data[at : at + 4] = rng.choice((large, large[::-1]))
        data = data or bytearray(b"\0")
    return bytes(data)


def with_picture(seed: int, number: int) -> Mutated:
    """Request `number` of a seed, with a file that is mutated, too."""
    return mutated(seed, number, picture_routes(base64.b64encode(mutated_file(seed, number)).decode()))


def decoded(seed: int, numbers: range) -> Counter[str]:
    """What became of each file."""
    pictures, found = Pictures(), Counter[str]()
    for number in numbers:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Pillow's, on strange files
                pixels = pictures.take(mutated_file(seed, number)).pixels()
            found["decoded" if pixels.ndim == 3 and pixels.dtype == np.uint8 else "wrong"] += 1
        except PictureError as error:
            found["refused" if str(error).startswith("the image ") else "wrong"] += 1
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, nargs="?", default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = decoded(options.seed, range(options.number))
    print(dict(found))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
