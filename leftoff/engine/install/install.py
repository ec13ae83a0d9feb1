"""Installs a prebuilt engine into the user's data folder: downloads, unpacks, tries it, and only then puts it in place.

A library from elsewhere may crash: it is tried in a process of its own, before anything of it is in place. Whatever
goes wrong, nothing is left but what a download that broke off needs to go on.
"""

import fcntl
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from leftoff.engine.binding.backends import is_on_this_machine
from leftoff.engine.binding.image import read_image
from leftoff.engine.binding.search import (
    CHOSEN,
    ENVIRONMENT,
    MANIFEST,
    InstalledEngine,
    engines_folder,
    installed_engines,
)
from leftoff.engine.devices import DeviceMemory
from leftoff.engine.errors import EngineError
from leftoff.engine.fingerprint import cache_folder
from leftoff.engine.install.download import expected, fetch
from leftoff.engine.install.packages import Archive, Package
from leftoff.hub.download import InterruptedDownloadError, check_hash

Begin = Callable[[str], Callable[[float], None]]  # starts a stage of this title; takes its progress, from 0 to 1

_LIBRARY = re.compile(r"[\w.+-]+\.(?:so|dylib)(?:\.[\d.]+)?")
_LAST_LINES = 3
_FRAME = re.compile(r"\[0x[0-9a-f]+\]$")  # of a backtrace, which ends what a library says when it aborts
_NEW, _OLD = ".new-", ".old-"  # folders that an engine has while it is installed and while it is removed


class InstallError(EngineError):
    """An engine that cannot be installed. Nothing of it is left."""


@dataclass(frozen=True)
class Trial:
    """Version and devices that a library reported in a process of its own, by `leftoff engine check --json`."""

    version: str
    devices: tuple[DeviceMemory, ...]
    refusals: tuple[str, ...]

    @property
    def has_gpu(self) -> bool:
        return any(device.is_gpu for device in self.devices)


def install(package: Package, begin: Begin, given: Path | None = None) -> Trial:
    """Installs an engine and makes it the chosen one. `given` is a folder that has the archives already."""
    folder = engines_folder()
    folder.mkdir(parents=True, exist_ok=True)
    archives = [archive for archive in package.archives if not is_on_this_machine(archive.provides)]
    with _alone(folder), TemporaryDirectory(dir=folder, prefix=_NEW) as aside, _downloads(archives) as downloads:
        new = Path(aside, package.name)
        new.mkdir()
        for archive in archives:
            if given:
                fetched = _copied(archive, given, Path(aside))
            else:
                fetched = fetch(archive, downloads, begin(f"downloading {archive}"))
            begin(f"unpacking {archive}")
            _unpack(fetched, archive, new)
        library = _library_of(package, new)
        begin("trying it")
        trial = try_library(library)
        manifest = {"library": library.name, "made_from": [*map(str, archives)]}
        (new / MANIFEST).write_text(json.dumps(manifest))
        _put_in_place(new, folder / package.name)
    choose(package.name)
    return trial


def choose(name: str) -> None:
    """Makes an installed engine the one that is used."""
    folder = engines_folder()
    new = folder / f".{CHOSEN}"
    new.write_text(name)
    new.replace(folder / CHOSEN)


def remove(engine: InstalledEngine) -> None:
    """Removes an installed engine. A server that runs on it goes on."""
    away = engine.folder.with_name(f"{_OLD}{engine.name}")
    shutil.rmtree(away, ignore_errors=True)
    engine.folder.rename(away)
    shutil.rmtree(away)
    if not installed_engines():
        shutil.rmtree(engines_folder(), ignore_errors=True)
    shutil.rmtree(_downloads_folder(), ignore_errors=True)


