"""`make image` builds the image and plays it: nothing that it has read is read again after a restart on its volume.

It starts the image, waits until the image's own health check passes, and asks a question of the model that comes with
leftoff. Then that container is gone, another starts on the same volume, and goes on with the conversation.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import closing

import httpx

from lab.bench.port import free_port
from lab.start.container import (
    TOOLS,
    Container,
    ContainerError,
    build,
    container_of,
    find_tool,
    image_config,
)
from leftoff.client import ChatClient, StreamedReply, connect
from leftoff.errors import LeftoffError

_TARGETS = ("cpu", "cuda", "vulkan")
_PATIENCE_S = 300
_POLL_S = 0.2
_GOAL_S = 60.0  # from `docker run` to the first token
_FIRST = "My name is Anna. I live in a small house by the river, and I like long walks. Where do I live?"
_SECOND = "And what do I like?"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=_TARGETS, default="cpu")
    parser.add_argument("--tool", choices=TOOLS, help="default: the first of them that is installed")
    parser.add_argument("--base", help="the image to build on (default: that of deploy/Dockerfile)")
    args = parser.parse_args()
    try:
        _play(args.tool or find_tool(), args.target, {"BASE": args.base} if args.base else {})
    except LeftoffError as error:
        print(f"make image: {error}", file=sys.stderr)
        return 1
    return 0


def _play(tool: str, target: str, arguments: dict[str, str]) -> None:
    image = f"localhost/leftoff:{target}"
    began = time.monotonic()
    build(tool, target, image, arguments)
    print(f"{image}: built by {tool} in {time.monotonic() - began:.0f} s")
    config = image_config(tool, image)
    _require(config["User"].partition(":")[0] not in ("", "0", "root"), "it runs as root")
    check = config["Healthcheck"]["Test"]
    _require(check[0] == "CMD", f"its health check is no command: {check}")
    container, port = container_of(tool, image), free_port()
    try:
        first = _turn(container, port, check[1:], [_FIRST])
        second = _turn(container, port, check[1:], [_FIRST, first.text, _SECOND])
    except LeftoffError as error:
        raise ContainerError(f"{error}\n{container.log()}") from error
    finally:
        container.stop()
        container.remove_volume()
    known = first.usage["total_tokens"]
    again = known - (second.cached_tokens or 0)
    print(f"after a restart: {second.cached_tokens} of {known} known tokens reused")
    # The last token of a reply is never read while it is written.
    _require(again <= 1, f"{again} tokens were read again after a restart on the same volume")


def _turn(container: Container, port: int, check: list[str], texts: list[str]) -> StreamedReply:
    """A container from its start to its end: it is asked one question."""
    began = time.monotonic()
    container.start({"LEFTOFF_PORT": str(port)}, port)
    try:
        with closing(connect(f"http://127.0.0.1:{port}", timeout=httpx.Timeout(_PATIENCE_S))) as http:
            _wait_for("its port", lambda: _is_listening(http))
            _wait_for("its health check", lambda: container.passes(check))
            healthy_s = time.monotonic() - began
            reply = ChatClient(http).ask({"messages": _messages(texts), "max_tokens": 24, "temperature": 0})
            first_s = healthy_s + reply.first_token_ms / 1000
            print(f"healthy after {healthy_s:.1f} s, first token after {first_s:.1f} s: {reply.text!r}")
            _require(bool(reply.text), "the reply is empty")
            _require(first_s < _GOAL_S, f"the first token came after {first_s:.0f} s")
        return reply
    finally:
        container.stop()


def _messages(texts: list[str]) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]


def _is_listening(http: httpx.Client) -> bool:
    try:
        return http.get("/health").is_success
    except httpx.TransportError:
        return False


def _wait_for(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        _require(time.monotonic() < deadline, f"{what}: not there after {_PATIENCE_S} s")
        time.sleep(_POLL_S)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ContainerError(problem)


if __name__ == "__main__":
    sys.exit(main())
