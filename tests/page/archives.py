"""Conversations as the page exports them, made by hand."""

import json
import time
from collections.abc import Sequence
from typing import Any


def archive(texts: Sequence[str], title: str = "made") -> str:
    """One conversation: the texts are said by the user and the model in turn, and the last by the model."""
    return _archived([_conversation("c", texts, title, time.time() * 1000)])


def many(number: int) -> str:
    """So many conversations of two turns, one after the other in the last months. The one used last has 200."""
    now, texts = (
        time.time() * 1000,
        ["where does the road end", "- at **the** river\n- at the `sea`\n\n| a | b |\n| - | - |\n"],
    )
    turns = (200 * texts, *([2 * texts] * (number - 1)))
    return _archived(
        [
            _conversation(f"c{index}", each, f"Conversation {index} about the road and the sea", now - 1e7 * index)
            for index, each in enumerate(turns)
        ]
    )


def _archived(conversations: list[dict[str, Any]]) -> str:
    return json.dumps({"leftoff": 1, "conversations": conversations})


def _conversation(name: str, texts: Sequence[str], title: str, updated: float) -> dict[str, Any]:
    first = len(texts) % 2
    messages = [
        {
            "id": f"{name}m{number}",
            "conversation": name,
            "parent": f"{name}m{number - 1}" if number else None,
            "role": ("user", "assistant")[(number + first) % 2],
            "content": text,
            "created": number,
            "state": "done",
            "finish": "stop",
        }
        for number, text in enumerate(texts)
    ]
    leaf = messages[-1]["id"]
    meta = {"id": name, "title": title, "created": updated, "updated": updated, "leaf": leaf, "settings": {}}
    return {"meta": meta, "messages": messages}
