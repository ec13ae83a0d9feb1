"""`make vendor`: fetches the libraries of the page from npm, at pinned versions, into `leftoff/page/vendor/`.

Each package is checked against the hash that is written here, and only the files that the page loads are kept, with
their licence. A file is copied as it is, but for imports by name, which browsers cannot resolve, source maps, and the
global of a script that is no module.
To update one, change its version, run it, and copy the hash that the error names once you have read what changed.
"""

import base64
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "leftoff" / "page" / "vendor"
LANGUAGES = ("bash", "cpp", "diff", "go", "java", "javascript", "json", "python", "rust", "sql", "xml", "yaml")
_SOURCE_MAP = re.compile(rb"\n?//# sourceMappingURL=\S+\s*$")
_IMPORT_OF_PREACT = (b'from"preact"', b'from"./preact.js"')
_GLOBAL = re.compile(rb"var (\w+)=function\(\)")  # how a script begins that is no module


@dataclass(frozen=True)
class Package:
    """A package of npm, the SHA-512 of its archive, and which of its files get which name here."""

    name: str
    version: str
    sha512: str
    files: Mapping[str, str]


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"},
    ),
    Package(
        "htm",
        "3.1.1",
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
    Package(
        "marked",
        "18.2.0",
        "KaeL+tAbtvI930q7HE2PN5lYXYdT8EiSmxHlN6F3rsfb57wd5mp5W5TLazpdj4inTQBJdgjYwbs40W/0VUGU+Q==",
        {"lib/marked.esm.js": "marked.js", "LICENSE": "marked.LICENSE"},
    ),
    Package(
        "dompurify",
        "3.4.17",
        "B/pSlYVHQ58kqISD/yDjuJ1yfzI34m1gF4lAod2bwSRhiN4K5Cl3H8Af7hqB2PmTL911tdEudnnXn5FnhRoz0w==",
        {"dist/purify.min.js": "purify.js", "LICENSE": "purify.LICENSE"},
    ),
    Package(
        "temml",
        "0.13.5",
        "aPkDDgunanpLNL0ql32HbolqLep+w8DRcVXRql7rWrMt/PhczdLgL4UBYYVU3BYjCNjkGq4EqwIicu/zWr1iOg==",
        {"dist/temml.min.js": "temml.js", "LICENSE": "temml.LICENSE"},
    ),
    Package(
        "@highlightjs/cdn-assets",
        "11.12.0",
        "KvOKXODaiFmId9xaq3xc5xCL66wVLUuOngDbO9B/kewbFTqdGbn2nJxNhN3H5R1cgDTVj6R8vH0zgiNDEGjpDw==",
        {"es/core.min.js": "highlight/core.js", "LICENSE": "highlight/LICENSE"}
        | {f"es/languages/{name}.min.js": f"highlight/{name}.js" for name in LANGUAGES},
    ),
)


def main() -> int:
    """Fetches all packages; returns 1 if one is not what was pinned."""
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            archive = _fetched(package, Path(folder))
            found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            if found != package.sha512:
                print(f"{package.name} {package.version} has the hash {found}, not {package.sha512}", file=sys.stderr)
                return 1
            _unpack(package, archive)
            print(f"{package.name} {package.version}: {len(package.files)} files")
    names = sorted(target for package in PACKAGES for target in package.files.values())
    lines = [f"{hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (FOLDER / "HASHES").write_text("".join(lines))
    return 0


def _fetched(package: Package, folder: Path) -> Path:
    command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return folder / done.stdout.split()[-1]


def _unpack(package: Package, archive: Path) -> None:
    with tarfile.open(archive) as opened:
        for name, target in package.files.items():
            member = opened.extractfile(f"package/{name}")
            assert member is not None, f"{package.name} has no file {name}"
            path = FOLDER / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(as_module(member.read()))


def as_module(source: bytes) -> bytes:
    """The file as browsers load it: no source map, imports by path, and the one global of a script as its export."""
    script = _GLOBAL.match(source)
    export = b"\nexport default %b;\n" % script[1] if script else b""
    return _SOURCE_MAP.sub(b"\n", source).replace(*_IMPORT_OF_PREACT) + export


if __name__ == "__main__":
    sys.exit(main())
