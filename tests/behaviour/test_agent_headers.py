"""An agent in a git repository, as Claude Code asks: a commit or the next day costs a session next to nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from leftoff.chat.conversation import Conversation
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.server.server import serving
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings

RULES = "you keep a lamp in the window for the old man at sea. " * 30
SKILLS = "Available agent types for the Agent tool:\n- lamp: lights it at night and puts it out\n" * 8
TOOL = {"name": "look", "description": "look at the lamp in the window " * 8, "input_schema": {"type": "object"}}


def body(day: int, words: Sequence[str]) -> dict[str, Any]:
    """The request of a session that began with `words[0]`. All that depends on the day is made anew for each."""
    commits = "".join(f"\n{number:07x} Day {number}" for number in range(day, 0, -1))
    git = (
        f"gitStatus: This is the git status at the start of the conversation.\n\nM {day}.py\n\nRecent commits:{commits}"
    )
    reminder = (
        f"<system-reminder>\n# currentDate\nToday's date is 2026-11-{day:02}.\n\nIt may matter.\n</system-reminder>\n"
    )
    system = [{"type": "text", "text": text} for text in (f"x-anthropic-billing-header: cch={day};", RULES, git)]
    first = {"role": "user", "content": [{"type": "text", "text": text} for text in (reminder, words[0])]}
    later = [{"role": ("assistant", "user")[at % 2], "content": text} for at, text in enumerate(words[1:])]
    messages = [first, {"role": "system", "content": SKILLS}, *later]
    return {"system": system, "messages": messages, "tools": [TOOL], "max_tokens": 8, "temperature": 0}


class Agent:
    """Sends requests, and tells what was read for each."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, day: int, *words: str) -> str:
        reply = httpx.post(f"{self._url}/v1/messages", json=body(day, words), timeout=PATIENCE_S)
        assert reply.status_code == 200, reply.text
        usage = reply.json()["usage"]
        self.reused = usage["cache_read_input_tokens"]
        self.prompt_tokens = self.reused + usage["cache_creation_input_tokens"] + usage["input_tokens"]
        self.computed = self.prompt_tokens - self.reused
        return "".join(block.get("text", "") for block in reply.json()["content"])


@pytest.mark.usefixtures("quiet_disk")
def test_a_commit_and_another_day_and_a_restart_cost_next_to_nothing(tmp_path: Path) -> None:
    kept = settings(ctx=4096, disk=64, ram=64, cache_dir=str(tmp_path))
    with open_host(kept) as host, serving(host) as url:
        agent = Agent(url)
        agent.ask(1, "hello")
        whole = agent.prompt_tokens
        assert agent.computed == whole
        reply = agent.ask(2, "good morning")
        assert agent.reused > 0.75 * whole, "the header, tools and skills included"
        first = agent.prompt_tokens
        second_reply = agent.ask(3, "good morning", reply, "and now?")
        assert agent.reused >= first, "the session goes on as it began, whatever was committed since"
        assert agent.computed < 40
        second = agent.prompt_tokens
    with open_host(kept) as host, serving(host) as url:
        agent = Agent(url)
        agent.ask(4, "good morning", reply, "and now?", second_reply, "and then?")
        assert agent.reused >= second - 8
        assert agent.computed < 48
        agent.ask(4, "good evening")
        assert agent.reused > 0.75 * whole


@pytest.mark.parametrize("move", [("agents",), ()])
def test_a_new_session_is_told_what_is_true_now(move: tuple[str, ...]) -> None:
    """With the rule and without it: only the place differs, and what is reused."""
    with open_host(settings(ctx=4096, move=move)) as host:
        shown = [host.model.vocabulary.detokenize(prompt_of(host, day)).decode() for day in (1, 2)]
    for day, text in enumerate(shown, 1):
        assert text.count("Recent commits:") == text.count(f"2026-11-{day:02}") == text.count(SKILLS) == 1
        assert (f"M {day}.py" in text, f"M {3 - day}.py" in text) == (True, False)
    same = next(at for at, (one, other) in enumerate(zip(*shown, strict=False)) if one != other)
    assert (same > shown[0].index(SKILLS)) == bool(move), "what is before the first difference is reused"


def prompt_of(host: ModelHost, day: int) -> Any:  # noqa: ANN401
    asked = body(day, ["hello"])
    system = "\n".join(part["text"] for part in asked["system"])
    first, skills = asked["messages"]
    words = "\n".join(part["text"] for part in first["content"])
    messages = [{"role": "system", "content": system}, {"role": "user", "content": words}, skills]
    return host.chats.prompt(Conversation(messages)).prompt.tokens
