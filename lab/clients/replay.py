"""Plays a recording against a server, with its own replies in place of those that were recorded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from lab.clients.play import Asked, reuse_of
from lab.clients.record import REPLY, Request
from lab.clients.said import Parts, parts_of
from lab.clients.tap import reply_id


@dataclass(frozen=True)
class Played:
    """A request that was answered."""

    request: Request
    asked: Asked
    reply: str  # as it came


def replay(recording: Sequence[Request], url: str) -> Iterator[Played]:
    """Sends each request and waits for its reply. A reply lacks a part that the next request needs: KeyError."""
    replies: list[Parts] = []
    with httpx.Client(base_url=url, timeout=None, headers={"anthropic-version": "2023-06-01"}) as http:
        for request in recording:
            answer = http.post(request.path, json=_filled(request.body, replies))
            if answer.is_error:
                raise httpx.HTTPStatusError(answer.text, request=answer.request, response=answer)
            replies.append(parts_of(answer.text))
            yield Played(request, reuse_of(http, reply_id(answer.content)), answer.text)


def _filled(value: Any, replies: Sequence[Parts]) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        if value.keys() == {REPLY}:
            number, name = value[REPLY]
            return replies[number][name]
        return {key: _filled(inner, replies) for key, inner in value.items()}
    return [_filled(inner, replies) for inner in value] if isinstance(value, list) else value
