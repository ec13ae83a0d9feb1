"""Whether what would be published works where nothing else is: `make release-check` builds it and runs this.

The wheel is installed into an empty environment of every supported Python that is there, the source archive into one of
the first; the demonstration is run from the wheel with pip, `uvx` and `pipx`. uv and pipx come from the package index;
uv looks for Pythons, and fetches those that are missing if it can. What could not be tried is named. Publishes nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from leftoff import __version__

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_FETCH_S = 120
_QUESTION = "Who are you?\n"  # for `leftoff chat`

Command = Sequence[str | Path]


@dataclass(frozen=True)
class Step:
    """One thing that was tried, or why it was not."""

    title: str
    seconds: float = 0.0
    problem: str = ""
    untried: str = ""

    def __str__(self) -> str:
        if self.untried:
            return f"not tried  {self.title}: {self.untried}"
        return f"FAILED     {self.title}: {self.problem}" if self.problem else f"{self.seconds:7.1f} s  {self.title}"


class Release:
    """The files in `dist`, and a folder in which environments are made; what runs there sees no other packages."""

    def __init__(self, dist: Path, folder: Path) -> None:
        self.wheel, self.archive = _only(dist, "*.whl"), _only(dist, "*.tar.gz")
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self._environment |= {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "pipx-bin")}
        self._environment |= {"UV_TOOL_DIR": str(folder / "uv"), "XDG_CACHE_HOME": str(folder / "cache")}

    def run(self, title: str, *commands: Command, limit_s: float = 1800) -> Step:
        """Runs the commands in turn, until one fails."""
        began = time.perf_counter()
        for command in commands:
            try:
                done = subprocess.run(
                    [str(word) for word in command],
                    cwd=self._folder,
                    env=self._environment,
                    input=_QUESTION,
                    capture_output=True,
                    text=True,
                    timeout=limit_s,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return Step(title, problem=f"took longer than {limit_s:.0f} s")
            except OSError as error:
                return Step(title, problem=str(error))
            if done.returncode:
                return Step(title, problem=_last_line(done.stderr or done.stdout))
        return Step(title, time.perf_counter() - began)

    def installed(self, python: str, file: Path, name: str, *commands: Sequence[str]) -> Step:
        """Installs the file into an environment of its own, and runs the commands there."""
        home = self._folder / name
        own = home / "bin" / "python"
        title = f"{file.name} on {python}: {', '.join(' '.join(command) for command in commands)}"
        runs: list[Command] = [[home / "bin" / words[0], *words[1:]] for words in commands]
        return self.run(title, [python, "-m", "venv", home], [own, *_PIP, file], *runs)

    def tools(self) -> tuple[Path, Step]:
        """uv and pipx, in an environment of their own."""
        home = self._folder / "tools"
        python = home / "bin" / "python"
        installs: list[Command] = [[sys.executable, "-m", "venv", home], [python, *_PIP, "uv", "pipx"]]
        return home / "bin", self.run("uv and pipx from the package index", *installs)

    def pythons(self, uv: Path) -> dict[str, str]:
        """The Python of each version; an empty text if there is none, and none can be fetched."""
        named = {version: shutil.which(f"python{version}") or "" for version in VERSIONS}
        runs = {python for python in named.values() if python and not self.run("", [python, "-c", ""]).problem}
        found = {version: python if python in runs else "" for version, python in named.items()}  # a shim may not run
        missing = [version for version, python in found.items() if not python]
        if missing and not self.run("", [uv, "python", "install", *missing], limit_s=_FETCH_S).problem:
            for version in missing:
                said = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
                found[version] = said.stdout.strip()
        return found


def check(release: Release) -> Iterator[Step]:
    """What was tried, in turn."""
    tools, made = release.tools()
    yield made
    pythons = release.pythons(tools / "uv")
    first = next((python for python in pythons.values() if python), sys.executable)
    for version, python in pythons.items():
        if not python:
            yield Step(f"Python {version}", untried="it is not on this machine, and uv could not fetch it")
            continue
        last = "demo" if python == first else "chat"
        yield release.installed(python, release.wheel, version, ("leftoff", "doctor"), ("leftoff", last))
    yield release.installed(first, release.archive, "source", ("leftoff", "--version"), ("leftoff", "doctor"))
    uvx = (tools / "uvx", "--python", first, "--from", release.wheel, "leftoff", "demo")
    pipx = (tools / "pipx", "run", "--python", first, "--spec", release.wheel, "leftoff", "demo")
    for name, command in (("uvx", uvx), ("pipx", pipx)):
        title = f"{name}: leftoff demo from the wheel"
        yield release.run(title, command) if not made.problem else Step(title, untried=f"{name} is not there")


def _only(dist: Path, pattern: str) -> Path:
    found = [path for path in dist.glob(pattern) if path.name.startswith(f"leftoff-{__version__}")]
    if len(found) != 1:
        raise SystemExit(f"{dist} has {len(found)} files {pattern} of leftoff {__version__}: run `make wheel` first")
    return found[0].resolve()


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it failed without a word")


def main() -> int:
    parser = argparse.ArgumentParser(description="Tries the package in dist/ in empty environments.")
    parser.add_argument("--dist", type=Path, default=Path("dist"))
    parser.add_argument("--folder", type=Path, default=Path("build/release"), help="is removed and made anew")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    failed = False
    for step in check(Release(args.dist, args.folder.resolve())):
        print(step, flush=True)
        failed |= bool(step.problem)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
