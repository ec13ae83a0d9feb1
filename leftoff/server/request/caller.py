"""Who sends a request, in words: its client by the User-Agent, its conversation by the first words of the user."""

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile, takewhile

from blake3 import blake3
from starlette.datastructures import Headers
from starlette.requests import Request

from leftoff.chat.template.render import MessageDict
from leftoff.host.callers import Caller
from leftoff.picture import MARKER

# How a User-Agent begins, in lower case, and what people call that client. Of others, its first word is the name.
_CLIENTS = {
    "claude-cli": "Claude Code",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "OpenCode",
    "qwencode": "Qwen Code",
    "charm-crush": "Crush",
    "ai-sdk": "AI SDK",
    "ai/": "AI SDK",
    "anthropic/": "Anthropic SDK",
    "asyncanthropic/": "Anthropic SDK",
    "openai/": "OpenAI SDK",
    "asyncopenai/": "OpenAI SDK",
    "ollama": "Ollama SDK",
    "mozilla/": "browser",
}
_FIRST_WORD = re.compile(r"[A-Za-z][\w.+-]{0,39}", re.ASCII)
_OPENS = re.compile(r"\s*<([\w-]{1,40})(?: [^<>]{0,400})?>")
_SETUP = re.compile(r"This is the (?:Qwen Code|Gemini CLI)\. We are setting up the context for our chat\.\n")
_MAX_TAGS = 16
_TITLE_CHARACTERS = 80
_DIGITS = 6
_TRACE_CHARACTERS = 64


def caller_of(request: Request, messages: Sequence[MessageDict] = ()) -> Caller:
    """A prompt that is no chat has no messages."""
    text = _opening(messages)
    name = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS] if text else ""
    trace = request.headers.get("traceparent", "")[:_TRACE_CHARACTERS]
    return Caller(_client(request.headers), request.url.path, name, _title(text), trace)


def _opening(messages: Sequence[MessageDict]) -> str:
    """What the user has said before the first reply, which is the same in all turns.

    Of several messages the last that has words of the user's: Codex sends others before it, about the folder and its
    rules, which are the same in every conversation there. Qwen Code's message about the folder has a reply of its own.
    """
    spoken = dropwhile(lambda message: message.get("role") != "user", messages)
    texts = _before_reply(spoken)
    if texts and all(map(_SETUP.match, texts)):
        texts = _before_reply(spoken) or texts
    return next(filter(_title, reversed(texts)), texts[0] if texts else "")


def _before_reply(messages: Iterator[MessageDict]) -> list[str]:
    """The user's messages up to the next reply."""
    before = takewhile(lambda message: message.get("role") != "assistant", messages)
    contents = [message.get("content") for message in before if message.get("role") == "user"]
    return [MARKER.sub("", content) for content in contents if isinstance(content, str)]


def _client(headers: Headers) -> str:
    agent = headers.get("user-agent", "")
    if headers.get("sec-fetch-site") == "same-origin":
        return "this page"
    known = (name for beginning, name in _CLIENTS.items() if agent.lower().startswith(beginning))
    word = _FIRST_WORD.match(agent)
    return next(known, word[0] if word else "unknown client")


def _title(text: str) -> str:
    """The first words. Agents put reminders in tags before what the user has typed."""
    for _ in range(_MAX_TAGS):
        tag = _OPENS.match(text)
        end = text.find(f"</{tag[1]}>") if tag else -1
        if tag is None or end < 0:
            break
        text = text[end + len(tag[1]) + 3 :]
    return " ".join(text[: 4 * _TITLE_CHARACTERS].split())[:_TITLE_CHARACTERS]
