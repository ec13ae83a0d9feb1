"""A header that changes in a line, over HTTP: learned, moved, kept, listed and forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.cli.main import main
from leftoff.config import AGENTS, LEARN, Settings
from leftoff.disk.headers import LEARNED
from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.chat.conversations import TOOLS
from tests.factory import Scale, model_path
from tests.patience import PATIENCE_S

RULES = "".join(f"Rule {number}: answer briefly, and keep lamp number {number} lit.\n" for number in range(28))
MessageDict = dict[str, Any]


def header(weather: str) -> str:
    return f"You are a lighthouse keeper.\n\nWeather: {weather}\n\n{RULES}"


@contextmanager
def server(folder: Path, *move: str, keys: tuple[str, ...] = ()) -> Iterator[httpx.Client]:
    kept: dict[str, Any] = {"cache_dir": str(folder), "disk": 256, "ram": 256, "api_key": keys}
    path = str(model_path("qwen35", Scale(context_length=8192)))
    values = Settings(model=path, ctx=8192, threads=1, slots=2, draft="off", move=move, **kept)
    with (
        open_host(values) as host,
        serving(host) as url,
        httpx.Client(base_url=url, timeout=PATIENCE_S) as http,
    ):
        yield http


def ask(http: httpx.Client, weather: str, *turns: MessageDict, key: str = "") -> dict[str, Any]:
    return chat(http, header(weather), *(turns or ({"role": "user", "content": f"Is it {weather}?"},)), key=key)


def chat(http: httpx.Client, system: str, *turns: MessageDict, key: str = "") -> dict[str, Any]:
    """The message, and the part of the prompt's tokens that was reused."""
    messages = [{"role": "system", "content": system}, *turns]
    body = {"messages": messages, "tools": TOOLS, "max_tokens": 8, "temperature": 0}
    reply = http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"} if key else {})
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    usage = answer["usage"]
    reused = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
    return {"reused": reused, "message": answer["choices"][0]["message"]}


def notes(http: httpx.Client) -> list[str]:
    return list(http.get("/cache/requests?n=1").json()["requests"][0]["notes"])


def test_from_the_third_session_on_nearly_all_is_reused_also_after_a_restart(tmp_path: Path) -> None:
    with server(tmp_path, AGENTS, LEARN) as http:
        reused = [ask(http, weather)["reused"] for weather in ("sunny", "rainy", "foggy", "stormy")]
        assert reused[1] < 0.5, "it is in the way"
        assert min(reused[2:]) >= 0.95
        assert notes(http) == ["moved 1 learned text"]
    with server(tmp_path, AGENTS, LEARN) as http:
        assert ask(http, "cloudy")["reused"] >= 0.95
        assert notes(http) == ["moved 1 learned text"]


def test_a_session_before_the_restart_teaches_with_one_after_it(tmp_path: Path) -> None:
    with server(tmp_path, LEARN) as http:
        ask(http, "sunny")
    with server(tmp_path, LEARN) as http:
        ask(http, "rainy")
        assert ask(http, "foggy")["reused"] >= 0.95


def test_the_model_reads_the_moved_prompt_and_a_conversation_keeps_it(tmp_path: Path) -> None:
    """It is the one with the text before the first user message: written by hand it is known, and replied to alike."""
    question = {"role": "user", "content": "Is the lamp lit?"}
    by_hand = header("").replace("Weather: \n", "")
    context = {"role": "user", "content": f"<context>\nWeather: foggy\n</context>\n\n{question['content']}"}
    with server(tmp_path, LEARN) as http:
        for weather in ("sunny", "rainy"):
            ask(http, weather)
        learned = ask(http, "foggy", question)
        assert chat(http, by_hand, context) == learned | {"reused": 1}
        more = [question, learned["message"], {"role": "user", "content": "And now?"}]
        assert ask(http, "stormy", *more)["reused"] >= 0.95, "it goes on with the text that it began with"
    with server(tmp_path, LEARN) as http:
        assert ask(http, "cloudy", *more)["reused"] >= 0.95, "after a restart too"


def test_off_the_report_proposes_it(tmp_path: Path) -> None:
    with server(tmp_path, AGENTS) as http:
        for weather in ("sunny", "rainy"):
            assert ask(http, weather)["reused"] < 0.5
        (report,) = http.get("/cache/requests?n=1").json()["requests"]
        assert report["difference"] == "volatile header"
        assert report["notes"] == ["volatile header: --move learn would put the lines that change behind the header"]
        assert http.get("/cache/learned").json() == {"learned": []}


def test_tenants_learn_apart_and_what_is_deleted_is_gone(tmp_path: Path) -> None:
    bearers = {key: {"Authorization": f"Bearer {key}"} for key in ("ann", "bob")}
    with server(tmp_path, LEARN, keys=("ann", "bob")) as http:
        for weather in ("sunny", "rainy"):
            ask(http, weather, key="ann")
        ask(http, "foggy", key="bob")
        names = {key: http.get("/cache/learned", headers=bearer).json() for key, bearer in bearers.items()}
        (move,) = names["ann"]["learned"]
        assert move["lines"] == f"lines after 'You are a lighthouse keeper.' ({move['name']})"
        assert names["bob"] == {"learned": []}
        assert http.delete(f"/cache/learned/{move['name']}", headers=bearers["bob"]).status_code == 404
        (file,) = (tmp_path / "headers").glob(f"*{LEARNED}")
        assert (file.stat().st_mode & 0o777, "rainy" in file.read_text()) == (0o600, False)
        assert http.delete("/cache", headers=bearers["bob"]).status_code == 200
        assert file.exists()
        assert http.delete("/cache", headers=bearers["ann"]).status_code == 200
        assert [*(tmp_path / "headers").glob(f"*{LEARNED}")] == []
        assert http.get("/cache/learned", headers=bearers["ann"]).json() == {"learned": []}


def test_the_command_lists_and_forgets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server(tmp_path, LEARN) as http:
        to = ("--url", str(http.base_url))
        assert main(["headers", *to]) == 0
        assert "--move learn" in capsys.readouterr().out
        for weather in ("sunny", "rainy"):
            ask(http, weather)
        assert main(["headers", *to]) == 0
        line = capsys.readouterr().out
        assert line.startswith("lines after 'You are a lighthouse keeper.' (")
        assert main(["headers", "--forget", line.split()[-1].strip("()"), *to]) == 0
        assert main(["headers", "--forget", "nothing", *to]) == 1
        assert "there is no move 'nothing'" in capsys.readouterr().err
        for weather in ("foggy", "stormy"):
            ask(http, weather)
            assert notes(http)[:1] != ["moved 1 learned text"]
