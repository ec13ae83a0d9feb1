"""Formats numbers and names for people."""

import unicodedata

_DECIMAL = ("", "k", "M", "G", "T")


def show_bytes(nbytes: float) -> str:
    """`21.5 MB`: decimal units, as disks and networks count."""
    return f"{_scaled(nbytes)}B"


def show_budget(nbytes: int) -> str:
    """`64 MiB` or `12.0 GiB`: binary units, as the settings count."""
    return f"{nbytes / (1 << 20):,.0f} MiB" if nbytes < 1 << 30 else f"{nbytes / (1 << 30):,.1f} GiB"


def show_bandwidth(bytes_per_s: float) -> str:
    """`3.2 GB/s`."""
    return f"{show_bytes(bytes_per_s)}/s"


def show_rate(tokens_per_s: float) -> str:
    """`1,234 tokens/s`."""
    return f"{tokens_per_s:,.0f} tokens/s" if tokens_per_s >= 100 else f"{tokens_per_s:.1f} tokens/s"


def show_count(count: float) -> str:
    """`7.6 B`, as the parameters of models are counted."""
    return _scaled(count).replace("G", "B").rstrip()


def show_files(count: int) -> str:
    """`1 file`, `3 files`."""
    return f"{count:,} {'file' if count == 1 else 'files'}"


def show_ms(ms: float) -> str:
    """`39 ms`, or `12.3 s` from ten seconds on."""
    return f"{ms:,.0f} ms" if ms < 9_999.5 else f"{ms / 1000:.1f} s"


def printable(text: str) -> str:
    """Removes control characters, so that text from a model cannot move the cursor or change colours."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def one_line(text: str) -> str:
    """`printable` for names: without line breaks, so that a name cannot look like a line of ours."""
    return " ".join(printable(text).split())


def _scaled(value: float) -> str:
    power = 0
    while abs(value) >= 999.5 and power < len(_DECIMAL) - 1:
        value /= 1000
        power += 1
    digits = 0 if power == 0 or value >= 99.95 else 1
    return f"{value:.{digits}f} {_DECIMAL[power]}"
