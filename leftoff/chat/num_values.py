"""How many values a JSON text has, without decoding it: nothing else runs while a million lists are made."""

import numpy as np

_SLICE_BYTES = 1 << 20
_MOST_VALUES = 1 << 16  # a hundredth of a second
_SEPARATORS = (b",", b"[", b"{")


def has_more_values(data: bytes, most: int) -> bool:
    """Commas and brackets outside of texts, of which there is one before every value but the first."""
    num_values, is_inside, rest = 0, False, b""
    for start in range(0, len(data), _SLICE_BYTES):
        part = rest + data[start : start + _SLICE_BYTES]
        rest = b"\\" if _ends_escaping(part) else b""
        plain = part.removesuffix(rest).replace(rb"\\", b"").replace(rb"\"", b"")
        signs = np.frombuffer(plain, np.uint8)
        inside = (np.cumsum(signs == ord('"'), dtype=np.uint8) & 1).astype(bool) ^ is_inside
        num_values += _num_separators(signs[~inside].tobytes())
        if num_values > most:
            return True
        is_inside = bool(inside[-1]) if inside.size else is_inside
    return False


def _ends_escaping(part: bytes) -> bool:
    """Whether its last backslash belongs to what follows."""
    return (len(part) - len(part.rstrip(b"\\"))) % 2 == 1


def _num_separators(data: bytes) -> int:
    return sum(map(data.count, _SEPARATORS))


def is_bearable(text: str) -> bool:
    """Whether a JSON text inside of a request, such as the arguments of a call, may be decoded while others wait."""
    return len(text) <= _MOST_VALUES or not has_more_values(text.encode("utf-8", "replace"), _MOST_VALUES)
