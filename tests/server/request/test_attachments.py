"""Pictures and documents at the doors of all dialects. The model's own part begins at the markers in the prompt."""

import base64
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from leftoff.chat.conversation import Conversation
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.work import Lanes
from leftoff.config import MIB
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.picture import Picture, Pictures
from leftoff.server.server import serving
from leftoff.types import Prompt
from tests.patience import PATIENCE_S, POLL_S, until
from tests.pdfs import pdf
from tests.pictures import black, marker, png
from tests.server.fixtures import settings


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{text(data)}"


RED, BLUE = png("red"), png("blue")
PAGES = ("tides of Brest", "tides of Roscoff")


def ask(http: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    return http.post(path, json={"model": "tiny", "max_tokens": 1, "options": {"num_predict": 1}, **body})


def chat(*urls: str, **fields: object) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "look"}]}], **fields}


CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
ANTHROPIC = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": text(RED)}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a shot"}, ANTHROPIC]}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]}
INPUT = {"type": "input_image", "image_url": data_url(RED)}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "a shot"}, INPUT]}


def said(*content: object, **fields: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}, USE, {"role": "user", "content": [*content]}], **fields}


def written(**fields: object) -> dict[str, Any]:
    return {"stream": False, "options": {"num_predict": 1}, "images": [text(RED)], **fields}


@pytest.mark.parametrize(
    ("path", "body", "shown"),
    [
        (CHAT, chat(data_url(RED)), "{}look"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": data_url(RED)}]}]}, "{}"),
        (MESSAGES, said({"type": "text", "text": "see"}, ANTHROPIC), "see\n{}"),
        (MESSAGES, said(RESULT), "a shot\n{}"),
        (RESPONSES, {"input": [{"role": "user", "content": [INPUT, {"type": "input_text", "text": "see"}]}]}, "{}see"),
        (RESPONSES, {"input": [{"role": "user", "content": "hi"}, CALL, OUTPUT]}, "a shot{}"),
        ("/api/chat", {"messages": [written(role="user", content="see")], "stream": False}, "{}see"),
        ("/api/generate", written(prompt="see"), "{}see"),
    ],
)
def test_every_dialect_has_pictures(
    http: httpx.Client, seen: list[Conversation], path: str, body: dict[str, Any], shown: str
) -> None:
    answer = ask(http, path, body)
    assert answer.status_code == 200, answer.text
    assert seen[0].messages[-1]["content"] == shown.format(marker(RED))
    assert {name: picture.data for name, picture in seen[0].pictures.items()} == {marker(RED): RED}


@pytest.mark.usefixtures("seen")
def test_raw_prompts_have_pictures(http: httpx.Client, host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[tuple[str, Mapping[str, Picture]]] = []
    made = host.prompts.from_text

    def watched(text: str, pictures: Mapping[str, Picture]) -> Prompt:
        texts.append((text, pictures))
        return made(text)

    monkeypatch.setattr(host.prompts, "from_text", watched)
    prompt = {"prompt_string": "A <__media__> B <__media__>!", "multimodal_data": [text(RED), text(BLUE)]}
    assert ask(http, "/completion", {"prompt": prompt, "n_predict": 1}).status_code == 200
    assert texts[-1][0] == f"A {marker(RED)} B {marker(BLUE)}!"
    assert set(texts[-1][1]) == {marker(RED), marker(BLUE)}
    assert ask(http, "/api/generate", written(prompt="see", raw=True)).status_code == 200
    assert texts[-1] == (f"{marker(RED)}see", texts[-1][1])
    few = {"prompt_string": "A <__media__>", "multimodal_data": [text(RED), text(BLUE)]}
    refused = ask(http, "/completion", {"prompt": few})
    assert (refused.status_code, "2 images for 1 times" in refused.text) == (400, True)
    broken = {"prompt_string": "A <__media__>", "multimodal_data": [text(RED[:40])]}
    refused = ask(http, "/completion", {"prompt": broken})
    assert (refused.status_code, "prompt.multimodal_data[0]: image 1 cannot" in refused.text) == (400, True)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (data_url(RED[:40]), "image 2 of message 1 cannot be decoded"),
        (data_url(b"<svg/>", "image/svg+xml"), "image 2 of message 1 begins with the bytes 3c 73 76 67 2f 3e: must"),
        (data_url(b""), "image 2 of message 1 is empty"),
        (data_url(black(9_500)), "image 2 of message 1 has 9500 by 9500 pixels"),
        ("data:image/png,%89PNG", "image 2 of message 1 must be a data URL in base64"),
        ("file:///etc/passwd", "image 2 of message 1 is no base64"),
        ("https://example.com/a.png", "image 2 of message 1 is at a URL: send the file itself"),
    ],
)
@pytest.mark.filterwarnings("default")
def test_a_bad_picture_is_refused_by_its_name(
    http: httpx.Client, seen: list[Conversation], address: str, problem: str
) -> None:
    answer = ask(http, CHAT, chat(data_url(RED), address))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["message"].startswith(f"messages[0].content[1]: {problem}")
    assert (error["param"], seen) == ("messages[0].content[1]", [])


