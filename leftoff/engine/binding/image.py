"""Reads the header of a shared library: the platform it was built for, and the libraries it needs.

This is done before `dlopen`, whose messages name neither; a file that is no library at all is left to `dlopen`.
"""

import mmap
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_ELF_MACHINES = {0x03: "x86", 0x28: "arm", 0x3E: "x86-64", 0xB7: "arm64", 0xF3: "riscv64"}
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB = 1, 5
_MACH_O = b"\xcf\xfa\xed\xfe"
_MACH_O_UNIVERSAL = b"\xca\xfe\xba\xbe"
_MACH_O_MACHINES = {0x01000007: "x86-64", 0x0100000C: "arm64"}
_PE = b"MZ"
_MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "arm64", "arm64": "arm64"}
_SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}


@dataclass(frozen=True)
class Platform:
    """An operating system and a processor, such as `Linux x86-64`."""

    system: str
    machine: str

    def __str__(self) -> str:
        return f"{self.system} {self.machine}"


@dataclass(frozen=True)
class Image:
    """A library file: the platforms it runs on (several in a universal one of macOS), and what it needs, on Linux."""

    platforms: tuple[Platform, ...]
    needed: tuple[str, ...] = ()


def this_platform() -> Platform:
    """The platform of this process."""
    machine = platform.machine().lower()
    return Platform(_SYSTEMS.get(sys.platform, sys.platform), _MACHINES.get(machine, machine))


def read_image(path: Path) -> Image | None:
    """The platforms and dependencies in the header of a shared library; None if the file is none, or damaged."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _elf_image(content) if content[:6] == _ELF_64_LITTLE else _other_image(content[:4096])
    except (OSError, ValueError, struct.error, StopIteration):
        return None


def _elf_image(content: mmap.mmap) -> Image:
    machine = struct.unpack_from("<H", content, 18)[0]
    return Image((Platform("Linux", _ELF_MACHINES.get(machine, f"machine {machine}")),), tuple(_needed(content)))


def _other_image(beginning: bytes) -> Image | None:
    if beginning.startswith(_PE):
        return Image((Platform("Windows", "PC"),))
    machines = (_MACH_O_MACHINES.get(cpu, f"machine {cpu}") for cpu in _mach_o_cpus(beginning))
    platforms = tuple(Platform("macOS", machine) for machine in machines)
    return Image(platforms) if platforms else None


def _mach_o_cpus(beginning: bytes) -> Iterator[int]:
    if beginning.startswith(_MACH_O):
        yield struct.unpack_from("<I", beginning, 4)[0]
    elif beginning.startswith(_MACH_O_UNIVERSAL):
        (count,) = struct.unpack_from(">I", beginning, 4)
        yield from (struct.unpack_from(">I", beginning, 8 + 20 * index)[0] for index in range(count))


def _needed(elf: mmap.mmap) -> list[str]:
    """The DT_NEEDED names of an ELF file."""
    offset, size, count = (*struct.unpack_from("<Q", elf, 32), *struct.unpack_from("<HH", elf, 54))
    headers = [struct.unpack_from("<IIQQQQ", elf, offset + size * index) for index in range(count)]
    loads = [(address, at, nbytes) for kind, _, at, address, _, nbytes in headers if kind == _PT_LOAD]
    start, nbytes = next((at, nbytes) for kind, _, at, _, _, nbytes in headers if kind == _PT_DYNAMIC)
    entries = [*struct.iter_unpack("<qQ", elf[start : start + nbytes - nbytes % 16])]
    names = next(value for tag, value in entries if tag == _DT_STRTAB)
    table = next(at + names - address for address, at, nbytes in loads if address <= names < address + nbytes)
    found = [table + value for tag, value in entries if tag == _DT_NEEDED]
    return [elf[at : elf.find(b"\0", at)].decode() for at in found]
