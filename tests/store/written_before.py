"""A shared store as leftoff wrote it before disk and store became one tier: `written_before.zip`, and its index.

    python -m tests.store.written_before /tmp/folder

wrote the objects and a copy of the index, with the code of commit 5f7629c. It is not made anew: it stands for the
stores that people have. The paths and replies in it are those of `tests/disk/written_before.py`.
"""

import asyncio
import base64
import json
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

from leftoff.store.index import connect
from leftoff.store.link import Link
from leftoff.store.medium import open_store
from leftoff.store.prober import Prober
from leftoff.store.replies import open_index_replies
from tests.disk.stores import ARENA, FINGERPRINT, WAIT_S
from tests.disk.written_before import PATHS, REPLIES, packed
from tests.patience import until
from tests.store.parts import redis

ZIP = Path(__file__).with_suffix(".zip")
_INDEX = "index.json"
_OBJECTS = "store"


def write(root: Path, index_url: str) -> None:
    with closing(Link(f"file://{root}/{_OBJECTS}", index_url, FINGERPRINT)) as link:
        blobs = open_store(link, Prober(link), FINGERPRINT, ARENA, queue_bytes=1 << 26)
        for path in PATHS:
            for item in path.items():
                assert blobs.put(item, path.namespace, path.tokens) is not None
        assert blobs.flush(WAIT_S)
        replies = open_index_replies(link, FINGERPRINT)
        for key, (namespace, value) in REPLIES.items():
            replies.put(key, namespace, value)
        assert until(lambda: len(open_index_replies(link, FINGERPRINT).get([*REPLIES])) == len(REPLIES))
        blobs.close(WAIT_S)
    (root / _INDEX).write_text(json.dumps(asyncio.run(_copied(index_url))))


async def _copied(index_url: str) -> list[list[Any]]:
    """Every key of the index with its type and its value, in base64."""
    client: Any = connect(index_url)
    read = {
        "string": client.get,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "set": client.smembers,
    }
    rows = []
    for key in sorted(await client.keys()):
        kind = (await client.type(key)).decode()
        rows.append([_text(key), kind, _shown(await read[kind](key))])
    await client.aclose()
    return rows


def _shown(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, bytes):
        return _text(value)
    return [_shown(each) for each in value] if isinstance(value, list | set | tuple) else value


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


def unpacked(folder: Path) -> str:
    """The URL of a copy of the store, for a test to open and change."""
    with zipfile.ZipFile(ZIP) as archive:
        archive.extractall(folder)
    return f"file://{folder}/{_OBJECTS}"


def restore_index(folder: Path, index_url: str) -> None:
    """Fills an empty index with the copy that lies in an unpacked folder."""
    asyncio.run(_restore(json.loads((folder / _INDEX).read_text()), index_url))


async def _restore(rows: list[list[Any]], index_url: str) -> None:
    client: Any = connect(index_url)
    for key, kind, value in rows:
        name = base64.b64decode(key)
        if kind == "string":
            await client.set(name, base64.b64decode(value))
        elif kind == "set":
            await client.sadd(name, *map(base64.b64decode, value))
        else:
            await client.zadd(name, {base64.b64decode(member): score for member, score in value})
    await client.aclose()


if __name__ == "__main__":
    root = Path(sys.argv[1])
    root.mkdir(parents=True)
    with redis() as index:
        write(root, index.url)
    packed(root, ZIP)