def try_library(path: Path) -> Trial:
    """Opens a library in a process of its own, and has it save and load the state of a small model there."""
    command = [sys.executable, "-m", "leftoff", "engine", "check", "--json"]
    environment = os.environ | {ENVIRONMENT: str(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode < 0:
        said = [line for line in done.stderr.splitlines() if line.strip() and not _FRAME.search(line)]
        lines = " / ".join(said[-_LAST_LINES:])
        name = signal.Signals(-done.returncode).name
        raise InstallError(f"{path.name} crashes on this machine ({name}; it said: {lines or 'nothing'})")
    try:
        told = json.loads(done.stdout)
    except ValueError:
        raise InstallError(f"{path.name} cannot be tried: {done.stderr.strip() or 'no reason given'}") from None
    if "error" in told:
        raise InstallError(str(told["error"]))
    devices = tuple(DeviceMemory(**device) for device in told["devices"])
    return Trial(told["version"], devices, tuple(told["refusals"]))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lets no other process install at the same time, and removes what one that was killed has left."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        for leftover in (*folder.glob(f"{_NEW}*"), *folder.glob(f"{_OLD}*")):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        os.close(handle)
        with suppress(OSError):  # it stays if there is an engine in it
            folder.rmdir()


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InstallError(f"another leftoff engine install is at work in {folder}: wait for its end") from None


def _downloads_folder() -> Path:
    return cache_folder() / "downloads"


@contextmanager
def _downloads(archives: list[Archive]) -> Iterator[Path]:
    """A folder for archives; they stay there only if a download broke off or was stopped, to go on."""
    folder = _downloads_folder()
    try:
        yield folder
    except (InterruptedDownloadError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        _clear(folder, archives)
        raise
    _clear(folder, archives)


def _clear(folder: Path, archives: list[Archive]) -> None:
    for archive in archives:
        (folder / archive.file).unlink(missing_ok=True)
        (folder / f"{archive.file}.part").unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _copied(archive: Archive, folder: Path, aside: Path) -> Path:
    """A copy of the user's own, whose hash was checked: nobody can change it between that and unpacking."""
    path = folder / archive.file
    if not path.is_file():
        raise InstallError(
            f"{folder} has no {archive.file}: download it from {archive.project} {archive.version} first"
        )
    copy = Path(shutil.copyfile(path, aside / archive.file))
    check_hash(copy, expected(archive))
    return copy


def _unpack(path: Path, archive: Archive, folder: Path) -> None:
    """Unpacks the shared libraries that the archive is taken for, without the folders they are in."""
    taken = 0
    try:
        for name, content in _members(path):
            base = name.rpartition("/")[2]
            if not fnmatch.fnmatchcase(name, archive.take) or not _LIBRARY.fullmatch(base):
                continue
            with (folder / base).open("xb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
            taken += 1
    except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise InstallError(f"{archive.file} cannot be unpacked ({error})") from error
    if not taken:
        raise InstallError(f"{archive.file} has no library like {archive.take}")


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The names of the files in an archive, and each of them opened; links and folders are left out."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as wheel:
            for info in wheel.infolist():
                yield info.filename, wheel.open(info)
        return
    with tarfile.open(path, "r:gz") as tarball:
        for member in tarball:
            content = tarball.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content


def _library_of(package: Package, folder: Path) -> Path:
    """The library to open, after all libraries were found to be for the package's platform."""
    for path in sorted(folder.iterdir()):
        image = read_image(path)
        if image is None or package.platform not in image.platforms:
            built_for = " and ".join(map(str, image.platforms)) if image else "no known platform"
            raise InstallError(f"{path.name} is a library for {built_for}, and this machine is {package.platform}")
    found = [path for path in sorted(folder.glob(package.library)) if "common" not in path.name]
    if len(found) != 1:
        raise InstallError(f"{package.name} has {len(found)} libraries like {package.library} instead of one")
    return found[0]


def _put_in_place(new: Path, place: Path) -> None:
    old = place.with_name(f"{_OLD}{place.name}")
    shutil.rmtree(old, ignore_errors=True)
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
