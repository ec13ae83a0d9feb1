"""The secret of a cache folder, `<cache dir>/secret`: the key with which names of tenants are hashed.

It keeps others from testing guesses of API keys against these names. With another secret, what was stored for API keys
and salts is not found again.
"""

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from leftoff.disk.files import FILE_MODE, make_folder

logger = logging.getLogger("leftoff.disk")

FILE = "secret"
SECRET_BYTES = 32

_held: dict[Path, bytes] = {}  # by this process, for each cache folder: put back where it is lost


def folder_secret(root: Path) -> bytes:
    """Reads the secret, or makes one; processes that ask at once get the same. `OSError` if neither is possible."""
    path = root / FILE
    secret = _read(path)
    if secret is None:
        make_folder(root)
        _create(path, _held.get(root) or new_secret())
        secret = _read(path)
    if secret is None:
        raise FileNotFoundError(f"{path} was removed")
    if _held.setdefault(root, secret) != secret:
        _held[root] = secret  # told once
        logger.warning(
            "%s is another one than this server's: what is kept for API keys and salts is not found after a restart, "
            "and `leftoff cache clear` removes it",
            path,
        )
    return secret


def held_secret(root: Path) -> bytes:
    """The secret of this process for a folder that has none, and cannot be given one before `keep_secret`."""
    return _held.setdefault(root, new_secret())


def keep_secret(root: Path) -> None:
    """Puts back a secret that was lost with its folder: what is kept there from now on has names made with it."""
    if root in _held:
        with suppress(OSError):  # who writes there meets it too, and asks again
            folder_secret(root)


def new_secret() -> bytes:
    """A random secret."""
    return secrets.token_bytes(SECRET_BYTES)


def _read(path: Path) -> bytes | None:
    """None if there is no secret. A damaged one is removed."""
    try:
        with path.open("rb") as file:
            secret = file.read(SECRET_BYTES + 1)
            if os.fstat(file.fileno()).st_mode & 0o777 != FILE_MODE:  # a copy may have lost it
                with suppress(OSError):
                    os.fchmod(file.fileno(), FILE_MODE)
    except FileNotFoundError:
        return None
    if len(secret) == SECRET_BYTES:
        return secret
    path.unlink(missing_ok=True)
    if path.parent not in _held:
        logger.warning(
            "%s was damaged, and is made anew: what was kept for API keys and salts is not found again, and "
            "`leftoff cache clear` removes it",
            path,
        )
    return None


def _create(path: Path, secret: bytes) -> None:
    """Writes a secret whole or not at all. Of several processes that do so at once, the first wins."""
    unfinished = path.with_name(f"{FILE}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        _publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _publish(unfinished: Path, path: Path) -> None:
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        unfinished.replace(path)
