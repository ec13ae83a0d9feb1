"""What the pictures of a conversation cost every later request of it, per megabyte of their files.

A client sends all of them with every turn. Each must be taken out of the body and known again; none is decoded.

    python -m lab.speed.pictures
"""

import base64
import io
import time
from collections.abc import Callable
from statistics import median

import msgspec
import numpy as np
from PIL import Image

from leftoff.picture import Pictures
from leftoff.server.request.fields import ChatRequest

_NUM_PICTURES = 20
_ROUNDS = 15
_MB = 1e6


def screenshot(number: int) -> bytes:
    """Noise below text-like lines, which takes about a megabyte as a PNG."""
    rng = np.random.default_rng(number)
    pixels = np.full((1080, 1920, 3), 250, np.uint8)
    pixels[::24, :, :] = 30
    pixels[:330] = rng.integers(0, 256, (330, 1920, 3), np.uint8) & 0b11101111
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def measure(num_pictures: int = _NUM_PICTURES, rounds: int = _ROUNDS) -> dict[str, float]:
    """Milliseconds of processor time per megabyte: what an old picture costs, and for comparison what else there is."""
    files = [screenshot(number) for number in range(num_pictures)]
    texts = ["data:image/png;base64," + base64.b64encode(file).decode() for file in files]
    parts = [{"type": "image_url", "image_url": {"url": text}} for text in texts]
    body = msgspec.json.encode({"messages": [{"role": "user", "content": parts}]})
    pictures = Pictures()
    for file in files:
        pictures.take(file).pixels()
    steps: dict[str, Callable[[], object]] = {
        "the JSON around it": lambda: msgspec.json.decode(body, type=ChatRequest),
        "an old one": lambda: [pictures.take(text) for text in texts],
        "decoding it": lambda: pictures.take(files[0]).pixels(),
    }
    sizes = dict.fromkeys(steps, sum(map(len, files)) / _MB) | {"decoding it": len(files[0]) / _MB}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.thread_time()
            step()
            times[name].append((time.thread_time() - start) * 1000 / sizes[name])
    return {name: median(found) for name, found in times.items()}


def main() -> None:
    """Prints each step."""
    for name, cost in measure().items():
        print(f"{name:20} {cost:7.3f} ms/MB")


if __name__ == "__main__":
    main()
