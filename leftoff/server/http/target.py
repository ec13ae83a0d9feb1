"""Requests whose target is a whole URL, as clients send them to a proxy: `GET http://name/path`.

The host in the target counts, whatever the Host header says (RFC 9112, 3.2.2). uvicorn drops it.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class TargetProtocol(HttpToolsProtocol):
    """Puts the host of the target in the place of the Host header, where the application looks for it."""

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/"):
            target = httptools.parse_url(self.url)
            if target.host:
                others = [(name, value) for name, value in self.headers if name != b"host"]
                self.headers[:] = [*others, (b"host", _authority(target.host, target.port))]
        super().on_headers_complete()


def _authority(host: bytes, port: int | None) -> bytes:
    name = b"[%b]" % host if b":" in host else host
    return name if port is None else b"%b:%d" % (name, port)
