"""A prompt that is known as a whole: nothing of it is read, and the page says so until the first token."""

import threading

import pytest
from playwright.sync_api import expect

from leftoff.server.reply.stream import ReplyStream
from tests.page.chat import Chat


def test_a_prompt_of_which_all_is_reused_says_so(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    chat.set(temperature="0")
    chat.send("where does the road end")
    may_go_on, token = threading.Event(), ReplyStream.token

    def held(stream: ReplyStream, *given: object) -> bool:
        may_go_on.wait()
        return token(stream, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(ReplyStream, "token", held)
    chat.act(chat.replies.last, "Regenerate")
    try:
        expect(chat.replies.last).to_contain_text("tokens of the prompt are reused")
    finally:
        may_go_on.set()
    chat.finished()
