"""What a replica tells the router of a prompt that it answers: the positions where it may leave resume points.

The router sees messages and no tokens: with the tags of these positions it finds in the index what each replica holds
of a conversation, without the model's template, its vocabulary or the replies as they were written. It asks by the
header `x-leftoff-points: 1`, and the answer comes in a header of the same name.
"""

import base64
import binascii

from msgspec import MsgspecError, Struct, msgpack

from leftoff.blobs.path_hash import HashedPath, short
from leftoff.types import Prompt

HEADER = "x-leftoff-points"
AT_HEADER = -1
_MAX_POINTS = 32  # the header, and the latest: 1.5 KB


class Point(Struct, frozen=True, array_like=True):
    """A position of a prompt, and how many of its messages come after it; `AT_HEADER` for the end of the header."""

    num_after: int
    position: int
    tag: bytes


class PromptPoints(Struct, frozen=True, array_like=True):
    """The length of a prompt in tokens, and its points by position."""

    length: int
    points: list[Point]


def points_of(prompt: Prompt, namespace: str, grid: int | None = None) -> PromptPoints:
    """The ends of the header and of the last messages, and of the prompt; on the grid if there is one."""
    num_messages = len(prompt.messages)
    ends = [(num_messages - 1 - index, message.end) for index, message in enumerate(prompt.messages)]
    if prompt.header_end is not None:
        ends.insert(0, (AT_HEADER, prompt.header_end))
    ends.append((0, prompt.length))
    path = HashedPath(namespace, prompt.tokens)
    cut = {(num_after, end - end % grid if grid else end) for num_after, end in (ends[0], *ends[-_MAX_POINTS + 1 :])}
    ordered = sorted(cut, key=lambda point: point[1])
    return PromptPoints(
        prompt.length, [Point(num_after, end, short(path.tag(end))) for num_after, end in ordered if end]
    )


def encode_points(points: PromptPoints) -> str:
    """The points as the value of a header."""
    return base64.b64encode(msgpack.encode(points)).decode()


def decode_points(value: str) -> PromptPoints | None:
    """The points in the value of a header; None for what is no such value, as another version may write it."""
    try:
        return msgpack.decode(base64.b64decode(value, validate=True), type=PromptPoints)
    except (MsgspecError, binascii.Error, ValueError):
        return None
