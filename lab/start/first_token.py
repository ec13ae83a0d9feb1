"""Waits for a server on this machine, asks it, and ends with its first token: `first_token.py PID_OF_THE_SERVER`.

It runs where nothing but python3 is: no package is imported.
"""

import json
import os
import sys
import time
import urllib.request
from urllib.error import URLError

_URL = "http://127.0.0.1:8080"
_PATIENCE_S = 600
_POLL_S = 0.1


def main(pid: int) -> int:
    deadline = time.monotonic() + _PATIENCE_S
    while not _is_healthy():
        if time.monotonic() > deadline or not _runs(pid):
            return 1
        time.sleep(_POLL_S)
    body = {"messages": [{"role": "user", "content": "Hello!"}], "stream": True, "max_tokens": 8}
    request = urllib.request.Request(f"{_URL}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as lines:
        return 0 if any(_has_text(line) for line in lines) else 1


def _is_healthy() -> bool:
    try:
        with urllib.request.urlopen(f"{_URL}/health", timeout=_PATIENCE_S):
            return True
    except URLError:
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _has_text(line: bytes) -> bool:
    data = line.removeprefix(b"data: ").strip()
    if not data.startswith(b"{"):
        return False
    choices = json.loads(data)["choices"]
    return bool(choices and choices[0]["delta"].get("content"))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
