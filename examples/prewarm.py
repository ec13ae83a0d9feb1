"""Read a long system prompt before the first user comes, and pin it: no later request evicts it.

    pip install httpx
    leftoff serve &
    python examples/prewarm.py

`leftoff serve --prewarm FILE` does the same at every start. LEFTOFF_URL is the server's address, http://127.0.0.1:8080
unless it is set.
"""

import os
from typing import Any

import httpx

URL = os.environ.get("LEFTOFF_URL", "http://127.0.0.1:8080")
RULES = "\n".join(f"Rule {number}: guests in room {number + 100} have breakfast at seven." for number in range(40))
SYSTEM = {"role": "system", "content": f"You work at the desk of a hotel.\n{RULES}"}
QUESTION = {"role": "user", "content": "Hello!"}


def main() -> None:
    with httpx.Client(base_url=URL, timeout=600) as http:
        header = post(http, "/cache/prewarm", {"messages": [SYSTEM]})
        print(f"prewarmed {header['tokens']} tokens, {header['computed']} of them read now, {header['bytes']} bytes")
        reply = post(http, "/v1/chat/completions", {"messages": [SYSTEM, QUESTION], "max_tokens": 40})
        timings = reply["timings"]
        print(reply["choices"][0]["message"]["content"])
        print(f"  reused {timings['cache_n']}, read {timings['prompt_n']} in {timings['prompt_ms']:.0f} ms")


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply: dict[str, Any] = http.post(path, json=body).raise_for_status().json()
    return reply


if __name__ == "__main__":
    main()
