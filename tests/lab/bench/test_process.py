"""Servers as processes: what they inherit, how they end, and what is said of one that does not start."""

import sys
from collections.abc import Iterator

import httpx
import pytest

from lab.bench.errors import BenchError
from lab.bench.port import free_port
from lab.bench.process import Process

_SERVER = """
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(os.environ)).encode())
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


@pytest.fixture(params=["says its address", "has a known address"])
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setenv("LEFTOFF_RAM", "1")
    monkeypatch.setenv("LEFTOFF_LIBLLAMA", "/some/libllama.so")
    port = free_port() if request.param == "has a known address" else 0
    process = Process([sys.executable, "-c", _SERVER, str(port)], f"http://127.0.0.1:{port}" if port else "")
    yield process
    process.close()


def test_settings_of_the_user_are_left_out_and_the_library_is_passed_on(process: Process) -> None:
    environment = httpx.get(process.url).json()
    assert "LEFTOFF_RAM" not in environment
    assert environment["LEFTOFF_LIBLLAMA"] == "/some/libllama.so"


def test_a_killed_server_can_be_started_again(process: Process) -> None:
    first = process.pid
    process.kill()
    with pytest.raises(httpx.TransportError):
        httpx.get(process.url)
    process.start()
    assert process.pid != first
    assert httpx.get(process.url).is_success


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:9"])
def test_a_program_that_ends_is_quoted(url: str) -> None:
    with pytest.raises(BenchError, match="did not start: no such device"):
        Process([sys.executable, "-c", "import sys; sys.exit('no such device')"], url)
