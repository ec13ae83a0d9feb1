"""Small pictures, as the files that clients send."""

import io

import numpy as np
from PIL import Image

from leftoff.picture import Pictures


def png(color: str, side: int = 4) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side), color).save(file, "PNG")
    return file.getvalue()


def black(side: int) -> bytes:
    """Of one bit for each pixel: it is soon made, however large."""
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    return file.getvalue()


def marker(data: bytes) -> str:
    return Pictures().take(data).marker


def noise(number: int, side: int = 96) -> bytes:
    """Another picture for each number."""
    pixels = np.random.default_rng(number).integers(0, 256, (side // 12, side // 12, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(np.kron(pixels, np.ones((12, 12, 1), np.uint8))).save(file, "PNG")
    return file.getvalue()
