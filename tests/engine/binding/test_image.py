"""What the headers of libraries say, of files made here byte by byte and of the real one."""

import struct
from pathlib import Path

import pytest

from leftoff.engine.binding.image import Platform, read_image, this_platform
from leftoff.engine.binding.library import load_library

MAC_ARM, MAC_INTEL = 0x0100000C, 0x01000007


def test_the_library_in_use_is_for_this_machine() -> None:
    image = read_image(load_library().path)
    assert image
    assert this_platform() in image.platforms
    if this_platform().system == "Linux":
        assert "libc.so.6" in image.needed


@pytest.mark.parametrize(
    ("content", "platforms"),
    [
        (struct.pack("<II", 0xFEEDFACF, MAC_ARM), ["macOS arm64"]),
        (
            struct.pack(">II5I5I", 0xCAFEBABE, 2, MAC_INTEL, *[0] * 4, MAC_ARM, *[0] * 4),
            ["macOS x86-64", "macOS arm64"],
        ),
        (b"MZ and the rest of a DLL", ["Windows PC"]),
    ],
    ids=["mac", "universal", "windows"],
)
def test_libraries_of_other_systems_are_recognised(tmp_path: Path, content: bytes, platforms: list[str]) -> None:
    path = tmp_path / "library"
    path.write_bytes(content + bytes(64))
    image = read_image(path)
    assert image
    assert [*map(str, image.platforms)] == platforms


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF\x02\x01 and no more", b"\x7fELF\x02\x01" + bytes(200)])
def test_what_is_no_library_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "library"
    path.write_bytes(content)
    assert read_image(path) is None
    assert read_image(tmp_path / "missing") is None


def test_a_platform_reads_like_its_name() -> None:
    assert str(Platform("Linux", "x86-64")) == "Linux x86-64"
