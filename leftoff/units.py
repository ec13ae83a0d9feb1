"""Formats numbers and names for people."""

import unicodedata

_SHORT_SCALE = ("", "k", "M", "B", "T")
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def show_bytes(nbytes: float) -> str:
    """`21.5 MiB` or `64 MiB`: binary units everywhere, as the settings count."""
    power = 0
    while abs(nbytes) >= 1023.5 and power < len(_BINARY) - 1:
        nbytes /= 1024
        power += 1
    shown = f"{nbytes:,.0f}" if nbytes >= 99.95 else f"{nbytes:.1f}".removesuffix(".0")
    return f"{shown} {_BINARY[power]}"


def show_bandwidth(bytes_per_s: float) -> str:
    """`3.2 GiB/s`."""
    return f"{show_bytes(bytes_per_s)}/s"


def show_rate(tokens_per_s: float) -> str:
    """`1,234 tokens/s`."""
    return f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s >= 100 else f"{tokens_per_s:.1f} tokens/s"


def show_count(count: float) -> str:
    """`7.6 B`, as the parameters of models are counted."""
    power = 0
    while abs(count) >= 999.5 and power < len(_SHORT_SCALE) - 1:
        count /= 1000
        power += 1
    digits = 0 if power == 0 or count >= 99.95 else 1
    return f"{count:.{digits}f} {_SHORT_SCALE[power]}".rstrip()


def counted(count: int, noun: str) -> str:
    """`1 file`, `3 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def show_ms(ms: float) -> str:
    """`39 ms`, or `12.3 s` from ten seconds on."""
    return f"{ms:,.0f} ms" if ms < 9_999.5 else f"{ms / 1000:.1f} s"


def printable(text: str) -> str:
    """Removes control characters, so that text from a model cannot move the cursor or change colours."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def one_line(text: str) -> str:
    """`printable` for names: without line breaks, so that a name cannot look like a line of ours."""
    return " ".join(printable(text).split())
