"""One prompt of token ids through `/completion`, measured at the client. It knows no servers and no workloads.

Nothing is parsed while the reply comes, and the body is written before the clock starts: the server is measured.
"""

import http.client
import json
import random
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from lab.bench.errors import BenchError

SAMPLED = {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "min_p": 0.0}
_GREEDY = {"temperature": 0.0}
_PATIENCE_S = 300
_DATA = b"data: "


@dataclass(frozen=True)
class Completed:
    """A reply, and what it took. `computed` prompt tokens were read, as the server reports it."""

    first_token_ms: float
    reply_ms: float  # from the first token to the last
    computed: int
    generated: int
    tokens: tuple[int, ...]


def complete(
    url: str, prompt: list[int], num_reply: int, sampling: dict[str, float] | None = None, model: str = ""
) -> Completed:
    """Streams a reply of exactly `num_reply` tokens."""
    fixed = {"stream": True, "cache_prompt": True, "ignore_eos": True, "return_tokens": True}
    which = {"model": model} if model else {}
    body = json.dumps({**which, "prompt": prompt, "n_predict": num_reply, **fixed, **(sampling or _GREEDY)}).encode()
    try:
        began, came = stream(url, body)
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{url} stopped answering ({error or type(error).__name__})") from error
    chunks = [json.loads(line.removeprefix(_DATA)) for _, line in came if b"[DONE]" not in line]
    failed = next((chunk["error"] for chunk in chunks if "error" in chunk), None)
    if failed or not chunks:
        raise BenchError(f"{url} gave no reply: {failed or 'an empty stream'}")
    timings = chunks[-1].get("timings", {})
    tokens = tuple(token for chunk in chunks for token in chunk.get("tokens") or ())
    return Completed(
        1000 * (came[0][0] - began),
        1000 * (came[-1][0] - came[0][0]),
        int(timings.get("prompt_n", len(prompt))),
        int(timings.get("predicted_n", len(tokens))),
        tokens,
    )


def stream(url: str, body: bytes) -> tuple[float, list[tuple[float, bytes]]]:
    """Asks for a completion. Returns when it was asked, and each event with the time at which it came."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_PATIENCE_S)
    try:
        began = time.perf_counter()
        connection.request("POST", "/completion", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise BenchError(f"{url}/completion answered {response.status}: {response.read(300).decode()}")
        return began, [(time.perf_counter(), line) for line in response if line.startswith(_DATA)]
    finally:
        connection.close()


@dataclass(frozen=True)
class Prompts:
    """Random tokens of a model's vocabulary: the same for the same name, and others for another."""

    num_vocabulary: int

    def tokens(self, name: str, num_tokens: int) -> list[int]:
        ordinary = range(self.num_vocabulary // 8, self.num_vocabulary // 2)  # special ones are at the ends
        return random.Random(name).choices(ordinary, k=num_tokens)