def test_pictures_are_named_as_the_client_counts(http: httpx.Client, seen: list[Conversation]) -> None:
    broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": text(RED[:40])}}
    answer = ask(http, MESSAGES, said(RESULT, broken))
    assert answer.status_code == 400
    assert "messages[2].content[1]: image 2 of message 3 cannot be decoded" in answer.text
    assert not seen


def test_too_many_pictures_are_refused(http: httpx.Client, host: ModelHost, seen: list[Conversation]) -> None:
    answer = ask(http, CHAT, chat(*[data_url(RED)] * (host.settings.max_images + 1)))
    assert (answer.status_code, "there are 257 images: at most 256 (--max-images)" in answer.text) == (400, True)
    assert not seen


def test_an_old_picture_is_not_decoded(http: httpx.Client, host: ModelHost, seen: list[Conversation]) -> None:
    before = host.pictures.num_decoded
    for urls in ([data_url(RED)], [data_url(RED), data_url(RED), data_url(BLUE)], [data_url(BLUE), data_url(RED)]):
        assert ask(http, CHAT, chat(*urls)).status_code == 200
    assert host.pictures.num_decoded - before == 2
    assert len(seen) == 3


def test_what_is_fetched_counts_as_a_part_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a request of a kilobyte could hold gigabytes. What is too much ends the other fetches too."""

    class Half(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(bytes(MIB // 2 + 1))

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr("leftoff.server.request.fetch.is_public", lambda _: True)
    monkeypatch.setattr(PromptMaker, "sees_pictures", True)
    files = ThreadingHTTPServer(("127.0.0.1", 0), Half)
    Thread(target=files.serve_forever, args=(POLL_S,), daemon=True).start()
    urls = [f"http://127.0.0.1:{files.server_port}/{number}" for number in range(2)]
    with open_host(settings(max_body=1, fetch_images=True)) as host, serving(host) as url, files:
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            replies = [ask(http, CHAT, chat(*some)) for some in (urls[:1], urls)]
        files.shutdown()
    assert "begins with the bytes" in replies[0].text
    assert (replies[1].status_code, replies[1].json()["error"]["code"]) == (413, "body_too_large")


def test_files_that_were_fetched_are_deleted_with_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Red(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(RED)

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr("leftoff.server.request.fetch.is_public", lambda _: True)
    monkeypatch.setattr(PromptMaker, "sees_pictures", True)
    files = ThreadingHTTPServer(("127.0.0.1", 0), Red)
    Thread(target=files.serve_forever, args=(POLL_S,), daemon=True).start()
    chats = chat(f"http://127.0.0.1:{files.server_port}/red.png")
    with open_host(settings(fetch_images=True)) as host, serving(host) as url, files:
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            for _ in range(2):
                ask(http, CHAT, chats)
            assert len(asked) == 1
            http.delete("/cache").raise_for_status()
            ask(http, CHAT, chats)
        files.shutdown()
    assert len(asked) == 2


def test_a_model_without_a_projector_gets_notes(http: httpx.Client) -> None:
    assert ask(http, CHAT, chat(data_url(b"no picture at all"), "https://example.com/a.png")).status_code == 200
    told = "parts left out, since this model reads text only: 2 of type image"
    assert told in http.get("/cache/requests").text


def test_decoding_ends_with_its_client(
    http: httpx.Client, host: ModelHost, seen: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture being decoded is decoded to its end; the next one is not begun."""
    begun, go_on = threading.Event(), threading.Event()
    size = Pictures.size
    names: list[str] = []

    def slow(self: Pictures, picture: Picture) -> Any:  # noqa: ANN401
        names.append(picture.name)
        begun.set()
        assert go_on.wait(PATIENCE_S)
        return size(self, picture)

    monkeypatch.setattr(Pictures, "size", slow)
    with pytest.raises(httpx.ReadTimeout):
        http.post(CHAT, json=chat(data_url(RED), data_url(BLUE)), timeout=httpx.Timeout(PATIENCE_S, read=0.3))
    assert begun.wait(PATIENCE_S)
    assert until(lambda: all(work._is_cancelled for work in list(host.lanes._running)))
    go_on.set()
    assert until(lambda: host.lanes.num_running == 0)
    assert names == ["image 1 of message 1"]
    assert not seen


