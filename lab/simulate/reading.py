"""Opens a file of requests, whatever its format, packed or not."""

import gzip
import lzma
from pathlib import Path
from typing import BinaryIO

import msgspec

from lab.simulate import claude_code, mooncake
from lab.simulate.trace import Recording, TraceError

SAMPLE = Path(__file__).parent / "data" / "claude-code-sample.jsonl.xz"
_FORMATS = {"blocks": claude_code.read, "hash_ids": mooncake.read}


def read_recording(path: Path) -> Recording:
    try:
        with _open(path) as file:
            lines = [line for line in file if line.strip()]
        if not lines:
            raise TraceError(f"{path} is empty: a trace has one JSON object per request")
        keys = msgspec.json.decode(lines[0], type=dict[str, msgspec.Raw])
        reader = next((reader for key, reader in _FORMATS.items() if key in keys), None)
        if reader is None:
            raise TraceError(f"{path} has none of the keys {', '.join(_FORMATS)}: it is of no format known here")
        return reader(path.name.split(".")[0], lines)
    except (msgspec.MsgspecError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None


def _open(path: Path) -> BinaryIO | lzma.LZMAFile | gzip.GzipFile:
    if path.suffix == ".xz":
        return lzma.open(path)
    if path.suffix == ".gz":
        return gzip.open(path)
    return path.open("rb")
