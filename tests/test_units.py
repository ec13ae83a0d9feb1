"""Numbers as people read them: bytes in one unit everywhere."""

import pytest

from leftoff.units import show_bandwidth, show_bytes


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
