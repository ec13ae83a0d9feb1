"""Files of the web: fetched from a real server of the tests, which stands for the public one of a name."""

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest

from leftoff.server.request.fetch import FetchError, WebFiles, is_public
from tests.patience import PATIENCE_S, POLL_S

FILE = b"\x89PNG\r\n\x1a\n and so on"


class Handler(BaseHTTPRequestHandler):
    asked: list[tuple[str, str]]
    slow: Event

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Host"]))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        if self.path == "/slow":
            self.slow.wait(PATIENCE_S)
        self.send_response({"/gone": 404, "/nowhere": 302}.get(self.path, 200))
        self.end_headers()
        self.wfile.write(FILE * (1000 if self.path == "/large" else 1))

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    Handler.asked, Handler.slow = [], Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(POLL_S,))
    thread.start()
    try:
        yield server
    finally:
        Handler.slow.set()
        server.shutdown()
        server.server_close()
        thread.join()


def fetch(url: str, files: WebFiles | None = None, owner: str = "") -> bytes:
    return asyncio.run((files or web()).fetch(url, owner))


def web() -> WebFiles:
    return WebFiles(max_bytes=1000, is_allowed=lambda address: address == "127.0.0.1")


def address(server: ThreadingHTTPServer, path: str) -> str:
    return f"http://localhost:{server.server_port}{path}"


@pytest.fixture(autouse=True)
def only_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some machines have ::1 for localhost, too."""
    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: [
        each for each in found(*given, **more) if each[0] == socket.AF_INET
    ])  # fmt: skip


def test_a_file_is_fetched_once_in_a_while_for_each_owner(server: ThreadingHTTPServer) -> None:
    files, url = web(), address(server, "/a.png")
    assert [fetch(url, files, owner) for owner in ("a", "a", "b")] == [FILE] * 3
    assert Handler.asked == [("/a.png", f"localhost:{server.server_port}")] * 2


def test_redirects_are_followed_as_far_as_the_rules_go(server: ThreadingHTTPServer) -> None:
    assert fetch(address(server, f"/to/{address(server, '/a.png')}")) == FILE
    with pytest.raises(FetchError, match="redirected more than 3 times"):
        fetch(address(server, "/to/" * 5 + address(server, "/a.png")))
    for target in ("http://10.0.0.1/", "http://[::1]:80/", "http://169.254.169.254/latest"):
        with pytest.raises(FetchError, match="not a public address"):
            asyncio.run(
                WebFiles(max_bytes=9, is_allowed=lambda at: at == "127.0.0.1" or is_public(at)).fetch(
                    address(server, f"/to/{target}"), ""
                )
            )
    with pytest.raises(FetchError, match="http or https"):
        fetch(address(server, "/to/file:///etc/passwd"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_the_servers_own_network_is_out_of_reach(server: ThreadingHTTPServer, host: str) -> None:
    with pytest.raises(FetchError, match=r"not a public address|cannot be fetched"):
        asyncio.run(WebFiles(max_bytes=9).fetch(f"http://{host}:{server.server_port}/a.png", ""))
    assert Handler.asked == []


def test_the_connection_goes_to_the_address_that_was_checked(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that answers with the server's own network the second time is not asked a second time."""
    answers = iter(["127.0.0.1", "10.0.0.1"])
    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *more, **names: found(next(answers), *more, **names))
    assert fetch(f"http://rebind.example:{server.server_port}/a.png") == FILE
    assert Handler.asked[0][1].startswith("rebind.example:")


def test_every_address_of_a_name_must_be_public(monkeypatch: pytest.MonkeyPatch) -> None:
    one = socket.getaddrinfo("8.8.8.8", 80, type=socket.SOCK_STREAM)
    other = socket.getaddrinfo("192.168.0.1", 80, type=socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: one + other)
    with pytest.raises(FetchError, match=r"'two\.example', which is not a public address"):
        asyncio.run(WebFiles(max_bytes=9).fetch("http://two.example/a.png", ""))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/gone", "answers 404"),
        ("/nowhere", "answers 302"),  # a redirect without a location
        ("/large", "more than 1000 bytes"),
        ("/slow", "took more than"),
    ],
)
def test_files_that_do_not_come_are_refused(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, path: str, problem: str
) -> None:
    monkeypatch.setattr("leftoff.server.request.fetch._SECONDS", 0.3 if path == "/slow" else PATIENCE_S)
    with pytest.raises(FetchError, match=problem):
        fetch(address(server, path))


def test_bytes_count_as_they_come_and_when_they_are_kept(server: ThreadingHTTPServer) -> None:
    files, url, held = web(), address(server, "/a.png"), list[int]()
    for _ in range(2):
        assert asyncio.run(files.fetch(url, "", held.append)) == FILE
    assert sum(held) == 2 * len(FILE)


def test_slow_files_hold_up_their_owner_alone(server: ThreadingHTTPServer) -> None:
    async def fetch_both() -> None:
        files = web()
        slow = [asyncio.create_task(files.fetch(address(server, "/slow"), "a")) for _ in range(9)]
        quick = asyncio.create_task(files.fetch(address(server, "/a.png"), "b"))
        assert await quick == FILE
        assert not any(task.done() for task in slow)
        Handler.slow.set()
        assert await asyncio.gather(*slow) == [FILE] * 9

    asyncio.run(fetch_both())


def test_a_name_that_nobody_answers_for_holds_up_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, has_ended = Event(), Event()

    def resolve(*_: object, **__: object) -> list[object]:
        tried.set()
        has_ended.wait(PATIENCE_S)
        return []

    async def work_beside() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        slow = asyncio.create_task(web().fetch("http://slow.example/", ""))
        with ThreadPoolExecutor(1) as waiting:
            assert await asyncio.get_running_loop().run_in_executor(waiting, tried.wait, PATIENCE_S)
        assert not await asyncio.to_thread(has_ended.is_set)
        assert not slow.done()
        has_ended.set()
        with pytest.raises(FetchError, match="not a public address"):
            await slow

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    asyncio.run(work_beside())


@pytest.mark.parametrize(
    "url", ["http://", "ftp://a.example/x", "http://me:secret@a.example/", "http://a b/", "http://[/"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(FetchError):
        fetch(url)


@pytest.mark.parametrize(
    ("where", "is_it"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("ff02::1", False),
    ],
)
def test_which_addresses_are_public(where: str, is_it: bool) -> None:
    assert is_public(where) is is_it
