"""Sends mutated bodies of real clients to a server of its own: no 5xx, no hang, and every stream has its end.

    python -m tests.behaviour.mutated 10000 --seed 0
    python -m tests.behaviour.mutated 2000 --tiny --pictures --flags --mmproj FILE

The server is `leftoff serve` with the model that comes with leftoff, and stays the same for all requests. A request is
made from the seed and its number: `--only 123` repeats one and shows it. From 3,000 requests on, the memory that the
server holds must level off: in the last third it is no more than in the one before it.
"""

import argparse
import http.client
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tests.behaviour.mutated_pictures import with_picture
from tests.behaviour.mutations import Mutated, mutated
from tests.cli.running import Server, serving

NUM_CLIENTS = 4
ANSWER_S = 180.0  # for a reply of a few words, on a machine that is busy
_SERVER = (
    "--ctx",
    "2048",
    "--alias",
    "local",
    "--slots",
    "4",
    "--ram",
    "64",
    "--disk",
    "0",
    "--max-tokens",
    "4",
    "--log-level",
    "warning",
)
_SHOWN = 300
_MIN_LOOKS = 2  # in a third of them
GROWTH = 1.02

_MEANT = {"context_full", "queue_full", "overloaded_error"}  # a 503 that a client is to try again


@dataclass
class Tally:
    """What came back, by status, and what should not have."""

    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def send(url: str, request: Mutated) -> tuple[int, str | None]:
    """The status, and what is wrong with the answer."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_S)
    try:
        connection.putrequest("POST", request.path)
        connection.putheader("Content-Length", str(len(request.data)))
        for name, value in request.headers:
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders(request.data)
        response = connection.getresponse()
        kind, data = response.getheader("Content-Type") or "", response.read()
        return response.status, problem_with(request.path.partition("?")[0], response.status, kind, data)
    except (OSError, http.client.HTTPException) as error:
        return 0, f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def held_mib(pid: int) -> int:
    """The memory that a process holds, where the system says it."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) // 1024 if found else 0


def problem_with(path: str, status: int, kind: str, data: bytes) -> str | None:
    text = data.decode("utf-8", "replace")
    if status == 503 and any(code in text for code in _MEANT):
        return None
    if status >= 500 or '"internal_error"' in text or '"api_error"' in text:
        return f"status {status}"
    if kind.startswith(("text/event-stream", "application/x-ndjson")):
        return None if has_end(path, text) else "a stream without its end"
    try:
        json.loads(data)
    except ValueError:
        return f"status {status}, and no JSON"
    return None


def has_end(path: str, text: str) -> bool:
    """Whether a stream ends as its dialect wants it, with a last word or with an error."""
    last = [line for line in text.splitlines() if line and not line.startswith(":")][-1]
    if path.startswith("/api/"):
        chunk = json.loads(last)
        return bool(chunk.get("done")) or "error" in chunk
    if path.startswith("/v1/messages"):
        return '"message_stop"' in last or '"error"' in last
    if path.startswith("/v1/responses"):
        return any(f'"response.{end}"' in last for end in ("completed", "incomplete", "failed"))
    return last == "data: [DONE]" if path.startswith("/v1/") else '"stop":true' in last or '"error"' in last


@contextmanager
def server_of_ours(model: str | None = "", *flags: str) -> Iterator[Server]:
    """With None, it has a tiny model of the tests' own."""
    with serving(*_SERVER, *flags, model=model) as server:
        assert server.url, server.log
        yield server


def send_all(
    server: Server,
    seed: int,
    numbers: range,
    show: Callable[[int, Tally], None] | None = None,
    make: Callable[[int, int], Mutated] = mutated,
) -> Tally:
    """Sends the requests of a seed, a few at a time, and looks whether the server is still well."""
    tally = Tally()

    def send_one(number: int) -> None:
        request = make(seed, number)
        status, problem = send(server.url, request)
        tally.statuses[status] += 1
        if problem:
            tally.problems.append(f"{number}: {problem}: {request.path[:80]} {request.data[:_SHOWN]!r}")
        if show is not None:
            show(number, tally)

    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        for _ in clients.map(send_one, numbers):
            pass
    if server.process.poll() is not None:
        tally.problems.append(f"the server has ended with {server.process.returncode}")
    elif (health := _health(server.url)) != 200:
        tally.problems.append(f"/health answers {health}")
    if "Traceback" in server.log:
        tally.problems.append(server.log[server.log.index("Traceback") :][:3000])
    return tally


def _health(url: str) -> int:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_S)
    connection.request("GET", "/health")
    status = connection.getresponse().status
    connection.close()
    return status


def has_levelled(levels: list[int]) -> bool:
    """Where the system keeps freed memory differs from look to look; a leak only grows."""
    third = len(levels) // 3
    return third < _MIN_LOOKS or min(levels[-third:]) <= GROWTH * max(levels[-2 * third : -third])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="the first request's number")
    parser.add_argument("--only", type=int, help="send one request, and show it")
    parser.add_argument("--tiny", action="store_true", help="with a model of the tests' own: much faster")
    parser.add_argument("--pictures", action="store_true", help="requests with pictures and documents alone")
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="of the server: all that follow")
    options = parser.parse_args()
    make = with_picture if options.pictures else mutated
    numbers = range(options.start, options.start + options.number)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
        print(make(options.seed, options.only))

    levels: list[int] = []

    def show(number: int, tally: Tally) -> None:
        if number % 500 == 0:
            levels.append(held_mib(server.process.pid))
            problems = f"{len(tally.problems)} problems"
            print(f"{number}: {dict(tally.statuses)}, {problems}, {levels[-1]:,} MiB", flush=True)

    with server_of_ours(None if options.tiny else "", *options.flags) as server:
        tally = send_all(server, options.seed, numbers, show, make)
        print(f"the server holds {held_mib(server.process.pid):,} MiB")
    if not has_levelled(levels):
        tally.problems.append(f"memory grows: {levels} MiB")
    print(*tally.problems, sep="\n")
    print(f"{tally.statuses.total()} requests: {dict(sorted(tally.statuses.items()))}")
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
