"""Open WebUI: a chat with a tool, asked for as its page in the browser does. `open_webui_chat.py URL QUESTION...`.

Open WebUI itself calls the tool, and asks the model for a title, tags and further questions besides. It runs without
accounts, and downloads no models for searching documents.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from notes import NOTES

PATIENCE_S = 900  # a slow machine takes long to start it, and to read its header
TOOL = f'''
from typing import Literal


class Tools:
    def read_note(self, name: Literal[{", ".join(map(repr, NOTES))}]) -> str:
        """
        Reads one of the user's notes.

        :param name: The name of the note.
        """
        return {NOTES!r}[name]
'''


@contextmanager
def serving(url: str) -> Iterator[httpx.Client]:
    """Open WebUI, connected to a server, and a client that is signed in."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    own = {"OPENAI_API_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"}
    own |= {"WEBUI_AUTH": "false", "WEBUI_SECRET_KEY": "none", "OFFLINE_MODE": "true", "ENABLE_OLLAMA_API": "false"}
    command = [str(Path(sys.executable).parent / "open-webui"), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with (
        tempfile.TemporaryDirectory() as data,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http,
        subprocess.Popen(command, env={**os.environ, **own, "DATA_DIR": data}, stdout=sys.stderr) as process,
    ):
        try:
            sign_in(http, process)
            yield http
        finally:
            process.terminate()


def sign_in(http: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        try:
            answer = http.post("/api/v1/auths/signin", json={"email": "", "password": ""})
            http.headers["authorization"] = f"Bearer {answer.raise_for_status().json()['token']}"
            return
        except httpx.HTTPError:
            time.sleep(1)
    sys.exit("Open WebUI did not start")


def ask(
    http: httpx.Client, model: dict[str, Any], question: str, chat: str | None, parent: str | None
) -> tuple[str, str]:
    """One turn, with the fields that the page sends; returns the ids of the chat and of the answer."""
    message = {"id": str(uuid4()), "parentId": parent, "childrenIds": [], "role": "user", "content": question}
    answer_id = str(uuid4())
    body = {
        "stream": True,
        "model": model["id"],
        "messages": [{"role": "user", "content": question}],
        "params": {},
        "tool_ids": ["notes"],
        "features": {},
        "variables": {},
        "model_item": model,
        "session_id": "page",
        "chat_id": chat,
        "id": answer_id,
        "parent_id": parent,
        "user_message": {**message, "models": [model["id"]], "timestamp": int(time.time())},
        "background_tasks": {
            "title_generation": parent is None,
            "tags_generation": parent is None,
            "follow_up_generation": True,
        },
    }
    chat_id: str = http.post("/api/chat/completions", json=body).raise_for_status().json()["chat_id"]
    return chat_id, answer_id


def wait(http: httpx.Client, chat_id: str, answer_id: str) -> str:
    """The answer, when it is there to its end."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        chat = http.get(f"/api/v1/chats/{chat_id}").raise_for_status().json()["chat"]
        answer: dict[str, Any] = chat["history"]["messages"].get(answer_id, {})
        if answer.get("error"):
            sys.exit(f"Open WebUI says: {answer['error']}")
        if answer.get("done"):
            return str(answer["content"])
        time.sleep(0.5)
    sys.exit(f"no answer within {PATIENCE_S} s")


url, *questions = sys.argv[1:]
with serving(url) as http:
    tool = {"id": "notes", "name": "Notes", "content": TOOL, "meta": {"description": "The user's notes."}}
    http.post("/api/v1/tools/create", json=tool).raise_for_status()
    (model,) = http.get("/api/models").raise_for_status().json()["data"]
    chat_id = answer_id = None
    for question in questions:
        chat_id, answer_id = ask(http, model, question, chat_id, answer_id)
        print(wait(http, chat_id, answer_id))
