"""Downloads archives from PyPI and npm, or from the mirrors that pip and npm are configured for on this machine.

What arrives is believed by its hash alone. A download that breaks off goes on where it stopped, now or next time.
`pip download` would do less: it refuses wheels whose tags are for another Python, though only their libraries are
wanted here; it does not go on with a download of an earlier run; environments made by uv have no pip; and the archives
of npm would need all of this besides.
"""

import configparser
import hashlib
import html
import os
import re
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import certifi
import httpx

from leftoff.engine.errors import EngineError
from leftoff.engine.install.packages import Archive

Progress = Callable[[float], None]

_PYPI, _NPM = "https://pypi.org/simple", "https://registry.npmjs.org"
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_REGISTRY_VARIABLES = ("NPM_CONFIG_REGISTRY", "npm_config_registry")
_CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_LINK = re.compile(r"""href\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
_ATTEMPTS = 4
_TIMEOUT_S = 30.0
_STEPS = 500  # of the progress bar
_WAYS_OUT = (
    "Check the network, name a mirror in PIP_INDEX_URL or NPM_CONFIG_REGISTRY, or download the files elsewhere and "
    "give their folder with --from"
)


class DownloadError(EngineError):
    """An archive could not be downloaded, or is not the one that was pinned."""


class InterruptedDownloadError(DownloadError):
    """The connection broke off. What has arrived is kept, for the next try."""


def fetch(archive: Archive, folder: Path, progress: Progress) -> Path:
    """The archive as a file in `folder`, whose hash was checked."""
    path = folder / archive.file
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        part = path.with_name(f"{path.name}.part")
        with _client() as client:
            _download(client, _address(client, archive), archive, part, progress)
        try:
            check_hash(part, archive)
        except DownloadError:
            part.unlink()
            raise
        part.replace(path)
    progress(1.0)
    return path


def check_hash(path: Path, archive: Archive) -> None:
    """Raises an error for a file that is not the pinned one."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != archive.sha256:
        raise DownloadError(
            f"{archive.file} has the SHA-256 {found}, and {archive.sha256} is expected: "
            "it was changed on its way, or the mirror has another file of this name. It is not used"
        )


def _download(client: httpx.Client, url: str, archive: Archive, part: Path, progress: Progress) -> None:
    reason = "the server sent less"
    for _ in range(_ATTEMPTS):
        if _size(part) >= archive.nbytes:
            return
        try:
            _receive(client, url, part, archive.nbytes, progress)
        except httpx.ConnectError as error:
            raise _unreachable(url, error) from error
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
    if _size(part) < archive.nbytes:
        raise InterruptedDownloadError(
            f"{archive.file} broke off after {_size(part):,} of {archive.nbytes:,} bytes ({reason}). "
            "Run the command again: it goes on from there"
        )


def _receive(client: httpx.Client, url: str, part: Path, expected: int, progress: Progress) -> None:
    """Appends what the server sends to the file, which begins anew if the server sends everything."""
    arrived = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={arrived}-"} if arrived else {})
    with client.stream("GET", url, headers=headers) as response:
        _check_status(response)
        goes_on = response.status_code == httpx.codes.PARTIAL_CONTENT
        nbytes, step = arrived if goes_on else 0, -(-expected // _STEPS)
        with part.open("ab" if goes_on else "wb") as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                nbytes += len(chunk)
                if nbytes // step > (nbytes - len(chunk)) // step:
                    progress(min(1.0, nbytes / expected))
                if nbytes > expected:
                    return


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _address(client: httpx.Client, archive: Archive) -> str:
    if archive.is_npm:
        return f"{npm_registry()}/{archive.project}/-/{archive.file}"
    page = f"{python_index()}/{archive.project}/"
    try:
        response = client.get(page, headers={"Accept": "text/html"})
    except httpx.TransportError as error:
        raise _unreachable(page, error) from error
    _check_status(response)
    for link in map(html.unescape, _LINK.findall(response.text)):
        if unquote(urlsplit(link).path.rpartition("/")[2]) == archive.file:
            return _with_login(urljoin(str(response.url), link), page)
    raise DownloadError(
        f"{_shown(page)} has no {archive.file}: set PIP_INDEX_URL to an index that has it, such as {_PYPI}"
    )


def _client() -> httpx.Client:
    certificates = ssl.create_default_context()
    for file in (certifi.where(), *map(os.environ.get, _CERTIFICATE_VARIABLES)):
        if file and Path(file).is_file():
            certificates.load_verify_locations(file)
    return httpx.Client(follow_redirects=True, timeout=_TIMEOUT_S, verify=certificates)


def python_index() -> str:
    """The package index that pip or uv would use here."""
    return _configured(_INDEX_VARIABLES, _pip_settings(), _PYPI)


def npm_registry() -> str:
    """The registry that npm would use here."""
    return _configured(_REGISTRY_VARIABLES, _npm_settings(), _NPM)


def _configured(variables: tuple[str, ...], settings: Iterator[str], default: str) -> str:
    found = (*map(os.environ.get, variables), *settings)
    return next(filter(None, found), default).strip().rstrip("/")


def _pip_settings() -> Iterator[str]:
    """`index-url` in pip's configuration, that of the environment first, as pip weighs them."""
    given = os.environ.get("PIP_CONFIG_FILE")
    if given == os.devnull:
        return
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    library = Path.home() / "Library/Application Support"
    places = (Path(sys.prefix), config / "pip", library / "pip", Path.home() / ".pip", Path("/etc"))
    for file in [*([Path(given)] if given else []), *(place / "pip.conf" for place in places)]:
        parser = configparser.RawConfigParser(strict=False)
        with suppress(OSError, UnicodeDecodeError, configparser.Error):
            parser.read(file)
            yield from (parser.get(section, "index-url", fallback="") for section in ("install", "global"))


def _npm_settings() -> Iterator[str]:
    with suppress(OSError, UnicodeDecodeError):
        yield from re.findall(r"^registry\s*=\s*(\S+)", (Path.home() / ".npmrc").read_text(), re.MULTILINE)


def _with_login(link: str, page: str) -> str:
    """The link with the user and password of the index page, if it leads to the same server."""
    to, at = urlsplit(link), urlsplit(page)
    login = at.netloc.rpartition("@")[0]
    return (
        to._replace(netloc=f"{login}@{to.netloc}").geturl()
        if login and to.netloc == at.netloc.rpartition("@")[2]
        else link
    )


def _check_status(response: httpx.Response) -> None:
    if response.is_error:
        raise DownloadError(
            f"{_shown(str(response.url))} answered {response.status_code} {response.reason_phrase}. {_WAYS_OUT}"
        )


def _unreachable(url: str, error: httpx.TransportError) -> DownloadError:
    return DownloadError(f"{_shown(url)} cannot be reached ({error or type(error).__name__}). {_WAYS_OUT}")


def _shown(url: str) -> str:
    """The address without the password that it may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
