"""Checks of texts that settings are given as, and the parsing that they share with the rest of the server."""

import math
import re

ANY = "*"  # in lists of hosts and of origins
_HOST = re.compile(r"(?:\[([0-9a-f:.]+(?:%[\w.%-]+)?)\]|([\w.-]+))(?::\d{0,5})?", re.ASCII | re.IGNORECASE)


def host_name(text: str) -> str | None:
    """The lower-case name or address in `name`, `name:port` or `[address]:port`; None for any other text."""
    match = _HOST.fullmatch(text.strip())
    return (match[1] or match[2]).lower().removesuffix(".") or None if match else None


def host_problem(text: str) -> str | None:
    """Says what is wrong with a host name or address; None if nothing is."""
    if text == ANY or host_name(text):
        return None
    return f"{text!r} is not a host: give a name or an address, such as chat.example or [fd00::1], or * for all"


def regex_problem(pattern: str) -> str | None:
    """Says what is wrong with a regular expression; None if nothing is."""
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{pattern!r} is not a regular expression ({error}): put a \\ before characters meant as they are"
    return None


def numbers(text: str) -> tuple[float, ...]:
    """The numbers in `3,1` or `3/1`, as llama-server separates them."""
    return tuple(map(float, filter(None, re.split("[,/]+", text))))


def numbers_problem(text: str) -> str | None:
    """Says what is wrong with a list of numbers; None if nothing is."""
    try:
        is_wrong = any(number < 0 or not math.isfinite(number) for number in numbers(text))
    except ValueError:
        is_wrong = True
    return f"{text!r} is no list of numbers: give one for each device, such as 3,1" if is_wrong else None


def override_problem(text: str) -> str | None:
    """Says what is wrong with a pair of a pattern and a buffer type; None if nothing is."""
    pattern, equals, buffer_type = text.partition("=")
    if not equals or not pattern or not buffer_type:
        return f"{text!r} names no buffer type: give PATTERN=TYPE, such as ffn_.*_exps=CPU"
    return regex_problem(pattern)


def url_problem(text: str) -> str | None:
    """Says what is wrong with a URL; None if it looks like one. Whether anything answers there shows later."""
    scheme, colon, rest = text.partition("://")
    if colon and rest and scheme.isalnum():
        return None
    return f"{text!r} is no URL: give one such as redis://host:6379/0 or s3://bucket/folder"