def test_pictures_are_decoded_two_at_a_time() -> None:
    lanes = Lanes()
    assert lanes._pictures._max_workers == 2
    lanes.close()


def file_part(path: str, data: bytes) -> dict[str, Any]:
    match path:
        case "/v1/messages":
            return {"type": "document", "source": {"type": "base64", "data": text(data)}}
        case "/v1/responses":
            return {"type": "input_file", "filename": "a.pdf", "file_data": data_url(data)}
    return {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(data, "application/pdf")}}


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_pdf_becomes_its_text(
    http: httpx.Client, seen: list[Conversation], monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    field = "input" if path == RESPONSES else "messages"
    body = {field: [{"role": "user", "content": [file_part(path, pdf(*PAGES))]}]}
    monkeypatch.setattr(PromptMaker, "sees_pictures", False)
    answer = ask(http, path, body)
    assert answer.status_code == 200, answer.text
    assert seen[0].messages[-1]["content"] == "\n\n".join(PAGES)
    monkeypatch.setattr(PromptMaker, "sees_pictures", True)
    assert ask(http, path, body).status_code == 200
    images = [*seen[1].pictures.values()]
    shown = [f"{image.marker}\n{words}" for image, words in zip(images, PAGES, strict=True)]
    assert seen[1].messages[-1]["content"] == "\n\n".join(shown)
    assert (images[0].width, images[0].height) == (300, 150)


def test_a_broken_pdf_is_refused_by_its_name(http: httpx.Client, seen: list[Conversation]) -> None:
    part = file_part(CHAT, b"%PDF-1.7 and nothing else")
    answer = ask(http, CHAT, {"messages": [{"role": "user", "content": [part]}]})
    assert answer.status_code == 400
    assert "messages[0].content[0]: file 1 of message 1 cannot be read" in answer.text
    assert not seen


def test_a_file_that_is_no_pdf_is_left_out(http: httpx.Client, seen: list[Conversation]) -> None:
    part = file_part(CHAT, b"PK\x03\x04")
    assert ask(http, CHAT, {"messages": [{"role": "user", "content": [part]}]}).status_code == 200
    assert seen[0].messages[-1]["content"] == "[file left out: this model reads text only]"
    assert "files left out: 1; PDFs are the only files that are read" in http.get("/cache/requests?n=1").text


def test_a_pdf_that_cannot_be_read_here_is_left_out_and_the_way_out_is_told(
    http: httpx.Client, seen: list[Conversation], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("request.attachments", "request.content", "openai.routes"):
        monkeypatch.setattr(f"leftoff.server.{module}.can_read_pdfs", lambda: False)
    body = {"messages": [{"role": "user", "content": [file_part(CHAT, pdf(*PAGES))]}]}
    assert ask(http, CHAT, body).status_code == 200
    assert seen[0].messages[-1]["content"] == "[file left out: this model reads text only]"
    (report,) = http.get("/cache/requests?n=1").json()["requests"]
    assert "files left out: 1; PDFs are read with pip install 'leftoff[pdf]'" in report["notes"]
    assert http.get("/v1/models").json()["data"][0]["meta"]["pdf"] is False
