"""Installs clients from npm and PyPI, pinned, each into a folder of its own. What is there already stays."""

import subprocess
import sys
from pathlib import Path

from lab.clients.client import Client

NODE = "node@24.21.0"  # what some npm packages need is newer than many systems have


class InstallError(Exception):
    """A package that could not be installed."""


def installed(client: Client, folder: Path) -> Path:
    """The folder with the client's commands."""
    place = folder / (client.folder or client.name)
    return _npm(client.packages, place) if client.registry == "npm" else _pypi(client.packages, place)


def node(folder: Path) -> Path:
    """A recent Node.js."""
    return _npm((NODE,), folder / "node") / "node"


def _npm(packages: tuple[str, ...], place: Path) -> Path:
    bin_folder = place / "node_modules" / ".bin"
    if _is_new(place, packages):
        (place / "package.json").write_text('{"private": true, "type": "module"}\n')
        _run(["npm", "install", "--no-audit", "--no-fund", "--silent", *packages], place)
        bin_folder.mkdir(exist_ok=True)
        _mark(place, packages)
    return bin_folder


def _pypi(packages: tuple[str, ...], place: Path) -> Path:
    if _is_new(place, packages):
        _run([sys.executable, "-m", "venv", str(place)], place)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *packages], place)
        _mark(place, packages)
    return place / "bin"


def _is_new(place: Path, packages: tuple[str, ...]) -> bool:
    place.mkdir(parents=True, exist_ok=True)
    mark = place / "installed"
    return not mark.exists() or mark.read_text().split() != [*packages]


def _mark(place: Path, packages: tuple[str, ...]) -> None:
    (place / "installed").write_text("\n".join(packages))


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-2000:]}")
