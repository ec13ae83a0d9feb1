"""Downloads one file: goes on where an earlier try stopped, and believes what arrives by its hash alone."""

import hashlib
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import certifi
import httpx

from leftoff.errors import LeftoffError, reason_of

Progress = Callable[[float], None]

_CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_ATTEMPTS = 4
_TIMEOUT_S = 30.0
_STEPS = 500  # of the progress bar


class DownloadError(LeftoffError):
    """A file could not be downloaded, or is not the one that was expected."""


class InterruptedDownloadError(DownloadError):
    """The connection broke off. What has arrived is kept, for the next try."""


@dataclass(frozen=True)
class Expected:
    """A file as it must arrive. Where `sha256` is empty, only its size is checked."""

    name: str
    nbytes: int
    sha256: str


def http_client() -> httpx.Client:
    """A client that follows redirects, and trusts the certificates that this machine's settings name."""
    certificates = ssl.create_default_context()
    for file in (certifi.where(), *map(os.environ.get, _CERTIFICATE_VARIABLES)):
        if file and Path(file).is_file():
            certificates.load_verify_locations(file)
    return httpx.Client(follow_redirects=True, timeout=_TIMEOUT_S, verify=certificates)


def download(client: httpx.Client, url: str, expected: Expected, path: Path, part: Path, progress: Progress) -> None:
    """Fetches the file to `path`; `part` has what arrived before, and is removed if its hash is wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _receive_all(client, url, expected, part, progress)
    try:
        check_hash(part, expected)
    except DownloadError:
        part.unlink()
        raise
    part.replace(path)


def check_hash(path: Path, expected: Expected) -> None:
    """Raises an error for a file that is not the expected one."""
    if not expected.sha256 and path.stat().st_size == expected.nbytes:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected.sha256:
        raise DownloadError(
            f"{expected.name} has the SHA-256 {found}, and {expected.sha256 or 'another size'} is expected: "
            "it was changed on its way, or the server has another file of this name. It is not used"
        )


def shown_url(url: str) -> str:
    """The address without the password that it may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _receive_all(client: httpx.Client, url: str, expected: Expected, part: Path, progress: Progress) -> None:
    reason = "the server sent less"
    for _ in range(_ATTEMPTS):
        if _size(part) >= expected.nbytes:
            return
        try:
            _receive(client, url, part, expected.nbytes, progress)
        except httpx.ConnectError:
            raise
        except httpx.TransportError as error:
            reason = reason_of(error)
    if _size(part) < expected.nbytes:
        raise InterruptedDownloadError(
            f"{expected.name} broke off after {_size(part):,} of {expected.nbytes:,} bytes ({reason}). "
            "Run the command again: it goes on from there"
        )


def _receive(client: httpx.Client, url: str, part: Path, num_expected: int, progress: Progress) -> None:
    """Appends what the server sends to the file, which begins anew if the server sends everything."""
    arrived = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={arrived}-"} if arrived else {})
    with client.stream("GET", url, headers=headers) as response:
        response.raise_for_status()
        goes_on = response.status_code == httpx.codes.PARTIAL_CONTENT
        nbytes, step = arrived if goes_on else 0, -(-num_expected // _STEPS)
        with part.open("ab" if goes_on else "wb") as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                nbytes += len(chunk)
                if nbytes // step > (nbytes - len(chunk)) // step:
                    progress(min(1.0, nbytes / num_expected))
                if nbytes > num_expected:
                    return


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
