"""Conversations, killed as soon as the disk has their ends: each goes on at its last message, with its pictures."""

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.behaviour.histories.lives import serving_here
from tests.cli.running import serving
from tests.disk.remains import Remains
from tests.factory import model_path
from tests.factory.projectors import projector_path
from tests.patience import until
from tests.pictures import noise
from tests.server.crowd import connected
from tests.server.wire import Answer, MessageDict, Texts, Wire, says

NUM_TURNS = 2
REPLY_TOKENS = 12
GENERATION_TOKENS = 16  # of the generation prompt, at most: it is not part of the next prompt


def talk(wire: Wire, chats: list[list[MessageDict]]) -> list[Answer]:
    """All four in turn, a few times; returns their last answers."""
    texts = Texts(9)
    for _ in range(NUM_TURNS):
        answers = []
        for chat in chats:
            chat.append(says("user", texts.text(60)))
            answers.append(wire.chat(chat, REPLY_TOKENS))
            chat.append(says("assistant", answers[-1].text))
    return answers


def has_ends(remains: Remains, wire: Wire, chats: list[list[MessageDict]], answers: list[Answer]) -> bool:
    """The index has everything to resume each conversation after its last question."""
    return all(
        remains.resumable(wire.prompt([*chat, says("user", "?")])) >= answer.prompt_tokens - GENERATION_TOKENS
        for chat, answer in zip(chats, answers, strict=True)
    )


def test_after_a_kill_each_conversation_goes_on_at_its_last_message(tmp_path: Path) -> None:
    texts = Texts(8)
    header = says("system", texts.text(200))
    chats = [[header, says("user", texts.text(200)), says("assistant", texts.text(20))] for _ in range(4)]
    flags = ("--ctx", "4096", "--slots", "2", "--disk", "64", "--cache-dir", str(tmp_path))
    with serving(*flags) as server, connected(server.url) as http:
        wire = Wire(http)
        answers = talk(wire, chats)
        assert until(lambda: has_ends(Remains(tmp_path), wire, chats, answers)), "their ends are not written"
        server.process.kill()
        server.process.wait()
    with serving_here(model_path("qwen35"), flags) as http:
        for chat, answer in zip(chats, answers, strict=True):
            again = Wire(http).chat([*chat, says("user", texts.text(10))], 1)
            assert again.cached >= answer.prompt_tokens - GENERATION_TOKENS
            assert again.computed <= again.prompt_tokens - answer.prompt_tokens + GENERATION_TOKENS


def test_after_a_kill_a_picture_is_neither_read_nor_encoded_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    projector = str(projector_path("qwen3vl_merger", 64))
    flags = ("--ctx", "4096", "--disk", "64", "--cache-dir", str(tmp_path), "--mmproj", projector)
    url = f"data:image/png;base64,{base64.b64encode(noise(1)).decode()}"

    def chat(http: httpx.Client, text: str, *turns: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The reply, and the report of it."""
        image = {"type": "image_url", "image_url": {"url": url}}
        messages = [{"role": "user", "content": [{"type": "text", "text": text}, image]}, *turns]
        body = {"messages": messages, "max_tokens": REPLY_TOKENS, "temperature": 0}
        reply = http.post("/v1/chat/completions", json=body).raise_for_status().json()
        return reply, http.get("/cache/requests").json()["requests"][0]

    text = Texts(8).text(400)
    with serving(*flags) as server, connected(server.url) as http:
        first, report = chat(http, text)
        assert [line.rpartition(", ")[2] for line in report["images"]] == ["computed"]
        picture_end = report["prompt_tokens"] - GENERATION_TOKENS
        remains = Remains(tmp_path)
        assert until(lambda: any(end >= picture_end for (end,) in remains._query('SELECT "end" FROM blob')))
        server.process.kill()
        server.process.wait()
    (file,) = remains.folder.glob("pictures/*.picture")
    with serving_here(model_path("qwen35"), flags) as http:
        said = first["choices"][0]["message"]
        _, report = chat(http, text, said, {"role": "user", "content": "And then?"})
        assert [line.rpartition(", ")[2] for line in report["images"]] == ["reused"]
        assert report["computed"] < report["prompt_tokens"] - picture_end
        chat(http, f"Now {text}")
        assert "damaged" not in caplog.text
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with serving_here(model_path("qwen35"), flags) as http:
        edited, _ = chat(http, f"So {text}")
        assert f"{file} is damaged: its picture is encoded again" in caplog.text
        assert edited["choices"][0]["message"]["content"] is not None
        assert until(lambda: file.exists() and file.read_bytes() == whole)
