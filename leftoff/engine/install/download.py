"""Downloads archives from PyPI and npm, or from the mirrors that pip and npm are configured for on this machine.

`pip download` would do less: it refuses wheels whose tags are for another Python, though only their libraries are
wanted here; it does not go on with a download of an earlier run; environments made by uv have no pip; and the archives
of npm would need all of this besides.
"""

import configparser
import html
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import httpx

from leftoff.engine.install.packages import Archive
from leftoff.hub.download import DownloadError, Expected, Progress, download, http_client, shown_url

_PYPI, _NPM = "https://pypi.org/simple", "https://registry.npmjs.org"
_INDEX_VARIABLES = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_REGISTRY_VARIABLES = ("NPM_CONFIG_REGISTRY", "npm_config_registry")
_LINK = re.compile(r"""href\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
_WAYS_OUT = (
    "Check the network, name a mirror in PIP_INDEX_URL or NPM_CONFIG_REGISTRY, or download the files elsewhere and "
    "give their folder with --from"
)


def fetch(archive: Archive, folder: Path, progress: Progress) -> Path:
    """The archive as a file in `folder`, whose hash was checked."""
    path = folder / archive.file
    if not path.exists():
        with http_client() as client:
            url = _address(client, archive)
            part = path.with_name(f"{path.name}.part")
            try:
                download(client, url, expected(archive), path, part, progress)
            except httpx.HTTPStatusError as error:
                raise _refused(error.response) from error
            except httpx.ConnectError as error:
                raise _unreachable(url, error) from error
    progress(1.0)
    return path


def expected(archive: Archive) -> Expected:
    """What must arrive."""
    return Expected(archive.file, archive.nbytes, archive.sha256)


def _address(client: httpx.Client, archive: Archive) -> str:
    if archive.is_npm:
        return f"{npm_registry()}/{archive.project}/-/{archive.file}"
    page = f"{python_index()}/{archive.project}/"
    try:
        response = client.get(page, headers={"Accept": "text/html"})
    except httpx.TransportError as error:
        raise _unreachable(page, error) from error
    if response.is_error:
        raise _refused(response)
    for link in map(html.unescape, _LINK.findall(response.text)):
        if unquote(urlsplit(link).path.rpartition("/")[2]) == archive.file:
            return _with_login(urljoin(str(response.url), link), page)
    raise DownloadError(
        f"{shown_url(page)} has no {archive.file}: set PIP_INDEX_URL to an index that has it, such as {_PYPI}"
    )


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


def _refused(response: httpx.Response) -> DownloadError:
    shown = shown_url(str(response.url))
    return DownloadError(f"{shown} answered {response.status_code} {response.reason_phrase}. {_WAYS_OUT}")


def _unreachable(url: str, error: httpx.TransportError) -> DownloadError:
    return DownloadError(f"{shown_url(url)} cannot be reached ({error or type(error).__name__}). {_WAYS_OUT}")
