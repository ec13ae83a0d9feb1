"""Conversations as the page exports them, made by hand."""

import json
import time
from collections.abc import Sequence


def archive(texts: Sequence[str], title: str = "made") -> str:
    """One conversation: the texts are said by the user and the model in turn, and the last by the model."""
    first = len(texts) % 2
    messages = [
        {
            "id": f"m{number}",
            "conversation": "c",
            "parent": f"m{number - 1}" if number else None,
            "role": ("user", "assistant")[(number + first) % 2],
            "content": text,
            "created": number,
            "state": "done",
            "finish": "stop",
        }
        for number, text in enumerate(texts)
    ]
    now = time.time() * 1000
    meta = {"id": "c", "title": title, "created": now, "updated": now, "leaf": f"m{len(texts) - 1}", "settings": {}}
    return json.dumps({"leftoff": 1, "conversations": [{"meta": meta, "messages": messages}]})
