"""Bare connections to a server, for clients that misbehave."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 60  # for what should come at once, on a machine that is busy


def address(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


@contextmanager
def connected(url: str, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    """`receive_bytes` is what the kernel buffers for a client that does not read."""
    with socket.socket() as connection:
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(PATIENCE_S)
        connection.connect(address(url))
        yield connection


def head(path: str, num_bytes: int, method: str = "POST") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {num_bytes}\r\n\r\n".encode()


def ask(connection: socket.socket, path: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    connection.sendall(head(path, len(data)) + data)


def read_to_end(connection: socket.socket) -> bytes:
    """What came until the server closed the connection, gracefully or not."""
    data = bytearray()
    try:
        while piece := connection.recv(1 << 16):
            data += piece
    except ConnectionResetError:
        pass
    return bytes(data)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    data = bytearray()
    while not data.endswith(end):
        piece = connection.recv(1 << 16)
        assert piece, f"closed after {bytes(data[-300:])!r}"
        data += piece
    return bytes(data)
