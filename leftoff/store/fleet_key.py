"""The key of a fleet: a file that lies in neither its store nor its index, so that writing to those forges nothing.

With it servers authenticate their heartbeats, remembered replies and blobs. A fleet without one trusts whoever can
write to its store and its index.
"""

import hmac
import os
import secrets
from pathlib import Path

from blake3 import blake3

from leftoff.errors import reason_of
from leftoff.setting import SettingError

NO_KEY = (
    "no --fleet-key: whoever can write to the index or the store can have requests of this fleet, with their API keys, "
    "sent to another machine, and change what its prompts say"
)
_MIN_CHARACTERS = 32
_MAX_BYTES = 4096
_FILE_MODE, _OTHERS = 0o600, 0o027  # a group may read it: containers mount secrets so
_MAC_BYTES = 32
_MARK = b"M"  # no heartbeat without a MAC begins with it


class FleetKey:
    """Keys for each purpose, derived from the one in the file."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._mac_key = self.key("index")
        self.id = self.key("name").hex()[:16]  # to say which key it is: nothing can be computed from it

    @classmethod
    def read(cls, path: Path) -> "FleetKey":
        """Reads a file that `leftoff cluster key` has made, or any text of 32 characters that nobody can guess."""
        try:
            with path.open("rb") as file:
                mode, secret = os.fstat(file.fileno()).st_mode & 0o777, file.read(_MAX_BYTES).strip()
        except OSError as error:
            reason = reason_of(error)
            raise SettingError(f"--fleet-key {path}: {reason}: `leftoff cluster key {path}` makes one") from error
        if mode & _OTHERS:
            raise SettingError(f"--fleet-key {path}: others can read or change it (mode {mode:o}): chmod 600 {path}")
        if len(secret) < _MIN_CHARACTERS:
            raise SettingError(f"--fleet-key {path}: it has {len(secret)} characters: {_MIN_CHARACTERS} are needed")
        return cls(secret)

    @staticmethod
    def create(path: Path) -> None:
        """Writes a new key. `OSError` if there is a file already."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE), "w") as file:
            file.write(f"{secrets.token_hex(32)}\n")

    def key(self, purpose: str) -> bytes:
        """32 bytes that are for this purpose alone."""
        return blake3(self._secret, derive_key_context=f"leftoff fleet key, {purpose}").digest()

    def fingerprint(self, fingerprint: str) -> str:
        """The fingerprint under which a model is known in this fleet: servers of another key share nothing with it."""
        return blake3(bytes.fromhex(fingerprint), key=self.key("fingerprint")).hexdigest()

    def sealed(self, name: bytes, value: bytes) -> bytes:
        """A value for the index, with a MAC of it and of its name there."""
        return _MARK + self._mac(name, value) + value

    def opened(self, name: bytes, content: bytes) -> bytes | None:
        """The value, if it was sealed with this key under this name."""
        start = len(_MARK) + _MAC_BYTES
        value = content[start:]
        is_sound = content.startswith(_MARK) and hmac.compare_digest(
            content[len(_MARK) : start], self._mac(name, value)
        )
        return value if is_sound else None

    def _mac(self, name: bytes, value: bytes) -> bytes:
        return blake3(len(name).to_bytes(8, "little") + name + value, key=self._mac_key).digest(_MAC_BYTES)


def read_fleet_key(path: str) -> FleetKey | None:
    """The key of `--fleet-key`; None without one."""
    return FleetKey.read(Path(path).expanduser()) if path else None
