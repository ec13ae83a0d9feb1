"""Sets of adapters: which LoRA adapters a prompt is read with, each with a scale.

What the engine computes depends on the set, so a set has a fingerprint of the adapters' bytes, and no state that was
computed with one set is found by a prompt with another: the trees' keys tell them apart, in RAM, on disk, in a store
and in the engine alike.

    plain adapters act on the whole prompt      the fingerprint is in the namespace
    an aLoRA acts from its invocation on        the path is that of the prompt without it, up to the first *marks*:

    tokens      [ ····· as without the adapter ····· )[ invocation ·········· )[ ··· reply
    path        [ ·················· same tokens ··· )[ M M M M )[ ··· same tokens ···
                                                      ^ leaves_at

A mark is a number that no vocabulary has, made of the fingerprint and of the tokens that it stands in the place of.
"""

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from blake3 import blake3

from leftoff.picture_tokens import ADAPTER_MARK, MARK_BITS, PictureSpan, Tokens, uncut

NUM_MARKS = 4
_DIGITS = 32
_SUFFIX = re.compile(rf"/lora:[0-9a-f]{{{_DIGITS}}}$")


@dataclass(frozen=True, order=True)
class Adapter:
    """A LoRA adapter by a hash of its file, and how strongly it acts. An aLoRA has invocation tokens."""

    fingerprint: str
    scale: float = 1.0
    invocation: tuple[int, ...] = ()


@dataclass(frozen=True)
class AdapterSet:
    """Adapters in an order that depends on nothing but themselves: sums of floats depend on theirs."""

    adapters: tuple[Adapter, ...] = ()

    @classmethod
    def of(cls, adapters: Iterable[Adapter]) -> "AdapterSet":
        """The set of these adapters, without those whose scale is 0."""
        return cls(tuple(sorted(adapter for adapter in adapters if adapter.scale)))

    def __bool__(self) -> bool:
        return bool(self.adapters)

    @property
    def invocation(self) -> tuple[int, ...]:
        """The invocation tokens of an aLoRA, which is always alone in its set; else empty."""
        return self.adapters[0].invocation if self.adapters else ()

    @cached_property
    def fingerprint(self) -> str:
        parts = [f"{each.fingerprint} {struct.pack('<f', each.scale).hex()}" for each in self.adapters]
        return blake3("|".join(parts).encode()).hexdigest()[:_DIGITS]

    def namespace(self, namespace: str) -> str:
        """The namespace of prompts that are read with this set from their first token on."""
        plain = without_adapters(namespace)
        return f"{plain}/lora:{self.fingerprint}" if self.adapters else plain

    def start_in(self, tokens: Tokens) -> int | None:
        """The first token that is read with this set: 0, or where the last invocation begins. None if there is none."""
        if not self.invocation:
            return 0 if self.adapters else None
        wanted = np.array(self.invocation, np.int32)
        if tokens.size < wanted.size:
            return None
        found = np.flatnonzero((np.lib.stride_tricks.sliding_window_view(tokens, wanted.size) == wanted).all(axis=1))
        return int(found[-1]) if found.size else None

    def leaves_at(self, start: int, pictures: Iterable[PictureSpan] = ()) -> int:
        """Where the path of a prompt that it acts on from `start` leaves that of the same prompt without it.

        That is `start`, but before an invocation that is too short for the marks.
        """
        spans = [span for span in pictures if span.end <= start]
        last_end = spans[-1].end if spans else 0
        return max(last_end, uncut(spans, max(0, min(start, start + len(self.invocation) - NUM_MARKS))))

    def marked(self, tokens: Tokens, start: int, leaves_at: int) -> Tokens:
        """The path of these tokens, which it acts on from `start`."""
        marks, replaced = tokens.copy(), tokens[leaves_at : leaves_at + NUM_MARKS]
        what = struct.pack("<q", start - leaves_at) + self.fingerprint.encode() + replaced.astype("<i4").tobytes()
        numbers = np.frombuffer(blake3(what).digest(4 * replaced.size), "<u4") & ((1 << MARK_BITS) - 1) | ADAPTER_MARK
        marks[leaves_at : leaves_at + replaced.size] = np.where(replaced >= 0, numbers.astype(np.int32), replaced)
        return marks


NO_ADAPTERS = AdapterSet()


def adapters_of(namespace: str) -> str:
    """The end of a namespace that names its adapter set; empty where there is none."""
    return namespace.removeprefix(without_adapters(namespace))


def without_adapters(namespace: str) -> str:
    """The namespace that prompts without adapters have, of one with or without them."""
    return _SUFFIX.sub("", namespace)
