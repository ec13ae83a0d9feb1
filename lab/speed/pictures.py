"""What the pictures of a conversation cost every later request of it, per megabyte of their files.

A client sends all of them with every turn. Each must be found in the body and known again; none is decoded. Measured
is processor time, from the bytes of the body to the picture that is known, in every dialect; and beside it the hash of
the same text alone, which nobody can do without, what any body of that size cost before, and what a new picture does.

    python -m lab.speed.pictures
"""

import asyncio
import base64
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import numpy as np
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import Message as AsgiMessage

from leftoff.picture import Picture, Pictures
from leftoff.server.anthropic.convert import MarkedMessages
from leftoff.server.anthropic.types import MessagesRequest
from leftoff.server.http.body import decoded, known_files_of
from leftoff.server.http.known_files import KnownFiles, fastest_hash
from leftoff.server.ollama.convert import messages_as_chat
from leftoff.server.ollama.types import OllamaChatRequest
from leftoff.server.request.content import picture_texts
from leftoff.server.request.fields import ChatRequest, Message
from leftoff.server.responses.convert import Items
from leftoff.server.responses.types import ResponsesRequest
from leftoff.server.tenant import Tenant

_NUM_PICTURES = 20
_ROUNDS = 15
_MB = 1e6
_RECEIVED_BYTES = 1 << 16  # at once, as from a socket
_NOBODY = Tenant.of("", bytes(32))


def screenshot(number: int, width: int = 1920, height: int = 1080) -> bytes:
    """Noise below text-like lines, which takes about a megabyte as a PNG."""
    rng = np.random.default_rng(number)
    pixels = np.full((height, width, 3), 250, np.uint8)
    pixels[::24, :, :] = 30
    noisy = height * 330 // 1080
    pixels[:noisy] = rng.integers(0, 256, (noisy, width, 3), np.uint8) & 0b11101111
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@dataclass(frozen=True)
class Way:
    """A dialect's body of base64 texts, its type, and the common messages that are made of it."""

    body: Callable[[Sequence[str]], dict[str, Any]]
    kind: type[Any]
    messages: Callable[[Any], list[Message]]


def _chat(texts: Sequence[str]) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}} for text in texts]
    return {"messages": [{"role": "user", "content": parts}]}


def _messages(texts: Sequence[str]) -> dict[str, Any]:
    sources = [{"type": "base64", "media_type": "image/png", "data": text} for text in texts]
    blocks = [{"type": "image", "source": source} for source in sources]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": blocks[1:]}
    return {"messages": [{"role": "user", "content": [blocks[0], result]}], "max_tokens": 4}


def _responses(texts: Sequence[str]) -> dict[str, Any]:
    parts = [{"type": "input_image", "image_url": f"data:image/png;base64,{text}"} for text in texts]
    return {"input": [{"role": "user", "content": parts}], "store": False}


def _ollama(texts: Sequence[str]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "", "images": [*texts]}]}


WAYS = {
    "chat completions": Way(_chat, ChatRequest, lambda body: body.messages),
    "Messages": Way(_messages, MessagesRequest, lambda body: MarkedMessages(body).messages),
    "Responses": Way(_responses, ResponsesRequest, lambda body: Items(body.input).messages),
    "Ollama": Way(_ollama, OllamaChatRequest, lambda body: messages_as_chat(body).messages),
}


class Door:
    """What stands between a body and the pictures in it, without a model."""

    def __init__(self) -> None:
        self.pictures = Pictures()
        self._known = KnownFiles()
        self._app = Starlette()
        self._app.state.known_files = self._known

    async def take(self, data: bytes, way: Way) -> list[Picture]:
        request = self._request(data)
        messages = way.messages(await decoded(request, data, way.kind))
        files, taken = known_files_of(request), []
        for text in (text for message in messages for text in picture_texts(message.content) if text):
            taken.append(self.pictures.take(files.get(text, text)))
            if text not in files:
                self._known.learn("", text, taken[-1].digest)
        return taken

    async def receive(self, data: bytes) -> int:
        return len(await self._request(data).body())

    def _request(self, data: bytes) -> Request:
        starts = iter(range(0, len(data), _RECEIVED_BYTES))

        async def receive() -> AsgiMessage:
            start = next(starts)
            end = start + _RECEIVED_BYTES
            return {"type": "http.request", "body": data[start:end], "more_body": end < len(data)}

        headers = [(b"content-length", str(len(data)).encode())]
        return Request({"type": "http", "app": self._app, "headers": headers, "state": {"tenant": _NOBODY}}, receive)


def measure(num_pictures: int = _NUM_PICTURES, rounds: int = _ROUNDS) -> dict[str, float]:
    """Milliseconds of processor time per megabyte of the files."""
    files = [screenshot(number) for number in range(num_pictures)]
    texts = [base64.b64encode(file) for file in files]
    with asyncio.Runner() as runner:
        door, steps = Door(), dict[str, Callable[[], object]]()
        for name, way in WAYS.items():
            body = msgspec.json.encode(way.body([text.decode() for text in texts]))
            runner.run(door.take(body, way))
            steps[name] = lambda body=body, way=way: runner.run(door.take(body, way))  # type: ignore[misc]
        assert door.pictures.num_decoded == num_pictures
        steps["the hash alone"] = lambda: [fastest_hash()(text) for text in texts]
        steps["receiving a body"] = lambda: runner.run(door.receive(body))
        steps["decoding a new one"] = lambda: door.pictures.take(files[0]).pixels()
        sizes = dict.fromkeys(steps, sum(map(len, files)) / _MB) | {"decoding a new one": len(files[0]) / _MB}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds):
            for name, step in steps.items():
                start = time.process_time()
                step()
                times[name].append((time.process_time() - start) * 1000 / sizes[name])
    return {name: median(found) for name, found in times.items()}


def main() -> None:
    """Prints each step."""
    for name, cost in measure().items():
        print(f"{name:20} {cost:7.3f} ms/MB")


if __name__ == "__main__":
    main()
