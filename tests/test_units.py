"""Numbers as people read them: bytes in one unit everywhere, and nouns in their number."""

import pytest

from leftoff.units import counted, show_bandwidth, show_bytes


@pytest.mark.parametrize(
    ("nbytes", "shown"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (64 << 20, "64 MiB"),
        (52_690_944, "50.2 MiB"),
        ((1 << 30) - 1, "1 GiB"),
        (int(20.55 * (1 << 30)), "20.5 GiB"),
        (250 << 30, "250 GiB"),
        (5 << 50, "5,120 TiB"),
    ],
)
def test_bytes_are_binary_units(nbytes: int, shown: str) -> None:
    assert show_bytes(nbytes) == shown
    assert show_bandwidth(nbytes) == f"{shown}/s"


@pytest.mark.parametrize(("count", "shown"), [(0, "0 files"), (1, "1 file"), (2500, "2,500 files")])
def test_nouns_have_the_number_of_their_count(count: int, shown: str) -> None:
    assert counted(count, "file") == shown
