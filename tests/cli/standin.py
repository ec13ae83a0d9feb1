"""A program that stands for a coding agent: it tells how it was started, and asks the server that it was told of."""

import json
import os
import signal
import sys
import urllib.request
from pathlib import Path

URLS = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE")


def main() -> int:
    url = next((os.environ[name] for name in URLS if name in os.environ), "")
    told = {
        "arguments": sys.argv[1:],
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "pid": os.getpid(),
        "files": {str(path): path.read_text() for word in (*sys.argv, *os.environ.values()) for path in ours(word)},
        "health": urllib.request.urlopen(f"{url.removesuffix('/v1')}/health").status if url else None,
    }
    Path(os.environ["TOLD"]).write_text(json.dumps(told))
    if "--stay" in sys.argv:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        print("here", flush=True)
        signal.pause()
    return int(os.environ.get("CODE", "0"))


def ours(word: str) -> list[Path]:
    """A file that was made for it, or those of a folder."""
    if "leftoff-launch-" not in word or "\n" in word:
        return []
    path = Path(word)
    return [path] if path.is_file() else [*path.glob("*.json")]


if __name__ == "__main__":
    sys.exit(main())
