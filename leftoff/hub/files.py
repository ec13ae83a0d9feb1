"""The files of repositories on the Hugging Face hub: listed, downloaded, and found again without a network.

They lie where huggingface_hub keeps them, in its layout, so that other programs on this machine find them too.
`reference.py` chooses among them.
"""

import logging
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import httpx

from leftoff.errors import LeftoffError, reason_of
from leftoff.hub.download import DownloadError, Expected, Progress, download, http_client, shown_url
from leftoff.machine import free_disk_bytes
from leftoff.units import show_bytes

logger = logging.getLogger(__name__)

Begin = Callable[[str], Progress]  # is given what is downloaded, and returns what is told how far it is

_ENDPOINT = "https://huggingface.co"
_REVISION = "main"
_NAME = re.compile(r"[\w-]{1,128}")  # of a commit or of a blob, as a file
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REFUSED = (401, 404)
_GATED = 403
_TAG = "x-linked-etag"  # the SHA-256 of a large file
_MAX_REDIRECTS = 5


class HubError(LeftoffError):
    """A model that could not be found or downloaded. The message names it and says what to do."""


def silent(_title: str) -> Progress:
    """A `Begin` that shows nothing."""
    return lambda _fraction: None


def list_files(repo: str) -> Sequence[str]:
    """The names of a repository's files; without a network, of those that were downloaded before."""
    url = f"{_endpoint()}/api/models/{repo}"
    try:
        with _client() as client:
            response = client.get(url)
    except httpx.HTTPError as error:
        snapshot = _snapshot(repo)
        if snapshot is None:
            raise _unreachable(repo, error) from error
        return [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
    _check(response, repo)
    try:
        return [file["rfilename"] for file in response.json()["siblings"]]
    except (ValueError, LookupError, TypeError) as error:
        raise _no_hub(url) from error


def download_file(repo: str, file: str, begin: Begin = silent) -> Path:
    """The file on this machine, downloaded unless it is there in the newest version."""
    if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts:
        raise HubError(f"{repo} names a file {file!r}, which would be written elsewhere: take another repository")
    url = f"{_endpoint()}/{repo}/resolve/{_REVISION}/{quote(file)}"
    try:
        with _client() as client:
            return _fetch(client, url, _facts(client, url, repo), repo, file, begin)
    except httpx.HTTPStatusError as error:
        shown = shown_url(str(error.request.url))
        raise HubError(f"{file} of {repo}: {shown} answered {error.response.status_code}: try again") from error
    except httpx.HTTPError as error:
        snapshot = _snapshot(repo)
        if snapshot is not None and (snapshot / file).is_file():
            return snapshot / file
        raise _unreachable(repo, error) from error
    except DownloadError as error:
        raise HubError(f"{repo}: {error}") from error


def _fetch(client: httpx.Client, url: str, head: httpx.Headers, repo: str, file: str, begin: Begin) -> Path:
    tag: str = head.get(_TAG, head.get("etag", "")).removeprefix("W/").strip('"')
    commit: str = head.get("x-repo-commit", _REVISION)
    nbytes = int(head.get("x-linked-size", head.get("content-length", "0")))
    if not _NAME.fullmatch(tag) or not _NAME.fullmatch(commit) or nbytes <= 0:
        raise _no_hub(url)
    folder = _folder(repo)
    blob, link = folder / "blobs" / tag, folder / "snapshots" / commit / file
    if not blob.is_file():
        part = blob.with_name(f"{tag}.incomplete")
        _check_room(folder, nbytes - (part.stat().st_size if part.exists() else 0), file)
        title = f"{PurePosixPath(file).name}, {show_bytes(nbytes)}"
        logger.info("downloading %s of %s", title, repo)
        expected = Expected(file, nbytes, tag if _SHA256.fullmatch(tag) else "")
        download(client, url, expected, blob, part, begin(f"downloading {title}"))
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        with suppress(FileExistsError):
            link.symlink_to(os.path.relpath(blob, link.parent))
    reference = folder / "refs" / _REVISION
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)
    return link


def _facts(client: httpx.Client, url: str, repo: str) -> httpx.Headers:
    """What the hub says of a file. Its redirect leads to the content; one before that, to a repository's new name."""
    head = client.head(url, follow_redirects=False)
    for _ in range(_MAX_REDIRECTS):
        if head.next_request is None or _TAG in head.headers:
            break
        head = client.send(head.next_request, follow_redirects=False)
    _check(head, repo)
    return head.headers


def _check_room(folder: Path, nbytes: int, file: str) -> None:
    free = free_disk_bytes(folder)
    if nbytes > free:
        raise HubError(
            f"{file} needs {show_bytes(nbytes)} in {folder}, and {show_bytes(free)} are free there: "
            "set HF_HOME to a folder on another disk, or take a smaller quantisation"
        )


def _check(response: httpx.Response, repo: str) -> None:
    if response.status_code == _GATED or "gated" in response.headers.get("x-error-code", "").lower():
        raise HubError(f"{repo} asks for its licence to be accepted: do so at {_ENDPOINT}/{repo}, then set HF_TOKEN")
    if response.status_code in _REFUSED:
        raise HubError(
            f"there is no {repo}, neither a file here nor a public model on the hub; private ones need HF_TOKEN"
        )
    if response.is_error:
        raise HubError(f"{shown_url(str(response.url))} answered {response.status_code}: try again later")


def _no_hub(url: str) -> HubError:
    return HubError(f"{shown_url(url)} does not say what it has: is {_endpoint()} a hub? (HF_ENDPOINT)")


def _unreachable(repo: str, error: httpx.HTTPError) -> HubError:
    problem = f"the hub cannot be reached for {repo} ({reason_of(error)})"
    return HubError(f"{problem}: check the network, or give the path of a GGUF file")


def _snapshot(repo: str) -> Path | None:
    """What was downloaded of a repository last."""
    folder = _folder(repo)
    with suppress(OSError):
        snapshot = folder / "snapshots" / (folder / "refs" / _REVISION).read_text().strip()
        return snapshot if snapshot.is_dir() else None
    return None


def _folder(repo: str) -> Path:
    return _home("HF_HUB_CACHE", "hub") / f"models--{repo.replace('/', '--')}"


def _home(variable: str, name: str) -> Path:
    """A path that a variable names, else one in the hub's folder of this user."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("HF_HOME") or caches / "huggingface")
    return Path(os.environ.get(variable) or home / name).expanduser()


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or _ENDPOINT).rstrip("/")


def _client() -> httpx.Client:
    """A client that sends the token to the hub, and to no other machine that the hub leads to."""
    client = http_client()
    token = os.environ.get("HF_TOKEN", "").strip()
    with suppress(OSError):
        token = token or _home("HF_TOKEN_PATH", "token").read_text().strip()
    client.headers.update({"Authorization": f"Bearer {token}"} if token else {})
    return client
