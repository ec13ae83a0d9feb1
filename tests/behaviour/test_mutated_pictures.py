"""Mutated pictures are decoded or refused; `python -m tests.behaviour.mutated_pictures 5000` is the long version."""

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from PIL import Image

from leftoff.picture import Pictures, kind_of
from tests.behaviour.mutated import held_mib, send_all, server_of_ours
from tests.behaviour.mutated_pictures import decoded, files, with_picture
from tests.cli.running import Server
from tests.factory.projectors import projector_path
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """With a model that sees."""
    with server_of_ours(None, "--mmproj", str(projector_path("qwen3vl_merger", 64))) as server:
        yield server


def test_the_files_themselves_are_pictures() -> None:
    pictures = [data for data in files() if not data.startswith(b"%PDF")]
    assert {kind_of(data) for data in pictures} == {"PNG", "JPEG", "GIF", "WEBP", "BMP"}
    for data in pictures:
        assert Pictures().take(data).pixels().shape == (40, 40, 3)


def test_three_hundred_files() -> None:
    found = decoded(seed=1, numbers=range(300))
    assert found["wrong"] == 0
    assert min(found["decoded"], found["refused"]) > 50


def _noise(number: int, width: int, height: int) -> str:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def test_large_pictures_leave_little_behind(server: Server) -> None:
    """With a heap for each thread it would be 80 MiB, and not 28: the projector's buffers, and what is cached."""
    with (
        httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http,
        ThreadPoolExecutor(4) as clients,
    ):

        def show(number: int, width: int) -> int:
            image = {"type": "image_url", "image_url": {"url": _noise(number, width, 40)}}
            body = {"max_tokens": 2, "messages": [{"role": "user", "content": [image]}]}
            return http.post("/v1/chat/completions", json=body).status_code

        held = []
        for width, numbers in ((40, range(40)), (25_640, range(40, 44))):
            assert {*clients.map(show, numbers, [width] * len(numbers))} == {200}
            assert http.get("/health").status_code == 200
            held.append(held_mib(server.process.pid))
    assert held[1] - held[0] < 50


def test_fifty_requests_to_a_model_that_sees(server: Server) -> None:
    tally = send_all(server, seed=2, numbers=range(50), make=with_picture)
    assert tally.problems == []
    assert min(tally.statuses[200], tally.statuses[400]) >= 5
